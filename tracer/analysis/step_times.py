"""Where the wall time of each step goes: in ops, outside of them, and in waits for the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracer.analysis.cover import Cover, Times
from tracer.analysis.distinct import distinct
from tracer.analysis.phases import BACKWARD, calling_line, in_backward, in_optimizer, of_compiled_backward
from tracer.analysis.runtime_survey import SYNCHRONISATION

if TYPE_CHECKING:
    from tracer.trace import Trace

OUTLIER = 1.5
"""A step is marked if it takes this many medians of the steady steps, or of all steps without those."""
WHOLE, AFTER = "whole recording", "after the last step"
RANGE_OPS = "profiler::_record_function"
_KINDS = ("waiting", "optimizer", "backward", "forward")


def step_times(trace: Trace) -> pl.DataFrame:
    """A row for each step of each process, in order, and one for what ran after the last step.

    Columns: process, step (null: not a step), name (the step's number in words), phase, start_ns, wall_ns,
    and its parts, which add up to it: waiting_ns (API calls that wait for the GPU), optimizer_ns,
    backward_ns, forward_ns (every other op; calls of compiled code are in these two), outside_ns (no thread
    of the process was in an op or waited for the GPU). Then gpu_busy_ns (a kernel, copy or memset ran), ops
    (outermost op calls) and of_median (wall_ns over the median of the process's steady steps; of all its
    steps without those).
    A process without steps has one row.
    """
    tables = [_of_process(trace, process, windows) for process, windows in _windows(trace)]
    return pl.concat(tables) if tables else _table(0, pl.DataFrame(schema=_WINDOW), {}).clear()


def outermost(trace: Trace, process: int) -> pl.DataFrame:
    """Outermost op calls of a process, and calls of compiled code.

    op, line (that called), start_ns, end_ns, backward, optimizer, compiled, thread (null: a call of
    compiled code).

    The line of an op that a thread of autograd called is BACKWARD: no Python line called it. The ops with
    which torch.profiler.record_function begins and ends a range are left out.
    """
    hops = trace.hops
    names = distinct(hops, "op")["op"].cast(pl.String).drop_nulls()
    bookkeeping = names.filter(names.str.starts_with(RANGE_OPS)).to_list()
    chosen = (pl.col("process") == process) & pl.col("parent").is_null()
    if bookkeeping:
        chosen &= ~pl.col("op").is_in(bookkeeping).fill_null(False)
    rows = hops.select(
        *("op", "start_ns", "end_ns", "thread"),
        line=calling_line(),
        backward=in_backward(),
        optimizer=in_optimizer(),
    ).filter(hops.select(chosen).to_series())
    ops = rows.select(
        pl.col("op").cast(pl.String),
        "start_ns",
        "backward",
        pl.col("end_ns").fill_null(pl.col("end_ns").max()),  # of an open hop
        "line",
        "optimizer",
        compiled=pl.lit(False),
        thread=pl.col("thread").cast(pl.Int64),
    )
    compiled = trace.compiled_calls.filter(pl.col("process") == process)
    return pl.concat([ops, _compiled(compiled).select(ops.columns)]) if len(compiled) else ops


def _compiled(calls: pl.DataFrame) -> pl.DataFrame:
    backward = of_compiled_backward()
    return calls.select(
        "start_ns",
        "end_ns",
        op=pl.concat_str(
            [pl.lit("compiled"), pl.col("function").cast(pl.String)], separator=" ", ignore_nulls=True
        ),
        backward=backward,
        line=pl.col("called_from").cast(pl.String).fill_null(pl.when(backward).then(pl.lit(BACKWARD))),
        optimizer=pl.lit(False),
        compiled=pl.lit(True),
        thread=pl.lit(None, pl.Int64),
    )


def waits(trace: Trace, process: int) -> pl.DataFrame:
    """API calls of a process that wait for the GPU: name, line, start_ns, end_ns, hop."""
    calls = trace.api_calls.filter(
        (pl.col("process") == process) & (pl.col("role").cast(pl.String) == SYNCHRONISATION)
    )
    return calls.select(
        pl.col("name").cast(pl.String),
        "start_ns",
        pl.col("end_ns").fill_null(pl.col("start_ns")),
        "hop",
        line=pl.col("source").cast(pl.String),
    )


_WINDOW = {
    "step": pl.Int64,
    "name": pl.String,
    "phase": pl.String,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
}


def _windows(trace: Trace) -> Iterator[tuple[int, pl.DataFrame]]:
    """The steps of each process that has hops, as _WINDOW has them, and what comes after the last one."""
    moments = trace.hops.group_by("process").agg(
        begin=pl.col("start_ns").min(),
        end=pl.max_horizontal(pl.col("start_ns").max(), pl.col("end_ns").max()),
    )
    for process, begin, end in moments.sort("process").iter_rows():
        steps = trace.steps.filter(pl.col("process") == process).select(
            "step",
            "start_ns",
            "end_ns",
            name=pl.col("step").cast(pl.String),
            phase=pl.col("phase").cast(pl.String),
        )
        last = steps["end_ns"].max() if len(steps) else None
        if last is None or last < end:
            rest = (None, WHOLE if last is None else AFTER, None, begin if last is None else last, end)
            steps = pl.concat(
                [steps.select(list(_WINDOW)), pl.DataFrame([rest], _WINDOW, orient="row")], how="vertical"
            )
        yield int(process), steps.select(list(_WINDOW))


def _of_process(trace: Trace, process: int, windows: pl.DataFrame) -> pl.DataFrame:
    ops, waiting = outermost(trace, process), waits(trace, process)
    starts = np.sort(ops.filter(~pl.col("compiled"))["start_ns"].to_numpy())
    backward, optimizer = ops["backward"].to_numpy(), ops["optimizer"].to_numpy()
    kinds = [
        _interval(waiting),
        _interval(ops.filter(pl.lit(optimizer))),
        _interval(ops.filter(pl.lit(backward & ~optimizer))),
        _interval(ops.filter(pl.lit(~backward & ~optimizer))),
    ]
    del ops
    begins, ends = windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy()
    parts: dict[str, Times] = {}
    known, before = (np.empty(0, np.int64),) * 2, np.zeros(len(windows), np.int64)
    for kind, intervals in zip(_KINDS, kinds, strict=True):  # what several threads do at once counts once
        known = np.concatenate([known[0], intervals[0]]), np.concatenate([known[1], intervals[1]])
        covered = Cover.of(*known).within(begins, ends)
        parts[f"{kind}_ns"], before = covered - before, covered
    parts["outside_ns"] = ends - begins - before
    work = trace.gpu_activities.filter((pl.col("process") == process) & (pl.col("start_ns") > 0))
    parts["gpu_busy_ns"] = Cover.of(*_interval(work)).within(begins, ends)
    parts["ops"] = np.searchsorted(starts, ends, "left") - np.searchsorted(starts, begins, "left")
    return _table(process, windows, parts)


def _interval(rows: pl.DataFrame) -> tuple[Times, Times]:
    return rows["start_ns"].to_numpy().astype(np.int64), rows["end_ns"].to_numpy().astype(np.int64)


def _table(process: int, windows: pl.DataFrame, parts: dict[str, Times]) -> pl.DataFrame:
    nothing = np.zeros(len(windows), np.int64)
    names = (*(f"{kind}_ns" for kind in _KINDS), "outside_ns", "gpu_busy_ns", "ops")
    wall = pl.col("end_ns") - pl.col("start_ns")
    steps = windows.filter(pl.col("step").is_not_null())
    steady = steps.filter(pl.col("phase") == "steady")
    usual = (steady if len(steady) else steps).select(wall.median()).item() if len(steps) > 1 else None
    return windows.select(
        pl.lit(process, pl.UInt32).alias("process"),
        *("step", "name", "phase", "start_ns"),
        wall.alias("wall_ns"),
        *(pl.lit(pl.Series(parts.get(name, nothing), dtype=pl.Int64)).alias(name) for name in names),
        of_median=pl.when(pl.col("step").is_not_null())
        .then(wall / usual if usual else None)
        .cast(pl.Float64),
    )
