"""Texts that rows repeat: a trace has each once, but a table that is written has it in each row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.trace.tables.series import grouped, texts

_SPARE_BYTES, _BYTES = 16 << 20, 32
"""For each byte of a trace. Tables of the recorder had up to 4; deep stacks, all different, would have 20"""
_ELLIPSIS = "..."
_ANY = 1 << 62
"""Length of texts that are not cut"""


def most_text(size: int) -> int:
    """How many bytes of text each table of a trace may have: all rows together."""
    return _SPARE_BYTES + _BYTES * size


def fitted(tables: dict[str, pl.DataFrame], most: int) -> dict[str, pl.DataFrame]:
    """The tables, each with at most `most` bytes of text in all its rows: the longest texts are cut.

    A stranger's trace may name one text of 8,192 characters in each of many rows. A text is cut to the same
    length in all tables, since their rows name each other.
    """
    longest = min((_longest(table, most) for table in tables.values()), default=_ANY)
    return tables if longest == _ANY else {name: _cut(table, longest) for name, table in tables.items()}


def _longest(table: pl.DataFrame, most: int) -> int:
    every = [one for column in table for one in _texts(column)]
    if sum(_lengths(one).sum() for one in every) <= most:
        return _ANY
    uses = np.zeros(1, np.int64)
    for one in every:
        counts = np.bincount(_lengths(one).drop_nulls().to_numpy())
        uses = np.pad(uses, (0, max(0, len(counts) - len(uses))))
        uses[: len(counts)] += counts
    return longest_that_fits(uses, most)


def _cut(table: pl.DataFrame, longest: int) -> pl.DataFrame:
    cut = []
    for column in table:
        long = {text for one in _texts(column) for text in _distinct(one.filter(_lengths(one) > longest))}
        if long:
            cut.append(_replaced(column, {text: _shortened(text, longest) for text in long}))
    return table.with_columns(cut)


def longest_that_fits(uses: NDArray[np.int64], most: int) -> int:
    """How long a text may be, if longer ones are cut to that length. `uses` has how many have each length.

    length           0   1   2   3   4
    uses             0   0   5   0   2     in all 18; of at most 16, texts may have 3
    as long          7   7   7   2   2
    cut to length    0   7  14  16  18
    """
    as_long = uses[::-1].cumsum()[::-1]
    return int(np.searchsorted(as_long[1:].cumsum(), most, "right"))


def _texts(column: pl.Series) -> Iterator[pl.Series]:
    """The texts of a column, also those in its lists and structures."""
    if isinstance(column.dtype, pl.List):
        yield from _texts(column.explode())
    elif isinstance(column.dtype, pl.Struct):
        for name in column.struct.fields:
            yield from _texts(column.struct.field(name))
    elif column.dtype in (pl.String, pl.Categorical):
        yield column


def _lengths(texts: pl.Series) -> pl.Series:
    return texts.str.len_bytes() if texts.dtype == pl.String else texts.cat.len_bytes()


def _distinct(texts: pl.Series) -> list[str]:
    return texts.unique().cast(pl.String).to_list()


def _shortened(text: str, longest: int) -> str:
    begin = text.encode()[: max(longest - len(_ELLIPSIS), 0)]
    return begin.decode(errors="ignore") + _ELLIPSIS[:longest]


def _replaced(column: pl.Series, by: dict[str, str]) -> pl.Series:
    """The column with other texts, which its rows share: an expression gives each row a text of its own."""
    if isinstance(column.dtype, pl.List):
        lengths = column.list.len().fill_null(0).to_numpy().astype(np.int64)
        lists = grouped(_replaced(column.filter(lengths > 0).explode(), by), lengths)
        return lists.zip_with(pl.Series(lengths > 0), column).alias(column.name)
    if isinstance(column.dtype, pl.Struct):
        fields = [_replaced(column.struct.field(name), by) for name in column.struct.fields]
        return pl.DataFrame(fields).to_struct(column.name)
    if column.dtype not in (pl.String, pl.Categorical):
        return column
    names = column.drop_nulls().unique()
    rows = column.to_frame("text").join(
        names.to_frame("text").with_row_index("row"), on="text", how="left", maintain_order="left"
    )["row"]
    new = texts((by.get(name, name) for name in names.cast(pl.String)), column.dtype)
    return new.gather(rows).alias(column.name)
