"""The time that intervals cover together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]


@dataclass(frozen=True)
class Cover:
    """Intervals that do not touch, in order: what some intervals, which may overlap, cover.

    first   the interval that begins each of them: its place among those that were given
    last    the one that ends each of them
    """

    starts: Times
    ends: Times
    first: Times
    last: Times

    @classmethod
    def of(cls, starts: Times, ends: Times) -> Cover:
        """The cover of intervals in any order, in nanoseconds; one that ends before it starts is empty."""
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], np.maximum(ends, starts)[order]
        until = np.maximum.accumulate(ends) if len(ends) else ends
        begins = np.append(True, starts[1:] > until[:-1]) if len(ends) else np.empty(0, np.bool_)
        heads = np.flatnonzero(begins)
        tails = np.append(heads[1:] - 1, len(ends) - 1) if len(heads) else heads
        # Where the latest end so far was met first: 3 5 4 5 -> 0 1 1 1
        raised = np.append(True, ends[1:] > until[:-1]) if len(ends) else begins
        latest = np.maximum.accumulate(np.where(raised, np.arange(len(ends)), 0))
        return cls(starts[heads], until[tails], order[heads], order[latest[tails]])

    def before(self, times: Times) -> Times:
        """How much is covered before each moment."""
        lengths = np.append(0, np.cumsum(self.ends - self.starts))
        place = np.searchsorted(self.starts, times, "right")
        over = np.where(place > 0, np.append(0, self.ends)[place] - times, 0)  # of the interval there
        return lengths[place] - np.maximum(over, 0)

    def within(self, begins: Times, ends: Times) -> Times:
        """How much of each time from `begins` to `ends` is covered."""
        return self.before(ends) - self.before(begins)

    def without(self, other: Cover) -> tuple[Times, Times]:
        """The starts and ends of what this covers and the other does not, in order."""
        if not len(other.starts):
            long = self.ends > self.starts
            return self.starts[long], self.ends[long]
        edges = np.sort(np.concatenate([self.starts, self.ends, other.starts, other.ends]))
        edges = edges[np.append(np.diff(edges) > 0, True)]
        begins, ends = edges[:-1], edges[1:]
        mine = (self.within(begins, ends) > 0) & (other.within(begins, ends) == 0)
        before, after = np.append(False, mine[:-1]), np.append(mine[1:], False)
        return begins[mine & ~before], ends[mine & ~after]
