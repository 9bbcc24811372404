"""Columns that tables of API calls share."""

from __future__ import annotations

from typing import Any

from tracer.analysis.runtime_survey import Steps
from tracer.report.cells import table
from tracer.report.reading import Rows
from tracer.report.text import duration, left_out


def phase_titles(steps: Steps) -> list[str]:
    """Headings of the columns per step of each phase that there is."""
    return ["warm-up step:"] * bool(steps.warmup) + ["steady step:"] * bool(steps.steady)


def phase_cells(row: dict[str, Any], steps: Steps) -> list[str]:
    """`3 x, 12.3 us` for each phase: calls and time in one step, the mean over the steps."""
    cells = []
    for phase, number in (("warmup", steps.warmup), ("steady", steps.steady)):
        if number:
            calls, time = row[f"{phase}_calls"], duration(round(row[f"{phase}_ns"]))
            shown = f"{calls:,.0f}" if calls >= 100 else f"{calls:.3g}"
            cells.append(f"{shown} x, {time}" if calls else "-")
    return cells


def written(titles: list[str], cells: list[list[str]], rows: Rows) -> str:
    """The table of `rows`, and how many of them are left out."""
    return table(titles, cells, ragged=True) + left_out(rows.left_out)
