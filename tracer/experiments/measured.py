"""Measures what the rows of advice gain."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from tracer.advice.experiments import Recorded, WorkerBatch
from tracer.advice.finding import BOUNDED, DROPPED, LEAST, MEASURED, UNDECIDED, Advice, Finding, Gain
from tracer.advice.rules import data_loader
from tracer.base import interpreter
from tracer.base.progress import done
from tracer.experiments import SECONDS
from tracer.replay.run import BUSY_ABOVE, BUSY_BELOW

if TYPE_CHECKING:
    from tracer.advice.steady import Steady
    from tracer.trace import Trace

ALL_SECONDS = 120
LEAST_RATIO = 1.02
SAME_FROM, SAME_TO = 0.5, 2.0
"""An experiment is the recorded work if that takes half to twice as long in it: caches are warmer there"""
_HELPER = "from tracer.experiments.run import main; main()"


def measured(trace: Trace, steady: Steady, rows: list[Advice]) -> list[Advice]:
    """The same rows, with the gains of those that have an experiment; the costliest are measured first."""
    found = list(rows)
    tried = [place for place, row in enumerate(rows) if _worth(row, steady.step_ns)]
    tried.sort(key=lambda place: -rows[place].gain.ns)
    until = time.monotonic() + ALL_SECONDS
    for number, place in enumerate(tried):
        finding = rows[place].finding
        told = _told(trace, steady, finding.experiment, until - time.monotonic())
        found[place] = replace(rows[place], gain=gain_of(finding, told, steady.step_ns))
        done(number + 1, len(tried))
    return found


def _worth(row: Advice, step_ns: float) -> bool:
    has_one = row.finding.experiment is not None and not row.gain.why_not
    return has_one and row.gain.ns >= LEAST * step_ns


def _told(trace: Trace, steady: Steady, experiment: Any, left: float) -> dict[str, Any]:
    """What the process of an experiment says: see run.main."""
    if left <= 0:
        return {"error": "the two minutes were over"}
    wanted = {
        "trace": trace.path,
        "threads": steady.settings.get("threads"),
        "kind": type(experiment).__name__,
        "experiment": asdict(experiment),
    }
    command = interpreter.helper(_HELPER)
    limit = min(SECONDS, left)
    try:
        ran = subprocess.run(
            command, input=json.dumps(wanted), capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"it took longer than {limit:.0f} s"}
    try:
        told = json.loads(ran.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return {"error": f"its process ended with status {ran.returncode}"}
    return told if isinstance(told, dict) else {"error": "its process said nothing"}


def gain_of(finding: Finding, told: dict[str, Any], step_ns: float) -> Gain:
    """What the ratios of an experiment, [value, low, high], mean for a finding.

    ratio   the time as it was over the time with the change
    again   the time as it was over that of the same once more
    took    what the work takes of a step, as the experiment runs it as it was
    """
    bound = finding.most_ns
    if "error" in told:
        return Gain(BOUNDED, bound, why_not=str(told["error"]))
    if told["again"][1] < BUSY_BELOW or told["again"][2] > BUSY_ABOVE:
        return Gain(BOUNDED, bound, why_not="the machine is busy")
    if isinstance(finding.experiment, WorkerBatch):
        return _of_loader(finding, told, step_ns)
    recorded = _recorded_ns(finding)
    if not SAME_FROM * recorded <= told["took"] <= SAME_TO * recorded:
        both = f"{told['took'] / 1e6:.2g} ms here, {recorded / 1e6:.2g} ms in the recording"
        why = f"the same calls took {both}; if the machine was busy then, record again"
        return Gain(BOUNDED, bound, why_not=why)
    value, low, high = told["ratio"]
    ratios = {"ratio": value, "ratio_low": low, "ratio_high": high}
    ns, least, most = (min(bound, finding.cost_ns * (1 - 1 / ratio)) for ratio in (value, low, high))
    if most < LEAST * step_ns:
        return Gain(DROPPED, 0.0, **ratios)
    if low <= max(LEAST_RATIO, told["again"][2]) or ns < LEAST * step_ns:
        return Gain(UNDECIDED, most, least, most, **ratios)
    return Gain(MEASURED, ns, least, most, **ratios)


def _recorded_ns(finding: Finding) -> float:
    """What the work that an experiment runs took of a recorded step."""
    experiment = finding.experiment
    return sum(experiment.ns) if isinstance(experiment, Recorded) else finding.cost_ns


def _of_loader(finding: Finding, told: dict[str, Any], step_ns: float) -> Gain:
    """The rest of what a batch costs is hidden only if a core is free."""
    batch, low, high = told["ns"]
    left, most = finding.cost_ns - batch, finding.cost_ns - low
    took = (
        f"a batch from a worker took {batch / 1e6:.1f} ms (95 %: {low / 1e6:.1f} to {high / 1e6:.1f}), "
        f"the loader's {finding.cost_ns / 1e6:.1f} ms"
    )
    worth = data_loader.LEAST * step_ns
    if most < worth:
        return Gain(DROPPED, 0.0, note=took)
    if finding.cost_ns - high < worth:
        return Gain(UNDECIDED, min(most, finding.most_ns), min(finding.cost_ns - high, 0.0), most, note=took)
    return Gain(BOUNDED, min(left, finding.most_ns), note=f"{took}; whether a core is free is not known")
