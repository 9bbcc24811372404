"""What the compiled code of a trace ran: kernels and op calls, by the lines of their nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracer.analysis.difference.op_calls import base_name, is_work, outermost_of, parents, timed
from tracer.analysis.difference.places import Places, by_step, within
from tracer.analysis.phases import of_compiled_backward
from tracer.analysis.source_lines import SourceLines
from tracer.trace.tables.compiled import innermost

if TYPE_CHECKING:
    from tracer.trace import Trace

_OF_TORCH = r"-packages/torch/"
"""In lines of torch's own modules, which say nothing about the program: nn.Sequential, nn.ReLU"""


@dataclass(frozen=True)
class CompiledRuns:
    """Times are in nanoseconds, on the GPU for what ran there.

    kernels    a row for each kernel of each region: kernel (its number), name, function, backward, bytes (of
               a run; null: unknown), on_gpu, known (whether its nodes are)
    runs       a row for each run of a kernel: kernel, step, ns
    nodes      what kernels compute: kernel, line, op, backward, weight (the number of runs that do), work
               (false: it moves no data)
    ops        op calls that compiled code makes: line, op, backward, step, ns, gpu_ns, launches
    calls_ns   host time of the calls of compiled code in each step
    own_ns     the part of it in which neither a kernel nor an op ran
    hidden     calls whose kernels are not recorded

    `line` is a number of Places, `op` a name as base_name gives it.
    """

    kernels: pl.DataFrame
    runs: pl.DataFrame
    nodes: pl.DataFrame
    ops: pl.DataFrame
    calls_ns: list[float]
    own_ns: list[float]
    hidden: int


def compiled_runs(trace: Trace, steps: Sequence[int] | None, places: Places) -> CompiledRuns:
    """What ran in these steps (None: in the whole run). Runs that only tune a kernel are left out."""
    sources = SourceLines.of(trace)
    table = _kernels(trace)
    launched = _launched(trace, table)
    on_gpu = launched["kernel"].unique().to_list()
    table = table.with_columns(on_gpu=pl.col("kernel").is_in(on_gpu))
    of_host = table.filter(~pl.col("on_gpu")).select("id", "kernel", "step", ns="host_ns")
    runs = within(pl.concat([of_host, launched]), steps)
    used = table.filter(pl.col("kernel").is_in(runs["kernel"].unique().to_list()))
    ops = _ops(trace)
    ops = ops.with_columns(line=places.numbers(sources, ops["source"])).drop("source")
    calls = trace.compiled_calls.filter(pl.col("parent").is_null())
    calls_ns = by_step(
        within(calls.select("step", ns=pl.col("end_ns") - pl.col("start_ns")), steps), "ns", steps
    )
    outermost = table.filter(pl.col("parent").is_null()).select("step", ns="host_ns")
    inside = by_step(within(pl.concat([outermost, ops.select("step", "ns")]), steps), "ns", steps)
    return CompiledRuns(
        kernels=used.group_by("kernel", maintain_order=True).agg(
            pl.col("name", "function", "backward", "bytes", "on_gpu").first(),
            known=(pl.col("nodes").list.len() > 0).fill_null(False).any(),
        ),
        runs=runs.drop("id"),
        nodes=_nodes(runs, table, places, sources),
        ops=within(ops, steps),
        calls_ns=calls_ns,
        own_ns=[max(0.0, whole - part) for whole, part in zip(calls_ns, inside, strict=True)],
        hidden=len(trace.compiled_calls.filter(~pl.col("visible"))),
    )


def _kernels(trace: Trace) -> pl.DataFrame:
    """Runs of kernels with the number of their kernel, their region, and host_ns."""
    calls = trace.compiled_calls.select(
        pl.col("function", "direction").cast(pl.String), "region", _caller(), compiled_call="id"
    )
    return (
        trace.compiled_kernels.filter(~pl.col("autotuning"))
        .join(calls, on="compiled_call", how="left", maintain_order="left")
        .with_columns(
            pl.col("name").cast(pl.String),
            backward=of_compiled_backward(),
            host_ns=pl.col("end_ns") - pl.col("start_ns"),
        )
        .with_columns(kernel=pl.struct("process", "region", "name").rank("dense").cast(pl.Int64))
    )


def _caller() -> pl.Expr:
    """The line that called each compiled function; of a backward the one that called its forward."""
    line, direction = pl.col("called_from").cast(pl.String), pl.col("direction").cast(pl.String)
    of_forward = line.filter(direction != "backward").first().over("process", "compile_id")
    return pl.when(pl.col("compile_id").is_not_null()).then(of_forward).fill_null(line).alias("caller")


def _own_line() -> pl.Expr:
    """`source`, or the line that called the compiled function if that is unknown or a line of torch."""
    line = pl.col("source").cast(pl.String)
    own = pl.when(~line.str.contains(_OF_TORCH)).then(line)
    return pl.coalesce(own, "caller").alias("source")


def _launched(trace: Trace, table: pl.DataFrame) -> pl.DataFrame:
    """A row for each run on the GPU, replays of CUDA graphs too: id, kernel, step, ns."""
    kernels = trace.gpu_activities.filter(pl.col("kind").cast(pl.String) == "kernel").select(
        "step", id="compiled_kernel", ns=pl.col("end_ns") - pl.col("start_ns")
    )
    return table.select("id", "kernel").join(kernels, on="id").select("id", "kernel", "step", "ns")


def _nodes(runs: pl.DataFrame, table: pl.DataFrame, places: Places, sources: SourceLines) -> pl.DataFrame:
    nodes = (
        runs.group_by("id", maintain_order=True)
        .agg(weight=pl.len())
        .join(table.select("id", "kernel", "nodes", "backward", "caller"), on="id", maintain_order="left")
        .explode("nodes")
        .unnest("nodes")
        .with_columns(_own_line(), op=base_name())
        .drop_nulls("op")
    )
    nodes = nodes.with_columns(line=places.numbers(sources, nodes["source"]), work=is_work(pl.col("op")))
    return nodes.group_by("kernel", "line", "op", "backward", "work", maintain_order=True).agg(
        pl.col("weight").sum().cast(pl.Int64)
    )


def _ops(trace: Trace) -> pl.DataFrame:
    """Outermost op calls within calls of compiled code: source, op, backward, step, ns, gpu_ns, launches."""
    hops = trace.hops
    places = (hops[name].cast(pl.Int64).to_numpy() for name in ("process", "thread", "start_ns"))
    call = innermost(trace.compiled_calls, *places)
    parent = parents(hops)
    first = (call >= 0) & (np.append(call, -1)[parent] != call)
    backward = trace.compiled_calls.select(of_compiled_backward()).to_series().to_numpy()
    times = timed(trace, hops, outermost_of(first, parent))
    rows = times["row"].to_numpy()
    caller = trace.compiled_calls.select(_caller()).to_series().gather(call[rows])
    return times.with_columns(
        hops[rows].select("source", caller=caller).select(_own_line()).to_series(),
        hops[rows].select(op=base_name()).to_series(),
        backward=pl.Series(np.append(backward, False)[call[rows]], dtype=pl.Boolean),
    ).drop("row")
