"""Steps of processes that said of none that it ended."""

from __future__ import annotations

from collections.abc import Set

import numpy as np
from numpy.typing import NDArray

from tracer.trace.bytes.definitions import Definitions
from tracer.trace.tables.ranges import OWN, Columns
from tracer.trace.tables.steps import StepEnds

MODULE_CALL = "module:"
"""What the names of tracer's own ranges around calls of outermost modules begin with, after OWN"""
_OPTIMIZER_STEP = "Optimizer.step#"
"""What the names of torch's ranges around a step of an optimizer begin with"""
_FEWEST_CALLS = 2

Rows = NDArray[np.int64]


def unmarked_steps(
    ranges: Columns, names: list[str], definitions: Definitions, marked: Set[int]
) -> dict[int, StepEnds]:
    """The steps of the processes that are not among those that `marked` some.

    `ranges` are those of all processes, with tracer's own. Of a trace from before steps were counted, the
    range of the optimizer that stepped first tells. Where nothing steps an optimizer, a step is a call of the
    outermost module; but not in a forked process, as the workers of a data loader are.
    """
    optimizers = _named(ranges, names, _OPTIMIZER_STEP)
    found: dict[int, StepEnds] = {}
    for process in set(ranges["process"][optimizers].tolist()) - marked:
        if not _counted_steps(definitions, process):
            found[process] = _of_optimizer(ranges, optimizers & (ranges["process"] == process))
    if marked or optimizers.any():
        return found
    calls = _named(ranges, names, OWN + MODULE_CALL)
    for process in set(ranges["process"][calls].tolist()):
        known = definitions.processes.get(process)
        if known is None or known.how != "forked":
            found[process] = _of_modules(ranges, names, calls & (ranges["process"] == process))
    return {process: ends for process, ends in found.items() if len(ends.times)}


def _named(ranges: Columns, names: list[str], begin: str) -> NDArray[np.bool_]:
    flags = np.array([name.startswith(begin) for name in names], np.bool_)
    named: NDArray[np.bool_] = np.append(flags, False)[ranges["name"]]
    return named


def _counted_steps(definitions: Definitions, process: int) -> bool:
    certificate = definitions.documents.get(process, {}).get("certificate")
    return isinstance(certificate, dict) and isinstance(certificate.get("steps"), dict)


def _of_optimizer(ranges: Columns, chosen: NDArray[np.bool_]) -> StepEnds:
    """They end with the ranges that have the name of the one that ended first."""
    rows = np.flatnonzero(chosen & ~ranges["open"])
    name, ends = ranges["name"][rows], ranges["end"][rows]
    return StepEnds.of_all(ends[name == name[np.argmin(ends)]] if len(ends) else ends)


def _of_modules(ranges: Columns, names: list[str], chosen: NDArray[np.bool_]) -> StepEnds:
    """Each from the begin of a call to the next one, the last only to the end of its call.

    Of several outermost modules (a loss is one) the one whose calls take most time is meant.
    """
    rows = np.flatnonzero(chosen)
    rows = rows[np.argsort(ranges["start"][rows], kind="stable")]
    name, taken = ranges["name"][rows], (ranges["end"] - ranges["start"])[rows]
    module = int(np.argmax(np.bincount(name, weights=taken)))
    rows = rows[name == module]
    starts = ranges["start"][rows]
    if len(rows) < _FEWEST_CALLS:
        return StepEnds.of_all(starts[:0])
    ends = starts[1:] if ranges["open"][rows[-1]] else np.append(starts[1:], ranges["end"][rows].max())
    path = names[module].removeprefix(OWN + MODULE_CALL)
    return StepEnds(ends, np.arange(1, len(ends) + 1), int(starts[0]), path)
