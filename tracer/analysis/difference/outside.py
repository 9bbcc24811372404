"""Time outside ops, by the lines of the ops around it, in each step of each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracer.analysis.difference.places import WHOLE, Places, by_step
from tracer.analysis.gaps import gaps_within
from tracer.analysis.phases import BACKWARD
from tracer.analysis.source_lines import NO_LINE, SourceLines
from tracer.analysis.step_times import recorded

if TYPE_CHECKING:
    from tracer.trace import Trace

Between = tuple[str, str]
"""Names of the lines before and after; phases.BACKWARD: a thread of autograd; NO_LINE"""


def outside_of(trace: Trace, steps: Sequence[int] | None, places: Places) -> dict[Between, list[float]]:
    """Of the first process that has these steps (None: of its whole run): nanoseconds of each step."""
    windows = _windows(trace, steps)
    if windows.is_empty():
        return {}
    process = int(windows["process"].to_numpy().min())
    windows = windows.filter(pl.col("process") == process).sort("start_ns")
    rows = gaps_within(trace, process, windows.select("start_ns", "end_ns"))
    place = np.searchsorted(windows["start_ns"].to_numpy(), rows["end_ns"].to_numpy(), "left") - 1
    sources = SourceLines.of(trace)
    rows = rows.select(
        "length",
        before=_names(rows["before"], sources, places),
        after=_names(rows["after"], sources, places),
        step=windows["step"].gather(np.clip(place, 0, None)),
    )
    parts = rows.partition_by("before", "after", as_dict=True, maintain_order=True)
    return {(one, other): by_step(part, "length", steps) for (one, other), part in parts.items()}


def _windows(trace: Trace, steps: Sequence[int] | None) -> pl.DataFrame:
    """process, step, start_ns, end_ns"""
    if steps is None:
        return recorded(trace).with_columns(step=pl.lit(WHOLE, pl.Int64))
    return trace.steps.filter(pl.col("step").is_in(list(steps))).select(
        "process", "step", "start_ns", "end_ns"
    )


def _names(lines: pl.Series, sources: SourceLines, places: Places) -> pl.Series:
    known = lines.filter(lines != BACKWARD).unique()
    names = [places.names[number] for number in places.numbers(sources, known)]
    named = lines.replace_strict([*known, BACKWARD], [*names, BACKWARD], default=NO_LINE)
    return named.fill_null(NO_LINE)
