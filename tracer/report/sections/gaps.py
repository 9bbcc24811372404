"""Time outside ops, by the lines around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracer.analysis.gaps import Gaps, gaps
from tracer.report.cells import code, table
from tracer.report.page import Page, paragraphs
from tracer.report.reading import Reading, Rows
from tracer.report.step_tables import about_gaps, gap_cells, gap_titles, with_lines
from tracer.report.text import left_out

title = "Time outside ops"
level = 3

_ROWS = 10
_SAID = """\
From the end of one outermost op to the start of the next: what the script did between these two lines.
A row with the same line twice is Python's time between the ops of one line."""


@dataclass(frozen=True)
class TimeOutside:
    gaps: Gaps
    longest: Rows
    only_ops: bool


def wanted(reading: Reading) -> bool:
    return bool(len(reading.trace.hops))


def data(reading: Reading) -> TimeOutside:
    found = gaps(reading.trace)
    return TimeOutside(found, Rows.first(found.table, reading.rows or _ROWS), bool(reading.trace.only_ops))


def _lines(row: dict[str, Any]) -> str:
    text = f"<br>{code(row['text'])}" if row["text"] else ""
    return code(f"{row['before']} -> {row['after']}") + text


def markdown(data: TimeOutside, page: Page) -> str:
    if not data.longest.rows:
        return ""
    rows = with_lines(data.longest.rows, page.sources)
    return paragraphs(
        about_gaps(data.gaps, only_ops=data.only_ops),
        _SAID,
        table(gap_titles(), gap_cells(rows, data.gaps.wall_ns, _lines)) + left_out(data.longest.left_out),
    )
