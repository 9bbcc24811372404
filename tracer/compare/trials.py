"""Whether an override does all that stock does: calls of many kinds, with stock and with the override."""

from __future__ import annotations

import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tracer.compare.cases import CUDA, STRICT, Case
from tracer.compare.global_state import put_back, within_bounds
from tracer.compare.outcomes import Raised, Story, difference
from tracer.compare.switch import Switch
from tracer.compare.trial_arguments import other_arguments
from tracer.compare.trial_bases import bases_of, has_list
from tracer.compare.trial_crashes import ending
from tracer.compare.trial_database import REFUSED, SAMPLES, samples_of_torch
from tracer.compare.trial_samples import ERRORS, Sample, tensors_in, variants
from tracer.compare.trial_stories import ON_A_GPU, ONCE, WAYS, Tell, plain
from tracer.compare.workload import precision, without_warnings

OfScript = Mapping[str, Sequence[Sample]]
_MOST_WITH_WAYS = 4


@dataclass(frozen=True)
class Trial:
    """A call, and what is done with it."""

    kind: str
    sample: Sample
    tell: Tell = plain


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
    """What was tried, and what was not, by kind and with the reason."""

    results: tuple[TrialResult, ...] = ()
    not_tried: tuple[tuple[str, str], ...] = ()

    @property
    def wrong(self) -> list[TrialResult]:
        return [result for result in self.results if result.wrong]

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(result.kind for result in self.results))


QUICK_SECONDS, SECONDS = 30.0, 120.0
"""For all trials of a comparison"""
_LONGEST = 8.0
"""Seconds of one trial with stock"""
_REST = "the rest of all kinds"
_CRASHES = "calls that end PyTorch's own process"


def run_trials(switch: Switch, *, quick: bool = False, of_script: OfScript | None = None) -> Trials:
    """Trials of each operator of the overrides. `quick`: fewer, and less time.

    of_script   by operator the calls that a script makes: others are not tried then
    """
    missing: dict[str, str] = {}
    if switch.device != CUDA:
        missing = dict.fromkeys(ON_A_GPU, "the override is for the CPU")
    if quick:
        missing |= dict.fromkeys((SAMPLES, REFUSED, *ONCE), "--quick")
    results = [*made_trials(switch, missing, quick=quick, of_script=of_script)]
    return Trials(tuple(results), tuple(missing.items()))


def made_trials(
    switch: Switch, missing: dict[str, str], *, quick: bool = False, of_script: OfScript | None = None
) -> Iterator[TrialResult]:
    """Result by result; what cannot be tried gets its reason in `missing`."""
    seconds = QUICK_SECONDS if quick else SECONDS
    operators = operators_of(switch)
    if of_script is not None:
        operators = [name for name in operators if name in of_script]
    end = time.monotonic() + seconds
    with (
        without_warnings(),
        within_bounds(switch.device),
        precision(Case("mm", "mm", (), mode=STRICT)),
    ):
        for number, operator in enumerate(operators):
            known = (of_script or {}).get(operator, ())
            trials = trials_of(operator, switch.device, missing, quick=quick, of_script=known)
            if switch.device != CUDA:
                trials = _without_crashes(trials, missing)
            now = time.monotonic()
            end_of_this = now + (end - now) / (len(operators) - number)
            for trial in trials:
                if time.monotonic() > end_of_this:
                    missing[_REST] = f"they would take more than {seconds:.0f} seconds"
                    break
                short = operator.partition("::")[2]
                found = _tried(trial, switch, f"{short}, {trial.sample.name or 'usual'}")
                if found is not None:
                    yield found


def _without_crashes(trials: Sequence[Trial], missing: dict[str, str]) -> list[Trial]:
    samples = list({id(trial.sample): trial.sample for trial in trials}.values())
    ends = {id(samples[place]): samples[place].name or "usual" for place in ending(samples)}
    if ends:
        missing[_CRASHES] = "; ".join(ends.values())
    return [trial for trial in trials if id(trial.sample) not in ends]


def operators_of(switch: Switch) -> list[str]:
    """An RNN of any kind is tried as gru, which calls it."""
    names = (operator for operator, _ in switch.operators)
    return list(
        dict.fromkeys("aten::gru.input" if "gru" in name or "rnn" in name else name for name in names)
    )


def trials_of(
    operator: str,
    device: str,
    missing: dict[str, str],
    *,
    quick: bool = False,
    of_script: Sequence[Sample] = (),
) -> list[Trial]:
    """All trials of an operator, one of each kind in turn."""
    of_torch = [] if quick and (of_script or has_list(operator)) else _of_torch(operator, device, missing)
    usual, others = bases_of(operator, device, of_script, of_torch)
    varied = [variant for base in usual for variant in _made(base)]
    plain = [*usual, *of_script, *others, *varied, *([] if quick else of_torch)]
    trials = [Trial(sample.kind, sample) for sample in plain]
    chosen = [*usual[:2], *_representatives(varied)][:_MOST_WITH_WAYS]
    for kind, tell in (WAYS | (ON_A_GPU if device == CUDA else {})).items():
        trials += [Trial(kind, sample, tell) for sample in chosen]
    if not quick:
        trials += [Trial(kind, sample, tell) for kind, tell in ONCE.items() for sample in usual[:1]]
    return _in_turns(trials)


def _of_torch(operator: str, device: str, missing: dict[str, str]) -> list[Sample]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return samples_of_torch(operator, device)
    except Exception as error:
        missing[SAMPLES] = f"torch's operator database does not load: {error}"
        return []


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
        return [*variants(base), *other_arguments(base)]
    except Exception:  # its operands cannot be made: stock's own trial of it says so
        return []


def _representatives(varied: Sequence[Sample]) -> list[Sample]:
    wanted = ("transposed", "float64", "parts of one storage", "int64")
    found = ([one for one in varied if one.name.rpartition(", ")[2] == name] for name in wanted)
    return [samples[0] for samples in found if samples]


def _tried(trial: Trial, switch: Switch, name: str) -> TrialResult | None:
    """None: the operands of the trial cannot be made, or it takes too long."""
    with put_back(switch.device), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            begin = time.monotonic()
            stock = trial.tell(trial.sample, switch.device, 1)
            if time.monotonic() - begin > _LONGEST:
                return None
            if trial.kind == ERRORS and not _refuses(stock) and _is_mixed(trial.sample):
                return None  # stock does not look at the device, and reads anything
            again = trial.tell(trial.sample, switch.device, 2)
        except Exception:
            return None
        with switch.on():
            before = switch.counts()
            try:
                wrong = difference(stock, again, trial.tell(trial.sample, switch.device, 1))
            except (Exception, SystemExit) as error:
                wrong = f"it raised {Raised.of(error)}"
            ran, _ = switch.counts().since(before)
    return TrialResult(trial.kind, name, wrong, _refuses(stock), bool(ran))


def _refuses(stock: Story) -> bool:
    return any(isinstance(seen, Raised) for seen in stock.values())


def _is_mixed(sample: Sample) -> bool:
    return len({tensor.device.type for tensor in tensors_in(sample.make())}) > 1
