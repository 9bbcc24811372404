"""The API functions with the most host time: what each does, who calls it, and a stack."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import polars as pl

from tracer.analysis.api_functions import describe
from tracer.analysis.runtime_survey import SYNCHRONISATION
from tracer.report.cells import code, fenced, item, prose, wrapped
from tracer.report.page import Page, details
from tracer.report.reading import Reading, Rows, with_cuda
from tracer.report.text import count, shorten_kernel

title = "What each function does"
level = 3
wanted = with_cuda

_FRAMES = 8
_NAME = 72


@dataclass(frozen=True)
class Details:
    """Rows of `functions` also have `does` (a sentence) and `frames` (of an example stack)."""

    functions: Rows


def data(reading: Reading) -> Details:
    table = reading.api_functions
    functions = Rows.first(table, reading.most)
    stacks = [row["stack"] for row in functions.rows if row["stack"] is not None]
    known = reading.trace.stacks.filter(pl.col("id").cast(pl.Int64).is_in(stacks))
    frames = dict(known.iter_rows())
    for row in functions.rows:
        row["does"] = describe(row["name"]) or ""
        row["frames"] = frames.get(row["stack"]) or []
    return Details(functions)


def markdown(data: Details, page: Page) -> str:
    """The first functions (twice as many as paths one by one), and all that wait, however short they were."""
    rows = data.functions.rows
    shown = [row for place, row in enumerate(rows) if place < 2 * page.details or _waits(row)]
    more = len(rows) + data.functions.left_out - len(shown)
    said = [f"{count(more, 'more function')} left out."] * bool(more)
    summary = "What each function does, when PyTorch calls it, for which ops, and a stack"
    return details(summary, *map(_function, shown), *said)


def _function(row: dict[str, Any]) -> str:
    lines = [f"#### {code(row['name'])}", "", wrapped(prose(row["does"])), ""]
    lines.append(item(f"called by: {_counted(row['components'], code_spans=False)}"))
    lines.append(item(f"for ops: {_counted(row['ops'], nothing='no op')}"))
    if row["failed"]:
        lines.append(item(f"{count(row['failed'], 'call')} did not return success"))
    if row["frames"]:
        lines += ["- a stack:", "", fenced(stack_lines(row["frames"]))]
    return "\n".join(lines)


def stack_lines(frames: list[dict[str, Any]]) -> list[str]:
    """A line a frame, innermost first; frames without a name that follow each other in a library are one."""
    lines = []
    for (name, module), run in groupby(frames, key=_frame):
        several = len(list(run))
        if name:
            lines.append(f"{shorten_kernel(name, _NAME)}  ({module})")
        else:
            lines.append(f"{count(several, 'frame')} without a name  ({module})")
    return [*lines[:_FRAMES], f"... {len(lines) - _FRAMES} more"] if len(lines) > _FRAMES else lines


def _waits(row: dict[str, Any]) -> bool:
    """Whether the host, or a stream, waits in a function."""
    return row["role"] == SYNCHRONISATION or "WaitEvent" in row["name"]


def _counted(rows: list[dict[str, Any]], *, nothing: str = "unknown", code_spans: bool = True) -> str:
    words = [
        f"{(code(row['what']) if code_spans else row['what']) if row['what'] else nothing} ({row['count']:,})"
        for row in rows[:3]
    ]
    return ", ".join(words) + (", ..." if len(rows) > 3 else "")


def _frame(frame: dict[str, Any]) -> tuple[str, str]:
    return frame["function"] or "", os.path.basename(frame["module"] or "") or "unknown code"
