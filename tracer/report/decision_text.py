"""What `tracer diff` decided, and by what rule, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tracer.analysis.difference.times import FASTER, MACHINE, SLOWER, spread
from tracer.report.text import count, duration

if TYPE_CHECKING:
    from tracer.analysis.difference import Difference, Pace, Times

OUTSIDE = "outside ops"
SEVERAL = "tracer diff --before A B --after C D"
_MOST_NAMED = 3
_NEW, _VANISHED = "new", "vanished"
_LEAST_SHARE = 0.01
"""Of a step: smaller changes are in the table only"""


def decision(found: Difference) -> list[str]:
    """Whether it is the machine, the rule, and the lines that changed by it."""
    return [*_machine(found), _rule(found), *_beyond(found)]


def fail_over_reason(found: Difference, failed: bool) -> str:
    """By what `--fail-over` decides if one side has a single run. Raises ValueError: it cannot."""
    if found.step.ratio is None:
        raise ValueError(f"two runs a side, or three steps in each trace: {SEVERAL}")
    if found.pace is None:
        raise ValueError(
            f"two runs a side here, since too few unchanged lines show what the machine did: {SEVERAL}"
        )
    lines = f"{count(found.pace.lines, 'unchanged line')} took {_middle(found.pace)} as long"
    step = f"a step took {found.step.ratio.value:.2f} x"
    if failed:
        return f"--fail-over decides with one run a side: {step}, and {lines}, so it is not the machine"
    return f"--fail-over with one run a side: {step}, and {lines}: not slower by more than that and PERCENT"


def _machine(found: Difference) -> Iterator[str]:
    pace = found.pace
    settings = " or a setting above" if found.settings or found.facts else ""
    if pace is not None and pace.uniform:
        which = "this run was" if found.runs[1] == 1 else "the runs after were"
        factor, how = (pace.value, SLOWER) if pace.value > 1 else (1 / pace.value, FASTER)
        yield (
            f"{which} {factor:.1f} x {how} everywhere: {count(pace.lines, 'unchanged line')} took "
            f"{_middle(pace)} as long, {_blamed(found, settings)}"
        )
    elif found.step.verdict == MACHINE and found.usual is not None and found.usual.factor:
        yield (
            f"the medians of all lines and of the time between them add up to {found.usual.factor:.2f} x: "
            f"it is the machine that interrupted steps{settings}{_or_lines(found)}"
        )


def _or_lines(found: Difference) -> str:
    return ", or the lines that are new or gone" if found.structural else ", and no line of yours"


def _blamed(found: Difference, settings: str) -> str:
    if found.structural:
        return f"so that much is the machine{settings}, or what the changes do to all lines"
    if found.step.verdict in (SLOWER, FASTER):
        return f"so that much is the machine{settings}"
    return f"so that is the machine{settings}, and no line of yours"


def _rule(found: Difference) -> str:
    if found.several:
        twice = "; two runs count twice" if 2 in found.runs else ""
        measured = ", each run measured by its unchanged lines" if found.pace else ""
        return (
            f"the rule: a time changed if the medians of {found.runs[0]} runs before and {found.runs[1]} "
            f"after differ by more than runs of one side do{measured} ({_spreads(found)}{twice})"
        )
    single = "one run a side says" if max(found.runs) == 1 else "one side has one run, which says"
    if found.pace is None:
        return (
            f"{single} nothing of how runs differ, and too few unchanged lines show what the machine did; "
            f"to be sure: {SEVERAL}"
        )
    shown = "" if found.pace.uniform else f" ({count(found.pace.lines, 'line')}: {_middle(found.pace)})"
    return (
        f"the rule: {single} nothing of how runs differ, so a time changed only beyond what unchanged "
        f"lines show{shown}; to be sure: {SEVERAL}"
    )


def _spreads(found: Difference) -> str:
    """`a step: 1.04 x before, 1.06 x after`: the longest run over the shortest one."""
    one, other = (f"{spread(side):.2f} x" if side else "nothing" for side in found.step.runs)
    return f"runs differ in a step by {one} before and {other} after"


def _middle(pace: Pace) -> str:
    return f"{pace.low:.2f} to {pace.high:.2f} x (the middle half)"


def _beyond(found: Difference) -> Iterator[str]:
    """The lines that changed most: slower and faster ones by the rule, and those that one side has."""
    rows = [(_named(*line), both.times) for line, both in found.lines.items()]
    rows += [(f"{OUTSIDE} {one} -> {other}", both.times) for (one, other), both in found.outside.items()]
    least = _LEAST_SHARE * (found.step.before or 0)
    rows = sorted(
        (row for row in rows if abs(row[1].change_ns) > least), key=lambda row: -abs(row[1].change_ns)
    )
    rule = "that rule" if found.several or found.pace else "the 95 % intervals of the steps alone"
    for verdict in (SLOWER, FASTER, _NEW, _VANISHED):
        named = [f"{name} ({_moved(times)})" for name, times in rows if _verdict(times) == verdict]
        if named:
            more = len(named) - _MOST_NAMED
            also = f" and {count(more, 'more row')}" if more > 0 else ""
            by = f" by {rule}" if verdict in (SLOWER, FASTER) else ""
            yield f"{verdict}{by}: {', '.join(named[:_MOST_NAMED])}{also}"


def _verdict(times: Times) -> str:
    """A row of one side has no interval, so no rule decides it."""
    return times.verdict if times.before and times.after else _NEW if times.after else _VANISHED


def _named(line: str, backward: bool) -> str:
    return f"{'backward of ' if backward else ''}{line}"


def _moved(times: Times) -> str:
    one, other = (duration(round(ns)) if ns else "" for ns in (times.before, times.after))
    return f"{one} -> {other}" if one and other else one or other
