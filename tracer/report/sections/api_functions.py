"""Time by function of the CUDA API."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis.runtime_survey import Steps
from tracer.report.api_tables import phase_cells, phase_titles, written
from tracer.report.cells import code
from tracer.report.page import Page, paragraphs
from tracer.report.reading import Reading, Rows, with_cuda
from tracer.report.text import duration

title = "API functions"
level = 3
wanted = with_cuda


@dataclass(frozen=True)
class Functions:
    functions: Rows
    steps: Steps


def data(reading: Reading) -> Functions:
    return Functions(Rows.first(reading.api_functions, reading.most), reading.steps)


def markdown(data: Functions, page: Page) -> str:
    cells = [
        [
            code(row["name"]),
            row["role"] or "unknown",
            f"{row['calls']:,}",
            duration(row["total_ns"]),
            duration(row["median_ns"]),
            *phase_cells(row, data.steps),
        ]
        for row in data.functions.rows
    ]
    titles = ["function", "role", "calls:", "host time:", "median:", *phase_titles(data.steps)]
    return paragraphs(
        "Host time is the time in the calls. A driver call made inside a runtime call counts as part of it.",
        written(titles, cells, data.functions),
    )
