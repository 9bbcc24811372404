"""Memory by the line and op that asked for it."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis.memory_use import MemoryUse, memory_use
from tracer.report.cells import code, table
from tracer.report.memory_tables import about, lines_at_peak, memory_cells, memory_titles, no_op
from tracer.report.page import Page, paragraphs
from tracer.report.reading import Reading, Rows
from tracer.report.text import left_out

title = "Memory"
level = 2

_ROWS = 20
_SAID = """\
Blocks of memory that torch's allocators gave out while the recording ran, by the line and the
outermost op that asked for them; blocks of a backward op count at its forward line. At the peak: what
a row had in use when the device had most in use. Own peak: the most that the row had in use at one
time."""


@dataclass(frozen=True)
class Memory:
    devices: tuple[tuple[MemoryUse, Rows], ...]
    none: str
    """How the op of memory is named that no recorded op asked for"""


def wanted(reading: Reading) -> bool:
    return bool(len(reading.trace.memory))


def data(reading: Reading) -> Memory:
    most = reading.rows or _ROWS
    uses = tuple((use, Rows.first(use.table, most)) for use in memory_use(reading.trace))
    return Memory(uses, no_op(reading.trace))


def markdown(data: Memory, page: Page) -> str:
    several = len({use.process for use, _ in data.devices}) > 1
    parts = [_SAID]
    for use, rows in data.devices:
        cells = memory_cells(
            rows.rows,
            lambda source: page.line(source) + page.text(source),
            lambda op: code(op) if op else data.none,
        )
        said = f"{about(use, several)} {lines_at_peak(use, page.line)}".rstrip()
        parts += [said, table(memory_titles(), cells) + left_out(rows.left_out)]
    return paragraphs(*parts)
