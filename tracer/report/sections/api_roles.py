"""What the CUDA API calls were for."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis import runtime_survey
from tracer.analysis.api_functions import role_descriptions
from tracer.analysis.runtime_survey import Steps
from tracer.report.api_tables import phase_cells, phase_titles, written
from tracer.report.cells import item, prose
from tracer.report.page import Page, details, paragraphs
from tracer.report.reading import Reading, Rows, with_cuda
from tracer.report.text import duration

title = "Roles of the API functions"
level = 3
wanted = with_cuda


@dataclass(frozen=True)
class Roles:
    """`meanings`: a sentence for each role."""

    roles: Rows
    meanings: dict[str, str]
    host_ns: int
    steps: Steps


def data(reading: Reading) -> Roles:
    calls = reading.api_calls
    roles = Rows.first(runtime_survey.per_role(calls, reading.steps), reading.most)
    return Roles(roles, role_descriptions(), int(calls["duration"].sum()), reading.steps)


def markdown(data: Roles, page: Page) -> str:
    cells = [
        [
            row["role"] or "unknown",
            f"{row['functions']:,}",
            f"{row['calls']:,}",
            duration(row["total_ns"]),
            f"{100 * row['total_ns'] / data.host_ns:.1f} %" if data.host_ns else "",
            *phase_cells(row, data.steps),
        ]
        for row in data.roles.rows
    ]
    titles = ["role", "functions:", "calls:", "host time:", "share:", *phase_titles(data.steps)]
    meanings = [
        item(f"{prose(row['role'])}: {prose(data.meanings[row['role']])}")
        for row in data.roles.rows
        if data.meanings.get(row["role"] or "")
    ]
    return paragraphs(
        written(titles, cells, data.roles),
        details("What each role is", "\n".join(meanings)) if page.only else "",
    )
