"""Python lines of two traces by file and text, and what a table has in each step."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tracer.analysis.source_lines import SourceLines

WHOLE = 0
"""The number of the only step if the whole run counts as one"""


class Places:
    """Numbers lines; one that moved keeps its number.

    files   names of files of the second trace -> those of the first
    """

    def __init__(self, files: dict[str, str] | None = None) -> None:
        self.names: list[str] = []
        self.texts: list[str] = []
        self._numbers: dict[tuple[str, str], int] = {}
        self._files = files or {}

    def numbers(self, sources: SourceLines, column: pl.Series) -> pl.Series:
        """The number of each line of a trace with these sources; null where there is no line."""
        lines = column.cast(pl.String)
        distinct = lines.drop_nulls().unique().sort().to_list()
        found = [self._number(sources.name(line), sources.text(line)) for line in distinct]
        return lines.replace_strict(distinct, found, default=None, return_dtype=pl.Int64)

    def _number(self, name: str, text: str) -> int:
        file, _, line = name.rpartition(":")
        file = self._files.get(file, file)
        key = file, text or line
        if key not in self._numbers:
            self._numbers[key] = len(self.names)
            self.names.append(f"{file}:{line}")
            self.texts.append(text)
        return self._numbers[key]


def within(rows: pl.DataFrame, steps: Sequence[int] | None) -> pl.DataFrame:
    """The rows in these steps; None: all, as those of one step, WHOLE."""
    if steps is None:
        return rows.with_columns(step=pl.lit(WHOLE, dtype=pl.Int64))
    return rows.filter(pl.col("step").is_in(list(steps)).fill_null(False))


def by_step(rows: pl.DataFrame, column: str, steps: Sequence[int] | None) -> list[float]:
    """The sum of a column in each step."""
    found = dict(rows.group_by("step").agg(pl.col(column).sum()).iter_rows())
    return [float(found.get(step) or 0) for step in ([WHOLE] if steps is None else steps)]
