"""The runs of one side as one: their kinds of op calls together, their times apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from tracer.analysis.difference.alignment import aligned
from tracer.analysis.difference.kinds import Key, Kind, Side, merged
from tracer.analysis.source_lines import NO_LINE


def kinds_of_runs(runs: Sequence[Side]) -> dict[Key, Kind]:
    """The kinds of all runs; those of a single run as they are."""
    kinds = runs[0].kinds
    for number, run in enumerate(runs[1:], start=1):
        rows = [_with(pair, runs[:number], run) for pair in aligned(kinds, run.kinds)]
        kinds = {kind.key: kind for kind in rows}
    return kinds


def by_run(runs: Sequence[Side], of: Callable[[Side], dict[str, list[int]]]) -> dict[str, list[list[int]]]:
    """name -> the times of each step of each run: zeros where a run has no such name."""
    names = dict.fromkeys(name for run in runs for name in of(run))
    return {name: [of(run).get(name, [0] * run.steps) for run in runs] for name in names}


def share_a_line(one: Side, other: Side) -> bool:
    """Whether they may be runs of one script; so may runs whose Python lines are not known."""
    lines = [{(file, text) for file, text, *_ in side.kinds if text != NO_LINE} for side in (one, other)]
    if not all(lines) or lines[0] & lines[1]:
        return True
    return any(None not in pair for pair in aligned(one.kinds, other.kinds))


def _with(pair: tuple[Kind | None, Kind | None], before: Sequence[Side], run: Side) -> Kind:
    known, new = pair
    kind = known or new
    assert kind is not None
    parts = known.runs if known else [_absent(kind, side) for side in before]
    return _together([*parts, new or _absent(kind, run)])


def _absent(kind: Kind, side: Side) -> Kind:
    times = [0] * side.steps
    gpu = times if kind.gpu_ns else []
    return replace(kind, calls=0, chains=Counter(), inputs={}, step_ns=times, gpu_ns=gpu, of_runs=())


def _together(parts: Sequence[Kind]) -> Kind:
    there = [part for part in parts if part.calls]
    return replace(
        there[0],
        modules=frozenset().union(*(part.modules for part in there)),
        calls=sum(part.calls for part in there),
        chains=sum((part.chains for part in there), Counter()),
        inputs=merged([part.inputs for part in there]),
        step_ns=[ns for part in parts for ns in part.step_ns],
        gpu_ns=[ns for part in parts for ns in part.gpu_ns],
        of_runs=tuple(parts),
    )
