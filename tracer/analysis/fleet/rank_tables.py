"""The partial tables of one rank, wherever they are."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

UNKNOWN = "unknown"
"""The host of a trace that does not say it"""


@dataclass(frozen=True)
class RankTables:
    """A rank of a job; of a trace that says no rank it is null."""

    job: str
    host: str
    rank: int | None

    def table(self, name: str, first: int | None = None, end: int | None = None) -> pl.DataFrame:
        """A partial table; of `calls` those with these numbers."""
        raise NotImplementedError

    def placed(self, name: str) -> pl.DataFrame:
        """A partial table with the columns job, host and rank in front."""
        rows = self.table(name)
        return rows.select(
            pl.lit(self.job, pl.String).alias("job"),
            pl.lit(self.host, pl.String).alias("host"),
            pl.lit(self.rank, pl.Int64).alias("rank"),
            pl.all(),
        )


@dataclass(frozen=True)
class InMemory(RankTables):
    """A rank whose tables are in memory."""

    tables: dict[str, pl.DataFrame]

    def table(self, name: str, first: int | None = None, end: int | None = None) -> pl.DataFrame:
        rows = self.tables[name]
        return rows if first is None else rows.filter(pl.col("number").is_between(first, end, closed="left"))
