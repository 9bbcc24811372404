"""The table of memory by line and op, as cells: of reports and of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from tracer.analysis.memory_use import MemoryUse
from tracer.report.text import count, size

if TYPE_CHECKING:
    from tracer.trace import Trace

_LINES = 3
"""Named above the table, whose rows are of a line and an op"""
_NOT_RECORDED = "Memory was not recorded. To see which lines use it: tracer record --memory SCRIPT."
_NO_BLOCKS = "No block of memory was allocated or freed while tracer recorded."


def without_blocks(environment: Mapping[str, Any]) -> str:
    """Why a trace has no memory to show."""
    return _NO_BLOCKS if (environment.get("options") or {}).get("memory") else _NOT_RECORDED


def no_op(trace: Trace) -> str:
    """How the op of memory is named that no recorded op asked for."""
    return "no op, or left out by --ops" if trace.only_ops else "no op"


def memory_titles() -> list[str]:
    """Those that end with a colon are of figures."""
    return ["line", "op", "at the peak:", "own peak:", "allocated:", "freed:", "blocks:"]


def memory_cells(
    rows: Sequence[dict[str, Any]], line: Callable[[str | None], str], op: Callable[[str | None], str]
) -> list[list[str]]:
    """A row for each of `rows` (MemoryUse.table); `line` and `op` write the first two cells."""
    return [
        [
            line(row["source"]),
            op(row["op"]),
            *(size(row[f"{name}_bytes"]) for name in ("peak", "own_peak", "allocated", "freed")),
            f"{row['blocks']:,}",
        ]
        for row in rows
    ]


def lines_at_peak(use: MemoryUse, line: Callable[[str | None], str]) -> str:
    """`At the peak by line: a.py:15 4.8 MiB, ...`; "" if no line has more than one row at the peak."""
    held = use.table.filter(pl.col("peak_bytes") > 0)
    lines = held.group_by("source", maintain_order=True).agg(pl.col("peak_bytes").sum())
    if len(lines) == len(held):
        return ""
    most = lines.sort("peak_bytes", descending=True, maintain_order=True).head(_LINES).iter_rows()
    named = [f"{line(source)} {size(held_bytes)}" for source, held_bytes in most]
    return f"At the peak by line: {', '.join(named)}{', ...' if len(lines) > _LINES else '.'}"


def about(use: MemoryUse, several_processes: bool) -> str:
    """`CPU: 10.1 MiB at the peak (step 1), 9.8 MiB left at the end; ...`"""
    where = f"{use.device.upper() if use.device == 'cpu' else use.device}"
    where += f" in process {use.process}" if several_processes else ""
    step = "" if use.peak_step is None else f" (in step {use.peak_step})"
    text = (
        f"{where}: {size(use.peak_bytes)} in use at the peak{step}, {size(use.end_bytes)} at the end. "
        f"{size(use.allocated_bytes)} allocated in {count(use.blocks, 'block')}."
    )
    if use.unknown:
        text += f" {count(use.unknown, 'block')} from before the recording {_were(use.unknown)} freed."
    return text


def _were(number: int) -> str:
    return "was" if number == 1 else "were"
