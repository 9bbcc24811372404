"""The median time of hops, some of them unfinished."""

from __future__ import annotations

import polars as pl


def finished_median(times: pl.Expr, counted: pl.Expr | None = None) -> pl.Expr:
    """The median, in ns, over the `counted` rows that are not `open`; over all of these if each one is."""
    is_open = pl.col("open").fill_null(False)
    finished = times.filter(~is_open if counted is None else counted & ~is_open)
    times = times if counted is None else times.filter(counted)
    return pl.coalesce(finished.median(), times.median()).round().cast(pl.Int64)
