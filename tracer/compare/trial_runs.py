"""The trials of one operator, made one after the other: what came of each, and which are no trial of it."""

from __future__ import annotations

import mmap
import time
import warnings
from collections import Counter
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from tracer.compare.cases import CUDA
from tracer.compare.forks import Done, Ended, Waits, in_forks, may_differentiate, said_of
from tracer.compare.global_state import put_back
from tracer.compare.lost_gpu import is_lost, would_be_lost
from tracer.compare.outcomes import Form, Raised, Story, Values, difference, promised, unsettled
from tracer.compare.switch import Switch
from tracer.compare.trial_arguments import NUMBERS
from tracer.compare.trial_blame import Trial, ends_with_stock, reads_beyond, still_wrong, writing_beyond
from tracer.compare.trial_samples import ERRORS, VALUES, Sample, tensors_in
from tracer.compare.trial_stories import LENGTHS, ON_A_GPU, ONCE, plain, widened

_LONGEST = 8.0
"""Seconds of one trial with stock"""
_MOST_CHECKED = 6
"""Wrong trials of an operator: of each, whether stock is the reason"""
_CRASHES = "calls that end PyTorch's own process, or in which it writes behind its tensors"
_DEADLY = "calls that PyTorch refuses or does not survive on the CPU: its code for a GPU may end the process"
_OUTSIDE = "calls whose values stock refuses in its kernel, which ends CUDA"
_LOST = "after it the GPU answers this process no more"
_SLOW = f"calls that take stock more than {_LONGEST:.0f} seconds"


@dataclass(frozen=True)
class TrialResult:
    """`wrong`: in a phrase, or "". `refused`: stock raises. `ran`: the override computed a call."""

    kind: str
    name: str
    wrong: str = ""
    refused: bool = False
    ran: bool = False


class Missing(dict[str, str]):
    """By kind why it was not tried. `cut` and `lost`: as in Trials."""

    cut = 0
    lost = ""

    def add(self, kind: str, why: str) -> None:
        self[kind] = f"{self[kind]}; {why}" if kind in self else why


class Left:
    """Seconds that are left, of processor time and by the clock."""

    def __init__(self, processor: float, clock: float) -> None:
        self.processor = processor
        self.end = time.monotonic() + clock
        self._whole: Left | None = None

    def shared(self, shares: int) -> Left:
        """One of `shares` equal parts; what it uses is used here, too."""
        part = Left(self.processor / shares, (self.end - time.monotonic()) / shares)
        part._whole = self
        return part

    def use(self, seconds: float) -> None:
        self.processor -= seconds
        if self._whole:
            self._whole.use(seconds)

    @property
    def is_none(self) -> bool:
        return self.processor < 0 or time.monotonic() > self.end


_Made = tuple["TrialResult | None", float, bool]
"""The result, seconds of the processor, and whether stock takes too long"""


class TrialRuns:
    """Makes the trials of an operator in forks, or on a GPU in this process.

    deadly   names of samples with which stock may end the process on a GPU
    """

    def __init__(self, operator: str, trials: list[Trial], switch: Switch, deadly: set[str]) -> None:
        self._short = operator.partition("::")[2]
        self._trials = trials
        self._switch = switch
        self._on_gpu = switch.device == CUDA
        self._fork = not self._on_gpu and may_differentiate()
        self._names = [f"{self._short}, {trial.sample.name or 'usual'}" for trial in trials]
        self._deadly = deadly
        self._with_override = mmap.mmap(-1, 1)
        """1 while the override may run; what a fork writes there is seen here"""
        self._crashed: dict[int, str] = {}
        """By id the samples with which stock ends the process"""
        self._left_out: dict[str, dict[str, None]] = {_DEADLY: {}, _OUTSIDE: {}, _SLOW: {}}
        self._asked = 0
        """How often stock was asked many times more; in each fork anew"""
        self._checked = 0
        """Wrong trials that were asked whether stock is the reason"""
        self._clean = 0
        """No trial before this one writes behind its tensors"""

    def results(self, left: Left, missing: Missing, seconds: str) -> Generator[TrialResult, None, None]:
        """Result by result. What cannot be tried, or has no time, gets its reason in `missing`.

        seconds   that all trials may take, as text
        """
        with closing(self._made()) as made:
            for place, found in made:
                if isinstance(found, Ended):
                    result = self._of_ended(place, found)
                else:
                    result = self._of_made(place, found, missing)
                    left.use(found[1])
                if result is not None:
                    yield result
                if missing.lost:
                    break
                if left.is_none and place + 1 < len(self._trials):
                    self._cut(place + 1, missing, seconds)
                    break
        for title, calls in {_CRASHES: self._crashed.values(), **self._left_out}.items():
            if calls:
                missing.add(title, "; ".join(calls))

    def _of_ended(self, place: int, found: Ended) -> TrialResult | None:
        """None: stock ended the process."""
        trial = self._trials[place]
        blame = self._blamed(place, ended=True) if self._with_override[0] else trial
        if blame is not None:
            self._crashed[id(blame.sample)] = blame.sample.name or "usual"
            return None
        return TrialResult(trial.kind, self._names[place], said_of(found), ran=True)

    def _of_made(self, place: int, found: _Made, missing: Missing) -> TrialResult | None:
        result, _, is_slow = found
        if result and result.wrong and (blame := self._blamed(place, ended=False)):
            self._crashed[id(blame.sample)] = blame.sample.name or "usual"
            return None
        if is_slow:
            self._left_out[_SLOW][self._names[place]] = None
        if self._on_gpu and is_lost():
            missing.lost = self._names[place]
            if self._with_override[0] and not (result and result.wrong):
                return TrialResult(self._trials[place].kind, self._names[place], _LOST, ran=True)
        return result

    def _cut(self, first: int, missing: Missing, seconds: str) -> None:
        rest = self._trials[first:]
        missing.cut += len(rest)
        for kind, number in Counter(trial.kind for trial in rest).items():
            missing.add(kind, f"{number:,} of {self._short}: all would take more than {seconds} seconds")

    def _made(self) -> Generator[tuple[int, _Made | Ended], None, None]:
        """Where a fork waits for what it does not have, as on a GPU, the rest is made in this process."""
        begin, count = 0, len(self._trials)
        if self._fork:
            with closing(in_forks(count, self._make, self._is_wanted)) as done:
                for place, found in done:
                    if isinstance(found, Waits):
                        break
                    yield place, found.result if isinstance(found, Done) else found
                    begin = place + 1
                else:
                    return
        for place in filter(self._is_wanted, range(begin, count)):
            yield place, self._make(place)

    def _is_wanted(self, place: int) -> bool:
        return id(self._trials[place].sample) not in self._crashed

    def _make(self, place: int, flag: Any = None) -> _Made:
        """`flag`: that of a process apart, for self._with_override."""
        flag = self._with_override if flag is None else flag
        begin = time.process_time()
        flag[0] = 0
        trial, name = self._trials[place], self._names[place]
        if self._on_gpu and trial.sample.name in self._deadly:
            self._left_out[_DEADLY][name] = None
            return None, 0.0, False
        if self._on_gpu and _would_be_lost(trial):
            self._left_out[_OUTSIDE][name] = None
            return None, time.process_time() - begin, False
        found, is_slow = result_of(trial, self._switch, name, flag, patient=self._asked < _MOST_CHECKED)
        self._asked += bool(found and found.wrong)
        return found, time.process_time() - begin, is_slow

    def _blamed(self, place: int, *, ended: bool) -> Trial | None:
        """The trial in which stock, not the override, is the reason; None also if that was seen too often."""
        if not self._fork or self._checked >= _MOST_CHECKED:
            self._checked += 1
            return None
        before = [self._trials[n] for n in range(place) if self._is_wanted(n)]
        if ended and ends_with_stock([*before, self._trials[place]], self._switch.device):
            return self._trials[place]
        found = writing_beyond([self._trials[place]])
        if found is None and not self._is_wrong_alone(place):
            ahead = reversed(range(self._clean, place))
            found = writing_beyond([self._trials[n] for n in ahead if self._is_wanted(n)])
            self._clean = self._clean if found else place
        self._checked += found is None
        return found

    def _is_wrong_alone(self, place: int) -> bool:
        """In a process in which stock has made no other trial."""
        flag = mmap.mmap(-1, 1)
        with closing(in_forks(1, lambda _: self._make(place, flag))) as alone:
            ((_, found),) = alone
        if isinstance(found, Done):
            return bool(found.result[0] and found.result[0].wrong)
        return isinstance(found, Ended) and bool(flag[0])


def result_of(
    trial: Trial, switch: Switch, name: str, with_override: Any, *, patient: bool = True
) -> tuple[TrialResult | None, bool]:
    """None: the operands of the trial cannot be made, or (True) it takes too long.

    patient   before it is wrong, stock is asked many times more
    """
    with put_back(switch.device), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            begin = time.process_time()
            stock = trial.tell(trial.sample, switch.device, 1)
            if time.process_time() - begin > _LONGEST:
                return None, True
            if trial.kind == ERRORS and not _refuses(stock) and _is_mixed(trial.sample):
                return None, False  # stock does not look at the device, and reads anything
            if trial.kind == NUMBERS and _refuses(stock):
                return None, False  # no number may be there
            again = trial.tell(trial.sample, switch.device, 2)
            for unsure in _unsettled(trial, stock, switch.device):
                again.pop(unsure, None)
        except Exception:
            return None, False
        with_override[0] = 1
        with switch.on():
            before = switch.counts()
            try:
                mine, wrong = trial.tell(trial.sample, switch.device, 1), ""
            except (Exception, SystemExit) as error:
                mine, wrong = {}, f"it raised {Raised.of(error)}"
            ran, _ = switch.counts().since(before)
        if switch.device == CUDA and is_lost():
            return None, False
        wide = cache(partial(_in_float64, trial, switch.device))
        stock_does = promised(stock, again)
        wrong = wrong or difference(stock_does, stock_does, mine, wide)
        if wrong and patient and mine:
            wrong = still_wrong(trial, switch.device, stock_does, mine, wide)
        if wrong and reads_beyond(trial, switch.device):
            return None, False
    return TrialResult(trial.kind, name, wrong, _refuses(stock), bool(ran)), False


def _unsettled(trial: Trial, stock: Story, device: str) -> set[str]:
    if trial.kind != VALUES or _refuses(stock):
        return set()
    results = [seen.tensor for seen in stock.values() if isinstance(seen, Values)]
    known = (*tensors_in(trial.sample.make()), *results)
    if all(bool(one.isfinite().all()) for one in known if one.is_floating_point()):
        return set()
    return unsettled(stock, _in_float64(trial, device))


def _in_float64(trial: Trial, device: str) -> Story:
    """Of stock; {}: it cannot be made."""
    wide = trial.sample.changed(trial.kind, "", lambda ts: [widened(t) for t in ts])
    try:
        return trial.tell(wide, device, 1)
    except Exception:
        return {}


def _would_be_lost(trial: Trial) -> bool:
    once = trial.kind in ON_A_GPU or trial.kind in ONCE or trial.kind == LENGTHS or trial.tell is plain
    return would_be_lost(trial.sample, None if once else trial.tell)


def _refuses(stock: Story) -> bool:
    """It returns nothing: of many calls in one trial some may be refused."""
    seen = {type(one) for one in stock.values()}
    return Raised in seen and Form not in seen


def _is_mixed(sample: Sample) -> bool:
    return len({tensor.device.type for tensor in tensors_in(sample.make())}) > 1
