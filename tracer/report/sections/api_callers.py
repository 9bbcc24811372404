"""Which part of PyTorch called the CUDA API."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis import runtime_survey
from tracer.analysis.components import DESCRIPTIONS
from tracer.analysis.runtime_survey import Steps
from tracer.report.api_tables import phase_cells, phase_titles, written
from tracer.report.cells import code, item, prose
from tracer.report.page import Page, details, paragraphs
from tracer.report.reading import Reading, Rows, with_cuda
from tracer.report.text import duration

title = "Callers in PyTorch"
level = 3
wanted = with_cuda

_SAID = """\
By the native stack of each call: the innermost frame that a rule knows, or the library that was
called."""


@dataclass(frozen=True)
class Callers:
    components: Rows
    steps: Steps


def data(reading: Reading) -> Callers:
    components = runtime_survey.per_component(reading.api_calls, reading.steps)
    return Callers(Rows.first(components, reading.most), reading.steps)


def markdown(data: Callers, page: Page) -> str:
    rows = data.components.rows
    cells = [
        [
            row["component"],
            f"{row['calls']:,}",
            duration(row["total_ns"]),
            *phase_cells(row, data.steps),
            ", ".join(code(function["what"]) for function in list(row["functions"])[:2]),
        ]
        for row in rows
    ]
    titles = ["component", "calls:", "host time:", *phase_titles(data.steps), "most"]
    meanings = [
        item(f"{prose(row['component'])}: {prose(DESCRIPTIONS[row['component']])}")
        for row in rows
        if DESCRIPTIONS.get(row["component"])
    ]
    return paragraphs(
        _SAID,
        written(titles, cells, data.components),
        details("What each component does", "\n".join(meanings)),
    )
