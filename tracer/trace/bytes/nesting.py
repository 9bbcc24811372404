"""Which exit belongs to which enter, and which hop is inside which.

The writer stores with each event how many hops were open, so nothing has to be replayed: events
of one depth are looked at together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.arrays import nearest

Index = NDArray[np.int64]


@dataclass
class Nesting:
    """One row for each enter, in the order of the events."""

    parent: Index
    """Row of the innermost enclosing hop; -1: none."""
    exit: Index
    """Event that is its exit; -1: none."""
    end: Index
    """Its exit, or the event that shows that it had ended; -1: it was open at the end."""
    unmatched_exits: int


def nest(depth: NDArray[np.uint16], enter: NDArray[np.bool_], hop: NDArray[np.uint32]) -> Nesting:
    """Matches the enters and exits of one thread.

    `depth`: hops that were open before the enter, `hop`: what was entered or left. An exit
    belongs to the enter before it at its depth if both are of the same hop and nothing happened
    one level up in between; a hop is inside the one that was entered last one level up.

    event    depth   row: parent  exit  end
    enter a  0       0    -1      4     4
      enter b  1     1    0       2     2
      exit b   1
      enter c  1     2    0       -1    4     its exit is lost: a's shows that it had ended
    exit a   0
    enter a  0       3    -1      -1    -1    open at the end
    """
    depth = _beyond_the_deepest(depth, enter)
    count = len(depth)
    parent = np.full(count, -1, np.int64)
    leave = np.full(count, -1, np.int64)
    end = np.full(count, -1, np.int64)
    order = np.argsort(depth, kind="stable")
    bounds = np.append(0, np.cumsum(np.bincount(depth))) if count else np.zeros(1, np.int64)
    above = order[:0]
    matched = 0
    for level in range(len(bounds) - 1):
        here = order[bounds[level] : bounds[level + 1]]
        entered = enter[here]
        # The last event one level up: the enter of the parent, unless records were lost.
        rank = np.searchsorted(above, here)
        last = np.where(rank > 0, above[rank - 1], -1) if len(above) else np.full(len(here), -1)
        inner = here[entered]
        if len(above):
            over = last[entered]
            over = np.where((over >= 0) & enter[over], over, -1)
            parent[inner] = over
        pairs = np.flatnonzero(
            entered[:-1] & ~entered[1:] & (last[:-1] == last[1:]) & (hop[here[:-1]] == hop[here[1:]])
        )
        leave[here[pairs]] = here[pairs + 1]
        end[here[pairs]] = here[pairs + 1]
        matched += len(pairs)
        lone = np.flatnonzero(entered & (leave[here] < 0))
        if len(lone):
            end[here[lone]] = _first_after(here, above, lone, end[parent[here[lone]]], parent)
        above = here
    rows = np.cumsum(enter) - 1
    parent = parent[enter]
    return Nesting(
        parent=np.where(parent >= 0, rows[parent], -1),
        exit=leave[enter],
        end=end[enter],
        unmatched_exits=int(count - enter.sum()) - matched,
    )


def sources_inside(source: NDArray[Any], parent: Index) -> NDArray[Any]:
    """The id of the line that ran each hop: its own if it has one (not 0), else that of the hop around it.

        f(x)    parent -1  source 5                    5
          sin            0       7  in a Python kernel  7
            sin          1       0                      7
          cos            0       0                      5

    The writer gives a hop its own if it is outermost, or if other Python code called it than called the hop
    around it.
    """
    named = nearest(parent, source != 0)
    return source[np.where(named >= 0, named, np.arange(len(source)))]


def _beyond_the_deepest(depth: NDArray[np.uint16], enter: NDArray[np.bool_]) -> NDArray[np.uint16]:
    """The writer stores no depth above MAX_DEPTH: the events there, counted."""
    deepest = np.flatnonzero(depth == fmt.MAX_DEPTH)
    if not len(deepest):
        return depth
    entered = enter[deepest]
    after = np.cumsum(np.where(entered, 1, -1))
    level = after - entered
    # Each stretch of such events begins where no hop is open beyond.
    begins = np.append(0, np.flatnonzero(np.diff(deepest) > 1) + 1)
    sizes = np.diff(np.append(begins, len(deepest)))
    level -= np.repeat(np.append(0, after[begins[1:] - 1]), sizes)
    counted = depth.copy()
    counted[deepest] = np.clip(level + fmt.MAX_DEPTH, fmt.MAX_DEPTH, np.iinfo(np.uint16).max)
    return counted


def _first_after(here: Index, above: Index, lone: Index, parent_end: Index, parent: Index) -> Index:
    """The first event that shows that the enters `here[lone]`, whose exits are lost, had ended."""
    never = np.iinfo(np.int64).max
    at = here[lone]
    shown = np.append(here, never)[lone + 1]
    if len(above):
        shown = np.minimum(shown, np.append(above, never)[np.searchsorted(above, at)])
    parent_end = np.where((parent[at] >= 0) & (parent_end >= 0), parent_end, never)
    shown = np.minimum(shown, parent_end)
    return np.where(shown == never, -1, shown)


def innermost_at(
    depth: NDArray[np.uint16], enter: NDArray[np.bool_], before: Index, open_hops: NDArray[np.int64]
) -> Index:
    """For moments after `before` events, when `open_hops` were open: the row of the innermost; -1: none.

    `depth` and `enter` as in `nest`.
    """
    found = np.full(len(before), -1, np.int64)
    if not len(before) or not len(depth):
        return found
    rows = np.cumsum(enter) - 1
    order = np.argsort(depth, kind="stable")
    bounds = np.append(0, np.cumsum(np.bincount(depth)))
    for level in np.unique(open_hops[open_hops > 0]).tolist():
        if level >= len(bounds):
            break
        here = order[bounds[level - 1] : bounds[level]]
        at = np.flatnonzero(open_hops == level)
        # The last event of the hops at this level: the enter of the one wanted, unless records were lost.
        rank = np.searchsorted(here, before[at])
        last = np.where(rank > 0, here[rank - 1], -1) if len(here) else np.full(len(at), -1)
        found[at] = np.where((last >= 0) & enter[last], rows[last], -1)
    return found


def innermost_open(levels_change: NDArray[np.int64]) -> Index:
    """For a row of begins (+1) and ends (-1): the begin that is innermost after each; -1: none.

    An end without a begin, as when the recording began within, is passed over.
    """
    level = np.cumsum(levels_change)
    level -= np.minimum(np.minimum.accumulate(level), 0)
    order = np.argsort(level, kind="stable")
    # Events of a level are adjacent and in order, and the first to reach a level is a begin.
    rows = np.where(levels_change[order] > 0, np.arange(len(order)), 0)
    innermost = np.empty(len(level), np.int64)
    innermost[order] = order[np.maximum.accumulate(rows)]
    return np.where(level > 0, innermost, -1)
