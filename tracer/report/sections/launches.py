"""How many kernels each op launched."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis import runtime_survey
from tracer.report.api_tables import written
from tracer.report.cells import code
from tracer.report.page import Page, paragraphs
from tracer.report.reading import Reading, Rows, with_cuda
from tracer.report.text import duration

title = "Launches of each op"
level = 3
wanted = with_cuda

_SAID = """\
Op calls that launched a kernel themselves. A call that launched only through an op that it called
is not counted."""


@dataclass(frozen=True)
class Launches:
    ops: Rows


def data(reading: Reading) -> Launches:
    return Launches(
        Rows.first(runtime_survey.launches_per_op(reading.trace, reading.api_calls), reading.most)
    )


def markdown(data: Launches, page: Page) -> str:
    if not data.ops.rows:
        return ""
    cells = [
        [
            code(row["op"]),
            f"{row['op_calls']:,}",
            f"{row['launches']:,}",
            f"{row['per_call']:.3g}",
            duration(row["host_ns"]),
            duration(row["gpu_ns"]),
        ]
        for row in data.ops.rows
    ]
    titles = ["op", "calls:", "launches:", "per call:", "launching:", "on GPU:"]
    return paragraphs(
        _SAID,
        page.all_steps(),
        written(titles, cells, data.ops),
    )
