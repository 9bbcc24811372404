"""Collective calls of the ranks of a job by their numbers."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tracer.analysis.fleet.rank_tables import RankTables
from tracer.analysis.job.numbering import NEVER, numbering
from tracer.analysis.job.outstanding import MOMENT, counts


class Numbered:
    """The collective calls of ranks; see job.numbering for what a number is."""

    def __init__(self, parts: Sequence[RankTables]) -> None:
        self._parts = parts
        self.facts = [part.table("ranks").row(0, named=True) for part in parts]
        whole = {part.rank or 0: fact["whole_from_ns"] for part, fact in zip(parts, self.facts, strict=True)}
        known = all(begin is None for begin in whole.values())
        steps = {} if known else {part.rank or 0: part.table("steps") for part in parts}
        self.numbering = numbering(whole, steps)
        self.as_written = known

    def calls(self, place: int, first: int, end: int) -> pl.DataFrame:
        """Those of the rank at this place with numbers from `first` up to `end`, without it."""
        part = self._parts[place]
        if self.as_written:
            return part.table("calls", first, end).with_columns(rank=pl.lit(part.rank, pl.Int64))
        rows = self.numbering.of(part.table("calls").with_columns(rank=pl.lit(part.rank, pl.Int64)))
        return rows.filter(pl.col("number").is_between(first, end, closed="left"))

    def lines(self, place: int) -> pl.DataFrame:
        """job.lines_before.LINES of the rank at this place, and rank, for calls that have a number."""
        part = self._parts[place]
        rows = part.table("lines").with_columns(rank=pl.lit(part.rank, pl.Int64))
        if self.as_written:
            return rows
        calls = part.table("calls").with_columns(rank=pl.lit(part.rank, pl.Int64))
        numbered = calls.with_columns(skipped=pl.col("number") - self.numbering.of(calls)["number"])
        skipped = numbered.drop_nulls("skipped").group_by("group").agg(pl.col("skipped").first())
        behind = skipped.select(behind_group="group", behind_skipped="skipped")
        return (
            rows.join(skipped, on="group")
            .join(behind, on="behind_group", how="left")
            .with_columns(
                number=pl.col("number") - pl.col("skipped"),
                behind_number=pl.col("behind_number") - pl.col("behind_skipped"),
            )
            .filter(pl.col("number") >= 0)
            .drop("skipped", "behind_skipped")
        )

    def counts(self) -> pl.DataFrame:
        """rank, group, calls, as job.outstanding.counts: one rank in memory at a time."""
        tables = []
        for place, part in enumerate(self._parts):
            if self.as_written:
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
