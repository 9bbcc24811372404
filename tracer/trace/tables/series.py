"""Series of the tables from columns of numpy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.trace.bytes.arrays import Numbering, concatenate
from tracer.trace.tables.schema import ID, STRING, Schema

_AT_ONCE = 1 << 20
"""Rows: the columns in between of ten million hops would take more memory than the table"""


def nanoseconds(ticks: NDArray[np.int64], to_ns: float) -> NDArray[np.int64]:
    if to_ns == 1.0:
        return ticks
    nanoseconds = np.empty(len(ticks), np.int64)
    for part in slices(len(ticks)):
        nanoseconds[part] = np.minimum(ticks[part] * to_ns, float(1 << 62))
    return nanoseconds


def slices(count: int) -> Iterator[slice]:
    """Rows from 0 to `count`, a part of them at a time."""
    return (slice(first, first + _AT_ONCE) for first in range(0, count, _AT_ONCE))


def numbers(column: pl.Series) -> NDArray[np.int64]:
    """As integers, -1 for null."""
    return column.cast(pl.Int64).fill_null(-1).to_numpy()


def categories(values: Iterable[str | None]) -> pl.Series:
    return texts(values, STRING)


def texts(values: Iterable[str | None], dtype: pl.DataType | type[pl.DataType] = pl.String) -> pl.Series:
    """A text is in memory once, however many rows have it."""
    known: Numbering[str | None] = Numbering()
    codes = np.fromiter(map(known, values), np.uint32)
    return pl.Series(list(known.numbers), dtype=dtype).gather(codes)


def lists(rows: Iterable[Sequence[str]]) -> pl.Series:
    """Lists of texts, null where one is empty. A text is in memory once, however many lists have it."""
    lengths: list[int] = []

    def flat() -> Iterator[str]:
        for row in rows:
            lengths.append(len(row))
            yield from row

    found = texts(flat())
    return grouped(found, np.array(lengths, np.int64))


def grouped(values: pl.Series, lengths: NDArray[np.int64]) -> pl.Series:
    """Lists of these lengths of the values, one after the other; null where a length is 0."""
    rows = pl.DataFrame({"row": np.repeat(np.arange(len(lengths)), lengths), "value": values})
    found = rows.group_by("row", maintain_order=True).agg("value")["value"]
    return found.gather(indices(np.where(lengths > 0, np.cumsum(lengths > 0) - 1, -1)))


def named(values: list[str] | list[str | None], codes: NDArray[np.signedinteger]) -> pl.Series:
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
    missing = [pl.lit(None, dtype).alias(name) for name, dtype in schema.items() if name not in table.columns]
    return table.with_columns(missing).select(pl.col(name).cast(dtype) for name, dtype in schema.items())


def join_columns(parts: list[tuple[int, Any]], types: dict[str, type]) -> dict[str, NDArray[Any]]:
    """Puts the columns of spans together; each part has the row of its first hop. `hop` may be -1: none."""
    for first_hop, columns in parts:
        columns["hop"][columns["hop"] >= 0] += first_hop
    return {
        name: concatenate([columns[name] for _, columns in parts], dtype) for name, dtype in types.items()
    }
