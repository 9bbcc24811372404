"""Which op calls need what others of a loop returned, by the storages of their tensors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import polars as pl


@dataclass(frozen=True)
class Dependence:
    """Of `calls` op calls the longest row in which each needs a result of the one before.

    made      whether they return tensors of their own; else nothing is known of them
    direct    how many need one at once, with no op between
    """

    calls: int
    longest: int
    direct: int
    made: bool

    @property
    def is_dependent(self) -> bool:
        """False of a batch whose rows do not need each other, though calls of one row do."""
        return 2 * self.longest > self.calls


@dataclass(frozen=True)
class Flow:
    """Outermost op calls in the order of time, and the table of tensors."""

    roots: pl.DataFrame
    tensors: pl.DataFrame

    @property
    def is_known(self) -> bool:
        return not self.tensors.is_empty()

    @cached_property
    def _calls(self) -> list[tuple[int, set[int], set[int]]]:
        """Of each call its hop, the storages that it got, and those that it made.

        Views and tensors that are written to are not made by it: in `out[i] = f(x[i])`, which parts of
        `out` others read is not known.
        """
        order = self.roots["id"].to_list()
        known = self.tensors.filter(pl.col("hop").is_in(self.roots["id"].implode())).drop_nulls("storage")
        got: defaultdict[int, set[int]] = defaultdict(set)
        given: defaultdict[int, set[int]] = defaultdict(set)
        for hop, result, storage in known.select("hop", "result", "storage").iter_rows():
            (given if result else got)[hop].add(storage)
        return [(hop, got[hop], given[hop] - got[hop]) for hop in order]

    def dependence(self, hops: Collection[int]) -> Dependence:
        """Of the calls of an op in a loop. What lies between two of them may be any ops."""
        wanted, depth, own = set(hops), dict[int, int](), set[int]()
        longest = direct = 0
        for hop, got, made in self._calls:
            before = max((depth.get(storage, 0) for storage in got), default=0)
            if hop in wanted:
                direct += not own.isdisjoint(got)
                own |= made
                before += 1
                longest = max(longest, before)
            if before:
                depth.update(dict.fromkeys(made, before))
        return Dependence(len(wanted), longest, direct, bool(own))
