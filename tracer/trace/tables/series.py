"""Series of the tables from columns of numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.trace.bytes.arrays import Codes
from tracer.trace.tables.schema import ID, STRING, Schema


def nanoseconds(ticks: NDArray[np.int64], to_ns: float) -> NDArray[np.int64]:
    if to_ns == 1.0:
        return ticks
    nanoseconds: NDArray[np.int64] = np.minimum(ticks * to_ns, float(1 << 62)).astype(np.int64)
    return nanoseconds


def categories(values: list[str | None]) -> pl.Series:
    return pl.Series(values, dtype=STRING)


def named(values: list[str] | list[str | None], codes: Codes | NDArray[np.int64]) -> pl.Series:
    """values[code] for each code; null where it is -1."""
    return categories(list(values)).gather(indices(codes))


def indices(rows: NDArray[Any]) -> pl.Series:
    return nullable(rows).cast(ID)


def nullable(values: NDArray[Any]) -> pl.Series:
    """Null where a value is negative."""
    series = pl.Series(values)
    return series.set(series < 0, None) if len(values) and values.min() < 0 else series


def in_order(table: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """The columns of the schema in its order and with its types; those that are missing are null."""
    missing = [
        pl.Series(name, [None], dtype).new_from_index(0, len(table))
        for name, dtype in schema.items()
        if name not in table.columns
    ]
    return table.with_columns(missing).select(pl.col(name).cast(dtype) for name, dtype in schema.items())
