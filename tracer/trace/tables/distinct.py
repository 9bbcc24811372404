"""The distinct rows of a long table."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

_AT_ONCE = 1 << 20
"""Rows: of more of them `unique` takes more memory than the table"""


def distinct(table: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """The few distinct values of these columns, in no order."""
    rows = table.select(columns)
    return pl.concat([rows.clear(), *(part.unique() for part in rows.iter_slices(_AT_ONCE))]).unique()


def numbered(names: pl.Series) -> tuple[NDArray[np.int64], list[str]]:
    """The number of the name in each row (-1: null), and the names: without a text for each of millions."""
    names = names.cast(pl.Categorical)
    known = distinct(names.to_frame(), names.name)[names.name].drop_nulls()
    codes = known.to_physical().cast(pl.Int64).to_numpy()
    numbers = np.full(int(codes.max(initial=-1)) + 2, -1)
    numbers[codes] = np.arange(len(codes))
    return numbers[names.to_physical().cast(pl.Int64).fill_null(-1).to_numpy()], known.cast(
        pl.String
    ).to_list()


def same(one: pl.Series, other: pl.Series) -> NDArray[np.bool_]:
    """Which rows have one name in both columns; where there is none, no."""
    (codes, names), (codes_of_other, names_of_other) = numbered(one), numbered(other)
    place = {name: at for at, name in enumerate(names)}
    at = np.array([*(place.get(name, -1) for name in names_of_other), -1])
    found: NDArray[np.bool_] = (codes >= 0) & (codes == at[codes_of_other])
    return found
