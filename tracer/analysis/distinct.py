"""The distinct rows of a long table."""

from __future__ import annotations

import polars as pl

_AT_ONCE = 1 << 20
"""Rows: of more of them `unique` takes more memory than the table"""


def distinct(table: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """The few distinct values of these columns, in no order."""
    rows = table.select(columns)
    return pl.concat([rows.clear(), *(part.unique() for part in rows.iter_slices(_AT_ONCE))]).unique()
