"""What the GPU copied and filled."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis import runtime_survey
from tracer.report.api_tables import written
from tracer.report.cells import prose
from tracer.report.page import Page
from tracer.report.reading import Reading, Rows, with_cuda
from tracer.report.text import duration, size

title = "Copies and fills"
level = 3
wanted = with_cuda


@dataclass(frozen=True)
class Copies:
    activities: Rows
    has_steady: bool


def data(reading: Reading) -> Copies:
    copies = runtime_survey.copies(reading.trace.gpu_activities, reading.steps)
    return Copies(Rows.first(copies, reading.most), bool(reading.steps.steady))


def markdown(data: Copies, page: Page) -> str:
    if not data.activities.rows:
        return ""
    cells = [
        [
            prose(row["name"]),
            f"{row['count']:,}",
            "" if row["bytes"] is None else size(row["bytes"]),
            duration(row["total_ns"]),
            "" if row["gb_per_s"] is None else f"{row['gb_per_s']:,.1f} GB/s",
            *([f"{row['steady_calls']:.3g}"] if data.has_steady else []),
        ]
        for row in data.activities.rows
    ]
    titles = ["what", "times:", "bytes:", "on GPU:", "rate:", *["per steady step:"] * data.has_steady]
    return written(titles, cells, data.activities)
