"""Every kernel with its launch, resources, work and limit."""

from __future__ import annotations

from tracer.analysis.kernel_survey import KernelRow
from tracer.report.cells import code, table
from tracer.report.kernel_tables import KernelTables, extent, is_shortened, kernel_name
from tracer.report.page import Page, details, paragraphs
from tracer.report.reading import with_cuda
from tracer.report.text import amount, duration, left_out, size

title = "All kernels"
level = 3
wanted = with_cuda
data = KernelTables.of

_MOST = 60


def markdown(data: KernelTables, page: Page) -> str:
    if not data.survey.rows:
        return ""
    said = "Bytes, FLOP and limit are those of a whole call of the op."
    return paragraphs(
        details("Launch, resources, work, limit", said, _table(data, page.rows or _MOST)),
        details("Names that the tables shorten", _names(data)),
    )


def _table(data: KernelTables, most: int) -> str:
    """Every kernel with its launch, resources and work."""
    shown = data.survey.rows[:most]
    names = data.names(
        shown,
        [
            (row.grid, row.block, row.registers, row.shared_bytes, kernel_name(row), data.inputs(row))
            for row in shown
        ],
        has_bytes=True,
    )
    rows = [
        [
            ", ".join([extent(row.grid), extent(row.block), *_waves(row)]),
            f"{row.registers}, {size(row.shared_bytes)}",
            _occupancy(row),
            size(row.work.bytes) if row.work and row.work.bytes is not None else "unknown",
            amount(row.work.flops, "FLOP") if row.work else "unknown",
            duration(round(row.limit.ns)) if row.limit else "unknown",
            duration(row.median_ns),
            "<br>".join(text for text in (name, data.inputs(row)) if text),
        ]
        for row, name in zip(shown, names, strict=True)
    ]
    titles = ["grid, block, waves:", "registers, shared:", "occupancy:"]
    titles += ["bytes:", "FLOP:", "limit:", "median:", "kernel, inputs"]
    return table(titles, rows, ragged=True) + left_out(len(data.survey.rows) - most)


def _names(data: KernelTables) -> str:
    """The whole of each name that tables shorten, as a list."""
    kernels = dict.fromkeys(row.kernel for row in data.survey.rows)
    return "\n".join(f"- {code(kernel)}" for kernel in kernels if is_shortened(kernel))


def _occupancy(row: KernelRow) -> str:
    return f"{100 * row.occupancy.share:.0f} %" if row.occupancy else ""


def _waves(row: KernelRow) -> list[str]:
    return [f"{row.occupancy.waves:.3g}"] if row.occupancy else []
