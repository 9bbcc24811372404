"""Compiled code in the combined frame of links: a row for each call of a region, and each run of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracer.analysis.trees import Forest
from tracer.trace.bytes.arrays import nearest, take
from tracer.trace.tables.compiled import innermost
from tracer.trace.tables.schema import GPU_KINDS
from tracer.trace.tables.series import numbers

if TYPE_CHECKING:
    from tracer.trace import Trace

COMPILED, COMPILED_KERNEL = "compiled", "compiled kernel"
COMPILED_KINDS = (COMPILED, COMPILED_KERNEL)
_MOST_SOURCES = 4


def has_compiled(trace: Trace) -> bool:
    return bool(len(trace.compiled_calls) + len(trace.compiled_kernels))


def with_compiled(rows: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """`rows` of links (number, parent) and those of compiled code; what ran in compiled code is below it."""
    if not has_compiled(trace):
        return rows
    first = int(rows["number"].max() or 0) + 1  # type: ignore[arg-type]
    marks = _marks(trace)
    around = innermost(marks, *_places(rows))
    parent = numbers(rows["parent"])
    moved = around >= 0
    moved &= ~rows["kind"].is_in(GPU_KINDS).to_numpy()  # they are below their API calls
    # The hop around a row stays its parent if it runs in the compiled code, and not around it.
    moved &= _starts(rows, parent) <= np.append(numbers(marks["start_ns"]), -1)[around]
    rows = rows.with_columns(parent=pl.Series(np.where(moved, around + first, parent)))
    outer, hop = numbers(marks["parent"]), numbers(marks["under"])
    in_outer = (outer >= 0) & (np.append(numbers(marks["start_ns"]), -1)[outer] >= _starts(rows, hop))
    marks = marks.with_columns(
        parent=pl.Series(np.where(in_outer, outer + first, hop)),
        number=pl.int_range(pl.len(), dtype=pl.Int64) + first,
    )
    return pl.concat([rows, marks], how="diagonal_relaxed")


def _places(rows: pl.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return numbers(rows["process"]), numbers(rows["thread"]), numbers(rows["start_ns"])


def _starts(rows: pl.DataFrame, wanted: np.ndarray) -> np.ndarray:
    """When the rows with these numbers began; -1 for the number -1."""
    starts = np.full(int(rows["number"].max() or 0) + 2, -1, np.int64)  # type: ignore[arg-type]
    starts[rows["number"].to_numpy()] = numbers(rows["start_ns"])
    return starts[wanted]


def texts_of_compiled(trace: Trace) -> tuple[pl.Series, pl.Series]:
    """What the tree says of each call, and of each run of a kernel."""
    calls = trace.compiled_calls.select(
        pl.concat_str(
            [
                pl.col("direction").cast(pl.String),
                pl.format("graph {}", pl.col("compile_id").cast(pl.String)),
                pl.format("cache {}", pl.col("cache").cast(pl.String)),
            ],
            separator=", ",
            ignore_nulls=True,
        )
    ).to_series()
    kernels = trace.compiled_kernels.select(
        pl.concat_str(
            [
                pl.col("fused_ops").list.join(" + "),
                pl.when(pl.col("origin") == "name").then(pl.lit("by its name")),
                pl.when(pl.col("sources").list.len() > 0).then(
                    pl.format("of {}{}", _short_sources(), _more_sources())
                ),
                pl.when(pl.col("threads") > 1).then(pl.format("{} threads", "threads")),
                pl.when(pl.col("autotuning")).then(pl.lit("autotuning")),
            ],
            separator=", ",
            ignore_nulls=True,
        )
    ).to_series()
    return calls, kernels


def _short_sources() -> pl.Expr:
    return (
        pl.col("sources")
        .list.head(_MOST_SOURCES)
        .list.eval(pl.element().str.extract(r"([^/]*)$"))
        .list.join(" ")
    )


def _more_sources() -> pl.Expr:
    more = pl.col("sources").list.len().cast(pl.Int64) - _MOST_SOURCES
    return pl.when(more > 0).then(pl.format(" and {} more lines", more)).otherwise(pl.lit(""))


def _marks(trace: Trace) -> pl.DataFrame:
    """Calls and runs of kernels by process, thread and start; `parent` is the row of the one around."""
    calls, kernels = trace.compiled_calls, trace.compiled_kernels
    shared = [
        pl.col("process", "thread", "start_ns", "end_ns").cast(pl.Int64),
        pl.col("open"),
        pl.col("hop").cast(pl.Int64).alias("under"),
        pl.col("step").cast(pl.Int64),
        pl.col("phase", "called_from").cast(pl.String),
    ]
    function, source = pl.col("function").cast(pl.String), pl.col("called_from").cast(pl.String)
    marks = pl.concat(
        [
            calls.select(
                *shared,
                kind=pl.lit(COMPILED),
                op=pl.concat_str([pl.lit("compiled"), function], separator=" ", ignore_nulls=True),
                source=source,
                compiled_call=pl.col("id").cast(pl.Int64),
                parent=pl.col("parent").cast(pl.Int64),
            ),
            kernels.select(
                *shared,
                kind=pl.lit(COMPILED_KERNEL),
                op=pl.col("name").cast(pl.String),
                source=pl.coalesce(pl.col("source").cast(pl.String), source),
                compiled_kernel=pl.col("id").cast(pl.Int64),
                parent=pl.col("compiled_call").cast(pl.Int64),
            ),
        ],
        how="diagonal_relaxed",
    )
    order = marks.with_row_index("row").sort("process", "thread", "start_ns", "row")["row"].to_numpy()
    place = np.empty(len(marks) + 1, np.int64)
    place[order] = np.arange(len(marks))
    place[-1] = -1
    parent = place[numbers(marks["parent"])]  # calls come first, so the number of one is its row
    return marks.with_columns(parent=pl.Series(parent, dtype=pl.Int64))[order]


def outermost(forest: Forest) -> np.ndarray:
    """Which rows have none around them but calls of compiled code, which are not among them."""
    return _outermost(forest)[1]


def without_calls(forest: Forest) -> Forest:
    """The forest without calls of compiled code that no hop encloses: what is in them is outermost."""
    calls = _outermost(forest)[0]
    return Forest.of(forest.hops.filter(~calls)) if calls.any() else forest


def _outermost(forest: Forest) -> tuple[np.ndarray, np.ndarray]:
    """(calls of compiled code in nothing but such, other rows in nothing but such)."""
    top = forest.parent < 0
    if "compiled_call" not in forest.hops.columns:
        return np.zeros_like(top), top
    is_call = forest.hops["compiled_call"].is_not_null().to_numpy()
    top = take(nearest(forest.parent, ~is_call), forest.parent) < 0
    return is_call & top, ~is_call & top
