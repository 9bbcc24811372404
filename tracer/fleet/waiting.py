"""Collective calls of the ranks of a job by their numbers, and those that ranks wait for."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tracer.analysis.job.numbering import NEVER, numbering
from tracer.analysis.job.outstanding import MOMENT, Outstanding, counts, outstanding, unreached
from tracer.fleet.parts import Kept

OUTSTANDING: dict[str, pl.DataType | type[pl.DataType]] = {
    "group": pl.String,
    "number": pl.Int64,
    "since_step": pl.Int64,
    "op": pl.String,
    "source": pl.String,
    "waiting": pl.List(pl.Int64),
    "longest_ns": pl.Int64,
    "shortest_ns": pl.Int64,
    "rank": pl.Int64,
    "is_in": pl.Boolean,
    "rank_op": pl.String,
    "rank_line": pl.String,
    "rank_since_ns": pl.Int64,
}


class Numbered:
    """The collective calls of ranks, which are on disk; see job.numbering for what a number is."""

    def __init__(self, parts: Sequence[Kept]) -> None:
        self._parts = parts
        self.facts = [part.table("ranks").row(0, named=True) for part in parts]
        whole = {part.rank or 0: fact["whole_from_ns"] for part, fact in zip(parts, self.facts, strict=True)}
        known = all(begin is None for begin in whole.values())
        steps = {} if known else {part.rank or 0: part.table("steps") for part in parts}
        self.numbering = numbering(whole, steps)
        self._as_written = known

    def calls(self, place: int, first: int, end: int) -> pl.DataFrame:
        """Those of the rank at this place with numbers from `first` up to `end`, without it."""
        part = self._parts[place]
        if self._as_written:
            return part.table("calls", first, end).with_columns(rank=pl.lit(part.rank, pl.Int64))
        rows = self.numbering.of(part.table("calls").with_columns(rank=pl.lit(part.rank, pl.Int64)))
        return rows.filter(pl.col("number").is_between(first, end, closed="left"))

    def counts(self) -> pl.DataFrame:
        """rank, group, calls, as job.outstanding.counts: one rank in memory at a time."""
        tables = []
        for place, part in enumerate(self._parts):
            if self._as_written:
                own = part.table("groups").group_by("group").agg(pl.col("calls").sum())
                own = own.with_columns(rank=pl.lit(part.rank, pl.Int64))
            else:
                own = counts(self.calls(place, 0, NEVER))
            tables.append(own.select("rank", "group", "calls"))
        return pl.concat(tables)

    def moments(self) -> pl.DataFrame:
        """rank and MOMENT of each."""
        rows = [
            {"rank": part.rank, **{name: fact[name] for name in MOMENT}}
            for part, fact in zip(self._parts, self.facts, strict=True)
        ]
        return pl.DataFrame(rows, {"rank": pl.Int64, **MOMENT})


def waiting_of(numbered: Numbered, counts: pl.DataFrame, clocks: pl.DataFrame) -> tuple[Outstanding, ...]:
    """As job.Job.outstanding; of each rank only the calls that others lack are in memory."""
    moments = numbered.moments()
    missing = unreached(counts, moments.drop_nulls("dumped_ns")["rank"])
    if missing.is_empty():
        return ()
    numbers = missing["number"].unique().to_list()
    calls = pl.concat(
        [numbered.calls(place, number, number + 1) for place in range(len(moments)) for number in numbers]
    )
    return outstanding(missing, calls, moments.join(clocks, on="rank"))


def waiting_rows(found: Sequence[Outstanding], step: int | None) -> pl.DataFrame:
    """OUTSTANDING: a row for each rank that is missing in a collective."""
    rows = [
        {
            "group": of.group,
            "number": of.number,
            "since_step": step,
            "op": of.op,
            "source": of.line,
            "waiting": list(of.waiting),
            "longest_ns": of.longest_ns,
            "shortest_ns": of.shortest_ns,
            "rank": place.rank,
            "is_in": place.is_in,
            "rank_op": place.op,
            "rank_line": place.line,
            "rank_since_ns": place.since_ns,
        }
        for of in found
        for place in of.missing
    ]
    return pl.DataFrame(rows, OUTSTANDING)
