"""Tables of many ranks added up, some ranks at a time.

All sums are of integers, and of two ranks that are equally slow the first one is named, so the result does
not depend on how many ranks are added at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

PLACE = {"job": pl.String, "host": pl.String, "rank": pl.Int64}


@dataclass(frozen=True)
class Sum:
    """How the rows of all ranks with the same `keys` become one row.

    `added` columns are added up, of `longest` columns the largest stays. `measure` is compared between ranks:
    least and most of it, and the rank that has the most.
    """

    keys: tuple[str, ...]
    added: tuple[str, ...]
    longest: tuple[str, ...]
    measure: str

    @property
    def least(self) -> str:
        return f"least_{self.measure}"

    @property
    def most(self) -> str:
        return f"most_{self.measure}"


OPS = Sum(("job", "op", "key"), ("calls", "hops", "self_ns", "total_ns", "gpu_ns"), ("longest_ns",), "hops")
KERNELS = Sum(("job", "kernel"), ("runs", "total_ns"), ("longest_ns",), "total_ns")
STEPS = Sum(("job", "step"), ("total_ns",), (), "total_ns")


def folded(tables: Iterable[pl.DataFrame], how: Sum) -> pl.DataFrame:
    """A row for each of the keys: ranks (that have it), the columns of `how`, least, most and most_rank.

    Each table has the columns of PLACE, and may be of several ranks. Sorted by the keys.
    """
    result: pl.DataFrame | None = None
    for table in tables:
        rows = table.select(
            *how.keys,
            *how.added,
            *how.longest,
            pl.lit(1, pl.Int64).alias("ranks"),
            pl.col(how.measure).alias(how.least),
            pl.col(how.measure).alias(how.most),
            pl.col("rank").alias("most_rank"),
        )
        result = _added(rows if result is None else pl.concat([result, rows.select(result.columns)]), how)
    if result is None:
        raise ValueError("no rank to add up")
    return result


def _added(rows: pl.DataFrame, how: Sum) -> pl.DataFrame:
    """One row for each of the keys; `rows` may be sums already."""
    return (
        rows.sort(*how.keys, how.most, "most_rank", descending=[*[False] * len(how.keys), True, False])
        .group_by(*how.keys, maintain_order=True)
        .agg(
            pl.col("ranks").sum(),
            *(pl.col(name).sum() for name in how.added),
            *(pl.col(name).max() for name in how.longest),
            pl.col(how.least).min(),
            pl.col(how.most, "most_rank").first(),
        )
    )
