"""Measures where the built-in overrides are faster on this GPU, for mode `auto`: `tracer compare --tune`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tracer.base.progress import done
from tracer.compare.measurement import Settings, compare_one
from tracer.compare.model import CaseResult, Timing
from tracer.compare.switch import Switch
from tracer.compare.tuning_cases import TuningCase
from tracer.overrides.measured import FIELDS, Key, Measurements

TUNING = Settings(pairs=25, seconds=0.5, graph_backward=True, clocks_ns=50_000_000)
"""Half a second of calls and half a second of graphs a case: about two seconds a case"""
_CASE = 38
_HEAD = f"{'GPU us, caches cold':<{_CASE}} {'stock':>8} {'override':>8} {'ratio':>5} {'wall':>5}  auto\n"


@dataclass(frozen=True)
class Tried:
    """A case with what was measured of each of its calls."""

    case: TuningCase
    results: list[CaseResult]

    @property
    def why_not(self) -> str:
        """Why `auto` leaves such calls to stock, in a word; "" if it uses the override.

        WRONG     a result is wrong, or a second run gives other bits
        GPU       its GPU time is longer than stock's
        wall      its wall time is not shorter with the whole 95 % interval
        raised, stock, graph    not measured: a call raised, or the override handed it over, or no CUDA
                                graph could be captured
        """
        for result in self.results:
            if result.failed:
                return "raised"
            if not result.passed or not result.repeats:
                return "WRONG"
            if result.handed_over or not result.ran:
                return "stock"
        for result in self.results:
            gpu = gpu_time(result)
            if gpu is None:
                return "graph"
            if not gpu.ratio.value >= 1:
                return "GPU"
        if not all(result.wall and result.wall.ratio.low > 1 for result in self.results):
            return "wall"
        return ""

    @property
    def is_decided(self) -> bool:
        """Whether the measurement says anything; else the file has no row of the case."""
        return self.why_not not in ("raised", "stock", "graph")

    @property
    def row(self) -> dict[str, Any]:
        """The case's row in the file of measurements; the ratios are for people."""
        sizes = {name: _as_json(self.case.sizes[name]) for name in FIELDS[self.case.family]}
        return {
            "case": self.case.name,
            "faster": not self.why_not,
            **sizes,
            "gpu_ratios": [_ratio(gpu_time(result)) for result in self.results],
            "wall_ratios": [_ratio(result.wall) for result in self.results],
        }


def gpu_time(result: CaseResult) -> Timing | None:
    """The GPU time with inputs that the L2 cache does not hold, else with any."""
    return result.cold or result.gpu


def tune(cases: Sequence[TuningCase], settings: Settings = TUNING) -> list[Tried]:
    """Measures the cases. Raises OverrideError or CannotCompareError if the overrides cannot run here."""
    switches = {family: Switch([family]) for family in dict.fromkeys(case.family for case in cases)}
    tried = []
    for number, case in enumerate(cases):
        done(number, len(cases))
        tried.append(measured(case, switches[case.family], settings))
    done(len(cases), len(cases))
    return tried


def measured(case: TuningCase, switch: Switch, settings: Settings = TUNING) -> Tried:
    results = [compare_one(each, switch, settings) for each in case.cases]
    if any(result.failed for result in results):
        _release()
    return Tried(case, results)


def measurements(key: Key, tried: Sequence[Tried]) -> Measurements:
    """As the file has them."""
    found = Measurements(key)
    for each in tried:
        rows = found.families.setdefault(each.case.family, [])
        if each.is_decided:
            rows.append(each.row)
    return found


def table(tried: Sequence[Tried]) -> str:
    """One line for each call, within 80 columns."""
    lines = []
    for each in tried:
        verdict = f"no: {each.why_not}" if each.why_not else "yes"
        for case, result in zip(each.case.cases, each.results, strict=True):
            name = each.case.name + (" +bwd" if case.backward else "")
            if len(name) > _CASE:
                name = f"{name[: _CASE - 3]}..."
            gpu = gpu_time(result)
            times = [f"{of.median / 1e3:8.1f}" for of in (gpu.stock, gpu.override)] if gpu else [" " * 8] * 2
            ratios = [f"{of.ratio.value:5.2f}" if of else " " * 5 for of in (gpu, result.wall)]
            lines.append(f"{name:<{_CASE}} {' '.join(times + ratios)}  {verdict}\n")
    return _HEAD + "".join(lines)


def wrong(tried: Sequence[Tried]) -> str:
    """In one line what is wrong; "" if nothing is."""
    bad = [each for each in tried if each.why_not == "WRONG"]
    if not bad:
        return ""
    first = next(result for result in bad[0].results if not result.passed or not result.repeats)
    why = first.broken or next((check.wrong for check in first.wrong), "two runs give other bits")
    return f"wrong in {len(bad)} of {len(tried)} cases, which stay with stock; {bad[0].case.name}: {why}"


def _ratio(timing: Timing | None) -> list[float] | None:
    """The ratio and its interval."""
    if timing is None:
        return None
    return [round(of, 4) for of in (timing.ratio.value, timing.ratio.low, timing.ratio.high)]


def _as_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _release() -> None:
    """What a case that ran out of memory left."""
    import gc

    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
