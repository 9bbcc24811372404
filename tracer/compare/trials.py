"""Whether an override does all that stock does: calls of many kinds, with stock and with the override."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from tracer.compare.cases import CUDA, STRICT, Case
from tracer.compare.global_state import within_bounds
from tracer.compare.lost_gpu import deadly
from tracer.compare.switch import Switch
from tracer.compare.trial_arguments import (
    arguments_beside_others,
    arguments_together,
    other_arguments,
)
from tracer.compare.trial_bases import bases_of, has_list
from tracer.compare.trial_blame import Trial
from tracer.compare.trial_database import REFUSED, SAMPLES, samples_of_torch
from tracer.compare.trial_runs import Left, Missing, TrialResult, TrialRuns
from tracer.compare.trial_samples import Sample, variants
from tracer.compare.trial_stories import FAR, ON_A_GPU, ONCE, WAYS, plain
from tracer.compare.workload import precision, without_warnings

OfScript = Mapping[str, Sequence[Sample]]
_MOST_WITH_WAYS = 4


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


QUICK_SECONDS, SECONDS = 30.0, 120.0
"""Of processor time, for all trials of a comparison: other work on the machine takes no trial away"""
_MOST_BY_THE_CLOCK = 5
"""Times as long by the clock at most: a call may wait and use no processor"""


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
            names = {trial.sample.name for trial in trials}
            runs = TrialRuns(operator, trials, switch, _deadly(operator, names, switch.device))
            yield from runs.results(left.shared(len(operators) - number), missing, f"{seconds:g}")


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


def _deadly(operator: str, wanted: set[str], device: str) -> set[str]:
    """The names, of these, of samples with which stock may end the process: calls on a GPU are not forked."""
    if device != CUDA:
        return set()
    plainly = (trial for trial in trials_of(operator, "cpu", Missing()) if trial.tell is plain)
    return deadly([trial.sample for trial in plainly if trial.sample.name in wanted])
