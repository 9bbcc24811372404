"""Whether an override does all that stock does: calls of many kinds, with stock and with the override."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracer.compare.cases import CUDA, STRICT, Case
from tracer.compare.global_state import put_back
from tracer.compare.outcomes import Raised, difference
from tracer.compare.switch import Switch
from tracer.compare.trial_database import samples_of_torch
from tracer.compare.trial_samples import USUAL, Sample, bases_of, tensors_in, variants
from tracer.compare.trial_stories import ON_A_GPU, ONCE, WAYS, Tell, plain
from tracer.compare.workload import precision, without_warnings

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


def run_trials(switch: Switch, *, quick: bool = False) -> Trials:
    """Trials of each operator of the overrides. `quick`: without torch's own samples and repeated calls."""
    results: list[TrialResult] = []
    missing: dict[str, str] = {}
    if switch.device != CUDA:
        missing = dict.fromkeys(ON_A_GPU, "the override is for the CPU")
    with without_warnings(), precision(Case("mm", "mm", (), mode=STRICT)):
        for operator in operators_of(switch):
            short = operator.partition("::")[2]
            for trial in trials_of(operator, switch.device, missing, quick=quick):
                found = _tried(trial, switch, f"{short}, {trial.sample.name or 'usual'}")
                if found is not None:
                    results.append(found)
    if quick:
        missing |= dict.fromkeys(("samples of torch", *ONCE), "--quick")
    return Trials(tuple(results), tuple(missing.items()))


def operators_of(switch: Switch) -> list[str]:
    """Without overloads; an RNN of any kind is tried as gru, which calls it."""
    names = dict.fromkeys(operator.partition(".")[0] for operator, _ in switch.operators)
    return list(dict.fromkeys("aten::gru" if "gru" in name or "rnn" in name else name for name in names))


def trials_of(operator: str, device: str, missing: dict[str, str], *, quick: bool = False) -> Iterator[Trial]:
    """All trials of an operator; kinds that cannot be tried get their reason in `missing`."""
    bases = bases_of(operator, device)
    usual = [base for base in bases if base.kind == USUAL]
    varied = [variant for base in usual for variant in _made(base)]
    for sample in (*bases, *varied):
        yield Trial(sample.kind, sample)
    chosen = [*usual, *_representatives(varied)][:_MOST_WITH_WAYS]
    for kind, tell in (WAYS | (ON_A_GPU if device == CUDA else {})).items():
        for sample in chosen:
            yield Trial(kind, sample, tell)
    if quick:
        return
    for kind, tell in ONCE.items():
        for sample in usual[:1]:
            yield Trial(kind, sample, tell)
    try:
        for sample in samples_of_torch(operator, device):
            yield Trial(sample.kind, sample)
    except Exception as error:
        missing["samples of torch"] = f"torch's operator database does not load: {error}"


def _made(base: Sample) -> list[Sample]:
    try:
        return list(variants(base))
    except Exception:  # its operands cannot be made: stock's own trial of it says so
        return []


def _representatives(varied: Sequence[Sample]) -> list[Sample]:
    wanted = ("transposed", "float64", "parts of one storage", "int64")
    return [sample for name in wanted for sample in varied if sample.name == name]


def _tried(trial: Trial, switch: Switch, name: str) -> TrialResult | None:
    """None: the operands of the trial cannot be made."""
    with put_back(switch.device), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tensors_in(trial.sample.make())
            stock, again = (trial.tell(trial.sample, switch.device, then) for then in (1, 2))
        except Exception:
            return None
        with switch.on():
            before = switch.counts()
            try:
                wrong = difference(stock, again, trial.tell(trial.sample, switch.device, 1))
            except (Exception, SystemExit) as error:
                wrong = f"it raised {Raised.of(error)}"
            ran, _ = switch.counts().since(before)
    refused = any(isinstance(seen, Raised) for seen in stock.values())
    return TrialResult(trial.kind, name, wrong, refused, bool(ran))
