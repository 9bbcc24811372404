"""Whether an override does all that stock does: calls of many kinds, with stock and with the override."""

from __future__ import annotations

import mmap
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, zip_longest
from typing import Any

from tracer.compare.cases import CUDA, STRICT, Case
from tracer.compare.forks import Done, Ended, Waits, in_forks, may_differentiate, said_of
from tracer.compare.global_state import put_back, within_bounds
from tracer.compare.lost_gpu import deadly, is_lost, would_be_lost
from tracer.compare.outcomes import Form, Raised, Story, Values, difference, promised, unsettled
from tracer.compare.switch import Switch
from tracer.compare.trial_arguments import (
    NUMBERS,
    arguments_beside_others,
    arguments_together,
    other_arguments,
)
from tracer.compare.trial_bases import bases_of, has_list
from tracer.compare.trial_blame import Trial, ends_with_stock, reads_beyond, still_wrong, writing_beyond
from tracer.compare.trial_database import REFUSED, SAMPLES, samples_of_torch
from tracer.compare.trial_samples import ERRORS, VALUES, Sample, tensors_in, variants
from tracer.compare.trial_stories import FAR, LENGTHS, ON_A_GPU, ONCE, WAYS, plain, widened
from tracer.compare.workload import precision, without_warnings

OfScript = Mapping[str, Sequence[Sample]]
_MOST_WITH_WAYS = 4


@dataclass(frozen=True)
class TrialResult:
    """`wrong`: in a phrase, or "". `refused`: stock raises. `ran`: the override computed a call."""

    kind: str
    name: str
    wrong: str = ""
    refused: bool = False
    ran: bool = False


@dataclass(frozen=True)
class Trials:
    """What was tried, and what was not, by kind and with the reason.

    `cut`: trials for which there was no time. `lost`: the last one, after which the GPU answered no more.
    """

    results: tuple[TrialResult, ...] = ()
    not_tried: tuple[tuple[str, str], ...] = ()
    cut: int = 0
    lost: str = ""

    @property
    def wrong(self) -> list[TrialResult]:
        return [result for result in self.results if result.wrong]

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(result.kind for result in self.results))


class Missing(dict[str, str]):
    """By kind why it was not tried. `cut` and `lost`: as in Trials."""

    cut = 0
    lost = ""

    def add(self, kind: str, why: str) -> None:
        self[kind] = f"{self[kind]}; {why}" if kind in self else why


QUICK_SECONDS, SECONDS = 30.0, 120.0
"""Of processor time, for all trials of a comparison: other work on the machine takes no trial away"""
_MOST_BY_THE_CLOCK = 5
"""Times as long by the clock at most: a call may wait and use no processor"""
_LONGEST = 8.0
"""Seconds of one trial with stock"""
_MOST_CHECKED = 6
"""Wrong trials of an operator: of each, whether stock is the reason"""
_CRASHES = "calls that end PyTorch's own process, or in which it writes behind its tensors"
_DEADLY = "calls that PyTorch refuses or does not survive on the CPU: its code for a GPU may end the process"
_OUTSIDE = "calls whose values stock refuses in its kernel, which ends CUDA"
_LOST = "after it the GPU answers this process no more"
_SLOW = f"calls that take stock more than {_LONGEST:.0f} seconds"


def run_trials(switch: Switch, *, quick: bool = False, of_script: OfScript | None = None) -> Trials:
    """Trials of each operator of the overrides. `quick`: fewer, and less time.

    of_script   by operator the calls that a script makes: others are not tried then
    """
    missing = Missing()
    if switch.device != CUDA:
        missing.update(dict.fromkeys(ON_A_GPU, "the override is for the CPU"))
    else:
        missing[FAR] = "there PyTorch's own libraries fail, which ends CUDA"
    if quick:
        missing.update(dict.fromkeys((SAMPLES, REFUSED, *ONCE), "--quick"))
    results = [*made_trials(switch, missing, quick=quick, of_script=of_script)]
    return Trials(tuple(results), tuple(missing.items()), missing.cut, missing.lost)


def made_trials(
    switch: Switch, missing: Missing, *, quick: bool = False, of_script: OfScript | None = None
) -> Generator[TrialResult, None, None]:
    """Result by result; what cannot be tried gets its reason in `missing`."""
    seconds = QUICK_SECONDS if quick else SECONDS
    operators = operators_of(switch)
    if of_script is not None:
        operators = [name for name in operators if name in of_script]
    left = Left(seconds, seconds * _MOST_BY_THE_CLOCK)
    with (
        without_warnings(),
        within_bounds(switch.device),
        precision(Case("mm", "mm", (), mode=STRICT)),
    ):
        for number, operator in enumerate(operators):
            if missing.lost:
                return
            known = (of_script or {}).get(operator, ())
            trials = trials_of(operator, switch.device, missing, quick=quick, of_script=known)
            yield from _made_of(
                operator, trials, switch, left.shared(len(operators) - number), missing, f"{seconds:g}"
            )


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


def _made_of(
    operator: str, trials: list[Trial], switch: Switch, left: Left, missing: Missing, seconds: str
) -> Generator[TrialResult, None, None]:
    short = operator.partition("::")[2]
    on_gpu = switch.device == CUDA
    outside: dict[str, None] = {}
    crashed: dict[int, str] = {}
    slow: dict[str, None] = {}
    ends: dict[str, None] = {}
    checked, clean = 0, 0
    asked = [0]  # in each fork anew
    with_override = mmap.mmap(-1, 1)  # what a fork writes there is seen here
    known_to_end = _deadly(operator, {trial.sample.name for trial in trials}) if on_gpu else set()
    names = [f"{short}, {trial.sample.name or 'usual'}" for trial in trials]

    def make(place: int, flag: Any = with_override) -> _Made:
        begin = time.process_time()
        flag[0] = 0
        if on_gpu and trials[place].sample.name in known_to_end:
            ends[names[place]] = None
            return None, 0.0, False
        if on_gpu and _would_be_lost(trials[place]):
            outside[names[place]] = None
            return None, time.process_time() - begin, False
        found, is_slow = _tried(trials[place], switch, names[place], flag, patient=asked[0] < _MOST_CHECKED)
        asked[0] += bool(found and found.wrong)
        return found, time.process_time() - begin, is_slow

    def is_wanted(place: int) -> bool:
        return id(trials[place].sample) not in crashed

    def blamed(place: int, *, ended: bool) -> Trial | None:
        """The trial in which stock, not the override, is the reason."""
        nonlocal clean
        before = [trials[n] for n in range(place) if is_wanted(n)]
        if ended and ends_with_stock([*before, trials[place]], switch.device):
            return trials[place]
        found = writing_beyond([trials[place]])
        if found is None and not is_wrong_alone(place):
            found = writing_beyond([trials[n] for n in reversed(range(clean, place)) if is_wanted(n)])
            clean = clean if found else place
        return found

    def is_wrong_alone(place: int) -> bool:
        """In a process in which stock has made no other trial."""
        flag = mmap.mmap(-1, 1)
        with closing(in_forks(1, lambda _: make(place, flag))) as alone:
            ((_, found),) = alone
        if isinstance(found, Done):
            return bool(found.result[0] and found.result[0].wrong)
        return isinstance(found, Ended) and bool(flag[0])

    fork = not on_gpu and may_differentiate()
    with closing(_in_forks_or_here(len(trials), make, is_wanted, fork=fork)) as made:
        for place, found in made:
            trial = trials[place]
            ended = isinstance(found, Ended)
            wrong = ended or bool(found[0] and found[0].wrong)  # type: ignore[index]
            if ended and not with_override[0]:
                blame: Trial | None = trial
            else:
                blame = blamed(place, ended=ended) if wrong and fork and checked < _MOST_CHECKED else None
            checked += wrong and blame is None
            if blame is not None:
                crashed[id(blame.sample)] = blame.sample.name or "usual"
            elif isinstance(found, Ended):
                yield TrialResult(trial.kind, names[place], said_of(found), ran=True)
            else:
                result, used, is_slow = found
                left.use(used)
                if is_slow:
                    slow[names[place]] = None
                lost = on_gpu and is_lost()
                if lost and with_override[0] and not (result and result.wrong):
                    result = TrialResult(trial.kind, names[place], _LOST, ran=True)
                if result is not None:
                    yield result
                if lost:
                    missing.lost = names[place]
                    break
            if left.is_none and place + 1 < len(trials):
                rest = trials[place + 1 :]
                missing.cut += len(rest)
                for kind, number in Counter(trial.kind for trial in rest).items():
                    missing.add(kind, f"{number:,} of {short}: all would take more than {seconds} seconds")
                break
    titles = {_CRASHES: crashed.values(), _DEADLY: ends, _OUTSIDE: outside, _SLOW: slow}
    for title, calls in titles.items():
        if calls:
            missing.add(title, "; ".join(calls))


_Made = tuple["TrialResult | None", float, bool]


def _in_forks_or_here(
    count: int, make: Callable[[int], _Made], wanted: Callable[[int], bool], *, fork: bool
) -> Generator[tuple[int, _Made | Ended], None, None]:
    """Where a fork waits for what it does not have, as on a GPU, the rest is made in this process."""
    begin = 0
    if fork:
        with closing(in_forks(count, make, wanted)) as done:
            for place, found in done:
                if isinstance(found, Waits):
                    break
                yield place, found.result if isinstance(found, Done) else found
                begin = place + 1
            else:
                return
    for place in filter(wanted, range(begin, count)):
        yield place, make(place)


def operators_of(switch: Switch) -> list[str]:
    """An RNN of any kind is tried as gru, which calls it."""
    names = (operator for operator, _ in switch.operators)
    return list(
        dict.fromkeys("aten::gru.input" if "gru" in name or "rnn" in name else name for name in names)
    )


def trials_of(
    operator: str,
    device: str,
    missing: Missing,
    *,
    quick: bool = False,
    of_script: Sequence[Sample] = (),
) -> list[Trial]:
    """All trials of an operator, one of each kind in turn."""
    of_torch = [] if quick and (of_script or has_list(operator)) else _of_torch(operator, device, missing)
    usual, others = bases_of(operator, device, of_script, of_torch)
    varied = _one_of_each([_made(base) for base in usual])
    plain = [*usual, *of_script, *others, *varied, *([] if quick else of_torch)]
    trials = [Trial(sample.kind, sample) for sample in plain]
    chosen = [*usual[:2], *_representatives(varied)][:_MOST_WITH_WAYS]
    for kind, tell in (WAYS | (ON_A_GPU if device == CUDA else {})).items():
        if (kind, device) != (FAR, CUDA):
            trials += [Trial(kind, sample, tell) for sample in chosen]
    if not quick:
        trials += [Trial(kind, sample, tell) for kind, tell in ONCE.items() for sample in usual[:1]]
    return _in_turns(trials)


def _of_torch(operator: str, device: str, missing: Missing) -> list[Sample]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return samples_of_torch(operator, device)
    except Exception as error:
        missing[SAMPLES] = f"torch's operator database does not load: {error}"
        return []


def _one_of_each(lists: Sequence[Sequence[Sample]]) -> list[Sample]:
    """The first of each list, then the second of each."""
    return [one for one in chain.from_iterable(zip_longest(*lists)) if one is not None]


def _in_turns(trials: Sequence[Trial]) -> list[Trial]:
    """One of each kind, then the second of each...: time may not be enough for all."""
    seen: dict[str, int] = defaultdict(int)
    places = []
    for trial in trials:
        places.append(seen[trial.kind])
        seen[trial.kind] += 1
    return [trial for _, trial in sorted(zip(places, trials, strict=True), key=lambda pair: pair[0])]


def _made(base: Sample) -> list[Sample]:
    try:
        own = [*variants(base), *other_arguments(base)]
        return [*own, *arguments_beside_others(base), *arguments_together(base)]
    except Exception:  # its operands cannot be made: stock's own trial of it says so
        return []


def _representatives(varied: Sequence[Sample]) -> list[Sample]:
    wanted = ("transposed", "float64", "parts of one storage", "int64")
    found = ([one for one in varied if one.name.rpartition(", ")[2] == name] for name in wanted)
    return [samples[0] for samples in found if samples]


def _tried(
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


def _deadly(operator: str, wanted: set[str]) -> set[str]:
    """The names, of these, of samples with which stock may end the process: calls on a GPU are not forked."""
    plainly = (trial for trial in trials_of(operator, "cpu", Missing()) if trial.tell is plain)
    return deadly([trial.sample for trial in plainly if trial.sample.name in wanted])


def _refuses(stock: Story) -> bool:
    """It returns nothing: of many calls in one trial some may be refused."""
    seen = {type(one) for one in stock.values()}
    return Raised in seen and Form not in seen


def _is_mixed(sample: Sample) -> bool:
    return len({tensor.device.type for tensor in tensors_in(sample.make())}) > 1
