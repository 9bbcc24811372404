"""Where the host waited for the GPU inside an op or a library."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis import runtime_survey
from tracer.report.api_tables import written
from tracer.report.cells import code, prose
from tracer.report.page import Page, paragraphs
from tracer.report.reading import Reading, Rows, with_cuda
from tracer.report.text import duration

title = "Hidden synchronisations"
level = 3
wanted = with_cuda

_SAID = """\
Where the host waited for the GPU inside an op or a library. Each one stops the host from running
ahead. A copy from or to pageable memory counts too: the host stages its bytes, and may wait for the
stream."""


@dataclass(frozen=True)
class Synchronisations:
    waits: Rows
    has_steady: bool


def data(reading: Reading) -> Synchronisations:
    waits = runtime_survey.hidden_synchronisations(reading.trace, reading.api_calls, reading.steps)
    return Synchronisations(Rows.first(waits, reading.most), bool(reading.steps.steady))


def markdown(data: Synchronisations, page: Page) -> str:
    if not data.waits.rows:
        return "No op and no library made the host wait for the GPU."
    cells = [
        [
            page.forward_line(row),
            code(row["op"]) if row["op"] else f"in {code(row['library_call'] or 'a library')}",
            prose(row["what"].replace(" + ", ", ").replace("->", "to")),
            f"{row['count']:,}",
            duration(row["total_ns"]),
            *([f"{row['steady_calls']:.3g}"] if data.has_steady else []),
        ]
        for row in data.waits.rows
    ]
    titles = ["line", "op", "waits in", "times:", "host time:", *["per steady step:"] * data.has_steady]
    return paragraphs(
        _SAID,
        written(titles, cells, data.waits),
    )
