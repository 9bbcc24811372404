"""Memory that was taken from CUDA, or given back, in steady state."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis import runtime_survey
from tracer.report.api_tables import written
from tracer.report.cells import code
from tracer.report.page import Page, paragraphs
from tracer.report.reading import Reading, Rows, with_cuda
from tracer.report.text import duration, size

title = "Allocations in steady state"
level = 3
wanted = with_cuda

_SAID = """\
Memory that was taken from CUDA or given back after warm-up. cudaFree and cudaMalloc can wait for
the GPU."""


@dataclass(frozen=True)
class Allocations:
    calls: Rows
    has_steady: bool


def data(reading: Reading) -> Allocations:
    calls = runtime_survey.steady_allocations(reading.api_calls)
    return Allocations(Rows.first(calls, reading.most), bool(reading.steps.steady))


def markdown(data: Allocations, page: Page) -> str:
    if not data.calls.rows:
        none = "None: after warm-up no memory was taken from CUDA or given back."
        return none if data.has_steady else "No step is known to be steady."
    cells = [
        [
            page.forward_line(row),
            code(row["op"]) if row["op"] else "no op",
            code(row["name"]),
            row["component"],
            f"{row['calls']:,}",
            "" if row["bytes"] is None else size(row["bytes"]),
            duration(row["total_ns"]),
        ]
        for row in data.calls.rows
    ]
    return paragraphs(
        _SAID,
        written(["line", "op", "function", "by", "calls:", "bytes:", "host time:"], cells, data.calls),
    )
