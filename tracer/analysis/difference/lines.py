"""What a step spends at each Python line, and what it takes if nothing interrupts it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from tracer.analysis.difference.change import Change
from tracer.analysis.difference.kinds import Kind
from tracer.analysis.difference.pace import Pace
from tracer.analysis.difference.times import (
    FASTER,
    MACHINE,
    SLOWER,
    Both,
    Named,
    Times,
    times_by_name,
    times_of,
)

Line = tuple[str, bool]
"""(name, backward)"""


def times_by_line(changes: Iterable[Change]) -> dict[Line, Both]:
    """All op calls of each line; a line that was edited is that of its name before."""
    kinds: tuple[dict[Line, list[Kind]], dict[Line, list[Kind]]] = (defaultdict(list), defaultdict(list))
    for change in changes:
        named = change.before or change.after
        for side, kind in zip(kinds, (change.before, change.after), strict=True):
            if kind is not None and named is not None:
                side[named.line, named.backward].append(kind)
    before, after = kinds
    return times_by_name((_host(before), _host(after)), (_gpu(before), _gpu(after)))


def _host(lines: Mapping[Line, list[Kind]]) -> Named[Line]:
    return _summed(lines, lambda kind: kind.step_ns)


def _gpu(lines: Mapping[Line, list[Kind]]) -> Named[Line]:
    return _summed(lines, lambda kind: kind.gpu_ns)


def _summed(lines: Mapping[Line, list[Kind]], of: Callable[[Kind], list[int]]) -> Named[Line]:
    """The sum over the kinds of a line, of each step of each run."""
    return {
        line: [
            [sum(step) for step in zip(*(of(kind.runs[run]) for kind in kinds), strict=True)]
            for run in range(len(kinds[0].runs))
        ]
        for line, kinds in lines.items()
    }


def usual_step(rows: Iterable[Both], runs: tuple[int, int]) -> Times:
    """The sum of the medians of lines, and of the time between them: interruptions are in no median.

    A step of 8 us, 1 us for a, 2 us for b and 5 us for another process, which interrupts either: 3 us.
    """
    found = list(rows)
    sides = [
        [[sum(row.times.runs[side][run] for row in found if row.times.runs[side])] for run in range(number)]
        for side, number in enumerate(runs)
    ]
    return times_of(sides[0], sides[1])


def shorter_side(rows: Iterable[Both]) -> float:
    """The sum of the medians on the side where it is less: a sleep on one side makes no line short."""
    times = [row.times for row in rows]
    return min(sum(one.before or 0 for one in times), sum(one.after or 0 for one in times))


def confirmed(step: Times, usual: Times, pace: Pace | None) -> Times:
    """A step became slower or faster only if its lines, or the time between them, did too."""
    if step.verdict not in (SLOWER, FASTER):
        return step
    if usual.ratio is not None:
        same = usual.judged(pace).verdict == step.verdict
    else:
        low, high = pace.limits if pace else (1.0, 1.0)
        same = (usual.factor or 1.0) > high if step.verdict == SLOWER else (usual.factor or 1.0) < low
    return step if same else replace(step, verdict=MACHINE)
