"""What a timeline shows above the calls of a thread, as nested slices: steps, modules, compiled code..."""

from __future__ import annotations

import numpy as np
import polars as pl

from tracer.analysis.ranges import lanes
from tracer.analysis.trees import parent_rows
from tracer.trace import Trace
from tracer.trace.tables.schema import Schema

MARKS: Schema = {
    "name": pl.String,
    "process": pl.UInt32,
    "thread": pl.UInt32,
    "parent": pl.Int64,
    "lane": pl.Int64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "step": pl.Int64,
    "phase": pl.String,
}
"""`thread` is null of what belongs to a process; `parent` is a row of the same table, in the same lane"""


def step_marks(trace: Trace) -> pl.DataFrame:
    """A slice for each step that ended."""
    return _marks(
        trace.steps.select(
            "process", "start_ns", "end_ns", "step", "phase", name=pl.format("step {}", pl.col("step"))
        )
    )


def range_marks(trace: Trace) -> pl.DataFrame:
    """A slice for each range of record_function; in lanes where they overlap and none is in the other."""
    columns = ("process", "thread", "start_ns", "end_ns", "step", "phase")
    lane, around = lanes(trace.ranges)
    name = pl.col("name").cast(pl.String).fill_null("?")
    return _marks(trace.ranges.select(*columns, name=name, lane=pl.Series(lane), parent=pl.Series(around)))


def compiled_marks(trace: Trace) -> pl.DataFrame:
    """A slice for each call of compiled code, and within it one for each run of a kernel."""
    shared = ("process", "thread", "start_ns", "end_ns", "step", "phase")
    function = pl.col("function").cast(pl.String)
    calls = trace.compiled_calls.select(
        *shared,
        parent=pl.col("parent").cast(pl.Int64),
        name=pl.concat_str([pl.lit("compiled"), function], separator=" ", ignore_nulls=True),
    )
    inner = pl.col("parent").cast(pl.Int64) + len(calls)  # a kernel that is tuned is within its tuning
    kernels = trace.compiled_kernels.select(
        *shared,
        parent=pl.coalesce(inner, pl.col("compiled_call").cast(pl.Int64)),
        name=pl.col("name").cast(pl.String),
    )
    return _marks(pl.concat([calls, kernels.select(calls.columns)]))


_DEEPEST = 128
"""Modules in modules; a path of a trace may have 4,096 parts, and each op a slice for each of them"""


def phase_marks(trace: Trace) -> pl.DataFrame:
    """A slice for each phase of the compiler."""
    columns = ("process", "thread", "parent", "start_ns", "end_ns")
    return _marks(trace.compile_phases.select(*columns, name=pl.col("name").cast(pl.String)))


def module_marks(trace: Trace) -> pl.DataFrame:
    """A slice for each stretch of outermost ops in one module, within that of the module around it.

    From the start of the first of these ops to the end of the last: when the module itself was entered and
    left is not recorded. Ops of the backward pass have the modules of their forward ops. What is deeper than
    _DEEPEST is one slice.
    """
    if trace.hops["module"].null_count() == len(trace.hops):
        return pl.DataFrame(schema=MARKS)
    outermost = trace.hops.filter(pl.Series(parent_rows(trace.hops) < 0))
    rows = outermost.select(
        "process",
        "thread",
        "start_ns",
        pl.col("end_ns").fill_null(pl.col("start_ns")),
        "module",
    )
    paths = rows["module"].unique().drop_nulls()
    parts = [path.split(".", _DEEPEST - 1) for path in paths.cast(pl.String)]
    rows = rows.join(
        pl.DataFrame({"module": paths, "parts": pl.Series(parts, dtype=pl.List(pl.String))}),
        on="module",
        how="left",
        maintain_order="left",
    ).with_columns(length=pl.col("parts").list.len().fill_null(0))
    tables: list[pl.DataFrame] = []
    above = np.full(len(rows), -1, np.int64)  # the slice around each op at the level before
    first = 0
    for level in range(int(np.max(rows["length"].to_numpy(), initial=0))):
        inside = (rows["length"] > level).to_numpy()
        name = rows["parts"].list.get(level, null_on_oob=True)
        key = pl.DataFrame([rows["process"], rows["thread"], name.alias("name")]).with_columns(
            above=pl.Series(above), inside=pl.Series(inside)
        )
        run = key.select(pl.struct(pl.all()).rle_id()).to_series()
        table = (
            rows.select("process", "thread", "start_ns", "end_ns")
            .with_columns(name=name, parent=pl.Series(above), run=run)
            .filter(pl.Series(inside))
            .group_by("run", maintain_order=True)
            .agg(
                pl.col("name", "process", "thread", "parent", "start_ns").first(),
                pl.col("end_ns").max(),
            )
        )
        place = np.full(len(rows), -1, np.int64)  # of each run
        place[table["run"].to_numpy()] = np.arange(len(table)) + first
        above = np.where(inside, place[run.to_numpy()], -1)
        first += len(table)
        tables.append(table.drop("run"))
    return _marks(pl.concat(tables) if tables else pl.DataFrame(schema=MARKS))


def _marks(rows: pl.DataFrame) -> pl.DataFrame:
    missing = [pl.lit(None).alias(name) for name in MARKS if name not in rows.columns]
    rows = rows.with_columns(missing).select(pl.col(name).cast(dtype) for name, dtype in MARKS.items())
    return rows.with_columns(
        pl.col("parent").fill_null(-1),
        pl.col("lane").fill_null(0),
        end_ns=pl.max_horizontal("start_ns", "end_ns"),
    )
