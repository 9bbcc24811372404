"""Which line a finding names."""

from __future__ import annotations

import polars as pl


def commonest(lines: pl.Series) -> str | None:
    """The line of most of these rows; None if no row has one."""
    counted = lines.drop_nulls().value_counts(sort=True)
    return None if counted.is_empty() else str(counted[lines.name][0])


def costliest(rows: pl.DataFrame) -> str | None:
    """The line of these hops whose time is most."""
    by_line = rows.drop_nulls("source").group_by("source").agg(pl.col("ns").sum()).sort("ns", descending=True)
    return None if by_line.is_empty() else str(by_line["source"][0])
