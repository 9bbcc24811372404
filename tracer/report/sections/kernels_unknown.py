"""Kernels whose work is unknown."""

from __future__ import annotations

from tracer.report.cells import code, table
from tracer.report.kernel_tables import RANKED, KernelTables, kernel_name
from tracer.report.page import Page, paragraphs
from tracer.report.reading import with_cuda
from tracer.report.text import duration, left_out

title = "Kernels without a known limit"
level = 3
wanted = with_cuda
data = KernelTables.of


def markdown(data: KernelTables, page: Page) -> str:
    if not data.unknown:
        return ""
    shown = data.unknown[: page.rows or RANKED]
    names = data.names(shown, [(row.op, kernel_name(row), data.inputs(row)) for row in shown])
    rows = [
        [
            duration(row.total_ns),
            data.share(row),
            f"{row.calls:,}",
            duration(row.median_ns),
            code(row.op or "no op"),
            name,
            data.inputs(row),
            row.unknown,
        ]
        for row, name in zip(shown, names, strict=True)
    ]
    titles = ["GPU time:", "share:", "calls:", "median:", "op", "kernel", "inputs", "why"]
    more = left_out(len(data.unknown) - (page.rows or RANKED))
    return paragraphs(
        "Their bytes and operations are unknown; the last column says why.",
        table(titles, rows, ragged=True) + more,
    )
