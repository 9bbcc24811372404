"""What a thread was in, moment by moment: the innermost of intervals that lie in each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

OUTSIDE = -1


@dataclass(frozen=True)
class Spans:
    """Pieces of time, in order and without holes, and the interval that was the innermost in each.

    `owners` are places in the list that was given, or OUTSIDE. `parents` has for each interval the one
    around it, or OUTSIDE. Times are in nanoseconds.
    """

    starts: list[int]
    ends: list[int]
    owners: list[int]
    parents: list[int]


def spans(starts: Sequence[int], ends: Sequence[int], begin: int, end: int) -> Spans:
    """Of the time from `begin` to `end`. Intervals are cut to it, and to those around them.

    Of two intervals with the same times the earlier in the list is the outer one.
    """
    found = Spans([], [], [], [OUTSIDE] * len(starts))
    until = [min(stop, end) for stop in ends]
    open_: list[int] = []
    now = begin

    def piece(to: int) -> None:
        nonlocal now
        if to > now:
            found.starts.append(now)
            found.ends.append(to)
            found.owners.append(open_[-1] if open_ else OUTSIDE)
            now = to

    for place in sorted(range(len(starts)), key=lambda place: (starts[place], -until[place], place)):
        at = max(starts[place], begin)
        if at >= end or until[place] < at:
            continue
        while open_ and until[open_[-1]] <= at:
            piece(until[open_[-1]])
            open_.pop()
        piece(at)
        if open_:
            found.parents[place] = open_[-1]
            until[place] = min(until[place], until[open_[-1]])
        open_.append(place)
    while open_:
        piece(until[open_[-1]])
        open_.pop()
    piece(end)
    return found
