"""What the sections of one report share when they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracer.analysis.source_lines import NO_LINE, SourceLines
from tracer.report.cells import code, prose, table
from tracer.report.reading import Reading, Rows
from tracer.report.svg.picture import Pictures
from tracer.report.text import duration, left_out, package_relative

_UNITS = (("s", 1_000_000_000), ("ms", 1_000_000))
_LONGEST_TEXT = 60
Column = tuple[str, str, str]
"""(title, key of the row, kind): kind is one of those in Page.table"""


@dataclass(frozen=True)
class Page:
    """One report as it is written.

    name        of the trace, as the user gave it
    only        one of reading.PARTS, or None for the report of everything
    sources     how Python lines are named, and what they say
    rows        rows per table that the user asked for; None: each section's own default
    of_steady   other tables of this report are of the steady steps only
    details     how many paths to show one by one
    """

    name: str
    only: str | None = None
    sources: SourceLines = field(default_factory=SourceLines)
    rows: int | None = None
    of_steady: bool = False
    details: int = 5
    pictures: Pictures | None = None
    """Where pictures go; None: the report is text alone"""

    @classmethod
    def of(cls, reading: Reading, pictures: Pictures | None = None) -> Page:
        shown_apart = reading.has_cuda and reading.only != "kernels"
        return cls(
            name=reading.name,
            only=reading.only,
            sources=SourceLines.of(reading.trace),
            rows=reading.rows,
            details=reading.details,
            pictures=pictures,
            of_steady=bool((shown_apart or reading.steady) and reading.steps.steady),
        )

    def line(self, source: str | None) -> str:
        return code(self.sources.name(source)) if source else NO_LINE

    def text(self, source: str | None) -> str:
        """What a line says, on a line of its own in a cell; nothing if that is unknown."""
        text = self.sources.text(source)
        return (
            f"<br>{code(text if len(text) <= _LONGEST_TEXT else f'{text[: _LONGEST_TEXT - 3]}...')}"
            if text
            else ""
        )

    def forward_line(self, row: dict[str, Any]) -> str:
        """The line of a row, with a word if it is of backward."""
        return self.line(row["source"]) + (
            " (backward)" if row["source"] and row.get("backward_node") else ""
        )

    def all_steps(self) -> str:
        """What a table of the whole recording says if other tables are of the steady steps; else nothing."""
        return "This table counts the whole recording, not only the steady steps." if self.of_steady else ""

    def table(self, columns: Sequence[Column], rows: Rows, whole_ns: int = 0) -> str:
        """A table with a row for each of `rows`; shares are taken of `whole_ns`."""
        write: dict[str, Callable[[dict[str, Any], str], str]] = {
            "count": lambda row, key: f"{row[key]:,}",
            "share": lambda row, key: percent(row[key] / whole_ns) if whole_ns else "",
            "code": lambda row, key: code(row[key] or ""),
            "function": lambda row, key: code(package_relative(row[key] or "")),
            "line": lambda row, key: self.line(row[key]) + self.text(row[key]),
            "module": lambda row, key: code(row[key]) if row[key] else "no module",
            "codes": lambda row, key: ", ".join(map(code, row[key])),
            "text": lambda row, key: prose("" if row[key] is None else row[key]),
            "nested": lambda row, key: "-> " * row["depth"] + code(row[key]),
            "caught": lambda row, key: f"caught in {code(row[key])}" if row[key] else "reached Python",
        }
        by_column = [
            times(row[key] for row in rows.rows)
            if kind == "time"
            else [write[kind](row, key) for row in rows.rows]
            for _, key, kind in columns
        ]
        cells = zip(*by_column, strict=True)
        return table([title for title, _, _ in columns], cells) + left_out(rows.left_out)


def paragraphs(*texts: str) -> str:
    """The texts that are not empty, with an empty line between them."""
    return "\n\n".join(text for text in texts if text)


def details(summary: str, *texts: str) -> str:
    """A part that a reader opens; nothing if all texts are empty."""
    text = paragraphs(*texts)
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>" if text else ""


def percent(share: float) -> str:
    """`42.0 %` of 0.42; 0.0 % is nothing."""
    text = f"{100 * share:.1f} %"
    return "< 0.1 %" if share and text == "0.0 %" else text


def times(values: Iterable[int | None]) -> list[str]:
    """A column of times in nanoseconds: in one unit, but for those below 0.1 of it; 0 is nothing."""
    column = list(values)
    largest = max((ns or 0 for ns in column), default=0)
    unit, size = next(((unit, size) for unit, size in _UNITS if largest >= size), ("us", 1_000))
    return [_in_unit(ns, unit, size) for ns in column]


def _in_unit(ns: int | None, unit: str, size: int) -> str:
    if not ns:
        return ""
    return f"{ns / size:,.2f} {unit}" if 10 * ns >= size else duration(ns)
