"""What compiled code took: its kernels, its regions, and the compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracer.trace.tables.series import numbers

if TYPE_CHECKING:
    from tracer.trace import Trace


_PER_SECOND = 1e9


def kernel_times(trace: Trace) -> pl.DataFrame:
    """A row for each kernel of each region, the longest first; autotuning left out.

    name, function, direction, fused_ops, sources, origin, runs, total_ns and median_ns (on the GPU for
    kernels that ran there, else on the host), on_gpu, bytes of a run, bytes_per_s (null: unknown).
    """
    gpu = (
        trace.gpu_activities.filter(pl.col("compiled_kernel").is_not_null())
        .group_by("compiled_kernel")
        .agg(gpu_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    )
    calls = trace.compiled_calls.select("region", "function", "direction", compiled_call="id")
    runs = (
        trace.compiled_kernels.filter(~pl.col("autotuning"))
        .join(gpu, left_on="id", right_on="compiled_kernel", how="left", maintain_order="left")
        .join(calls, on="compiled_call", how="left", maintain_order="left")
        .with_columns(taken=pl.coalesce("gpu_ns", pl.col("end_ns") - pl.col("start_ns")))
    )
    return (
        runs.group_by("process", "region", "name", maintain_order=True)
        .agg(
            pl.col("function", "direction", "fused_ops", "sources", "origin", "bytes").first(),
            runs=pl.len(),
            total_ns=pl.col("taken").sum(),
            median_ns=pl.col("taken").median().round().cast(pl.Int64),
            on_gpu=pl.col("gpu_ns").is_not_null().any(),
        )
        .with_columns(bytes_per_s=_per_second())
        .sort("total_ns", descending=True, maintain_order=True)
    )


def _per_second() -> pl.Expr:
    return pl.when(pl.col("median_ns") > 0).then(pl.col("bytes") / pl.col("median_ns") * _PER_SECOND)


def region_times(trace: Trace) -> pl.DataFrame:
    """A row for each region, in order of its first call.

    region, function, defined_at, direction, compile_id, cache, recompiled, visible, calls, and of the time of
    the calls total_ns, median_ns and longest_ns.
    """
    duration = pl.col("end_ns") - pl.col("start_ns")
    about = ("function", "defined_at", "direction", "compile_id", "cache", "recompiled", "visible")
    return trace.compiled_calls.group_by("process", "region", maintain_order=True).agg(
        pl.col(*about).first(),
        calls=pl.len(),
        total_ns=duration.sum(),
        median_ns=duration.median().round().cast(pl.Int64),
        longest_ns=duration.max(),
    )


def phase_times(phases: pl.DataFrame) -> pl.DataFrame:
    """A row for each phase of the compiler, by its own time: what no phase within it took.

    name, times, total_ns, own_ns.
    """
    duration = (phases["end_ns"] - phases["start_ns"]).to_numpy()
    own = duration.astype(np.int64).copy()
    parent = numbers(phases["parent"])
    inner = np.flatnonzero(parent >= 0)
    np.subtract.at(own, parent[inner], duration[inner])
    return (
        phases.with_columns(duration=pl.Series(duration), own=pl.Series(own))
        .group_by("name", maintain_order=True)
        .agg(times=pl.len(), total_ns=pl.col("duration").sum(), own_ns=pl.col("own").sum())
        .sort("own_ns", descending=True, maintain_order=True)
    )


def compile_times(phases: pl.DataFrame) -> pl.DataFrame:
    """A row for each compilation, in order: compile_id, source (the line that ran), total_ns.

    Phases without a compilation, of threads of the compiler, are one row: its compile_id is null.
    """
    outermost = phases.filter(pl.col("parent").is_null())
    return outermost.group_by("process", "compile_id", maintain_order=True).agg(
        pl.col("source").first(), total_ns=(pl.col("end_ns") - pl.col("start_ns")).sum()
    )
