"""The kernels with the most GPU time beyond their limit."""

from __future__ import annotations

from tracer.report.cells import code, table
from tracer.report.kernel_tables import RANKED, KernelTables, kernel_name
from tracer.report.page import Page
from tracer.report.reading import with_cuda
from tracer.report.text import duration, left_out

title = "By possible gain"
level = 3
wanted = with_cuda
data = KernelTables.of


def markdown(data: KernelTables, page: Page) -> str:
    if not data.ranked:
        return ""
    shown = data.ranked[: page.rows or RANKED]
    names = data.names(shown, [(row.op, kernel_name(row), data.inputs(row)) for row in shown])
    rows = [
        [
            str(number),
            duration(round(row.score_ns or 0)),
            f"{100 * (row.headroom or 0):.0f} %",
            duration(row.total_ns),
            data.share(row),
            f"{row.calls:,}",
            code(row.op or "no op"),
            name,
            data.inputs(row),
        ]
        for number, (row, name) in enumerate(zip(shown, names, strict=True), 1)
    ]
    titles = ["#", "to gain:", "head-room:", "GPU time:", "share:", "calls:", "op", "kernel", "inputs"]
    return table(titles, rows, ragged=True) + left_out(len(data.ranked) - (page.rows or RANKED))
