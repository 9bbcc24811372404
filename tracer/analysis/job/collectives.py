"""Collective calls of torch.distributed, and the calls of all ranks that are one collective."""

from __future__ import annotations

import json
from contextlib import suppress

import polars as pl

from tracer.analysis.dtypes import item_bytes
from tracer.analysis.job.part import RankPart
from tracer.analysis.phases import BACKWARD, in_backward

NAMESPACE = "c10d::"
SYMMETRIC = "symm_mem::"
"""Ops on memory that ranks share (torch.distributed._symmetric_memory, NVSHMEM)"""
_ALL_WAIT = (
    *("c10d::allreduce_", "c10d::allgather_", "c10d::_allgather_base_", "c10d::alltoall_"),
    *("c10d::alltoall_base_", "c10d::reduce_scatter_", "c10d::_reduce_scatter_base_", "c10d::barrier"),
)
"""Ops that end on no rank before each rank has called them"""
OF_TWO = ("c10d::send", "c10d::recv_", "c10d::recv_any_source_")
"""Ops between two ranks"""
CALLS = {
    "rank": pl.Int64,
    "hop": pl.UInt32,
    "group": pl.String,
    "number": pl.Int64,
    "op": pl.String,
    "bytes": pl.Int64,
    "blocks": pl.Boolean,
    "source": pl.String,
    "step": pl.Int64,
    "steady": pl.Boolean,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "gpu_start_ns": pl.Int64,
    "gpu_end_ns": pl.Int64,
}


def collectives_of(part: RankPart) -> pl.DataFrame:
    """A row for each collective call of a rank, in order.

    rank, hop, group (the name of the process group, the same in all its ranks; null: not known), number (of
    the call in its group, from 0, of those in the trace), op, bytes (of the tensors it was given), blocks
    (its caller waits on the CPU until all ranks have called; false where that is not certain), source
    (phases.BACKWARD: a thread of autograd called it), step, steady, start_ns and end_ns (of the call on
    the host), gpu_start_ns and gpu_end_ns (of its device kernels; null: none), in
    nanoseconds since the trace began. Calls between two ranks (send, recv) are none.
    """
    trace = part.trace
    hops = trace.hops.filter(pl.col("process") == part.process).filter(
        pl.col("op").cast(pl.String).str.starts_with(NAMESPACE)
    )
    calls = hops.filter((pl.col("kind") == "call") & ~pl.col("op").cast(pl.String).is_in(OF_TWO)).sort(
        "start_ns"
    )
    table = calls.select(
        rank=pl.lit(part.rank, pl.Int64),
        hop="id",
        inputs="inputs",
        outermost=pl.col("parent").is_null(),
        op=pl.col("op").cast(pl.String),
        source=pl.coalesce("called_from", "source")
        .cast(pl.String)
        .fill_null(pl.when(in_backward()).then(pl.lit(BACKWARD))),
        step=pl.col("step").cast(pl.Int64),
        steady=(pl.col("phase").cast(pl.String) == "steady").fill_null(False),
        start_ns="start_ns",
        end_ns="end_ns",
    )
    table = (
        table.join(groups_of(trace.scalars), on="inputs", how="left")
        .join(_waited_for(trace.scalars, trace.signatures), on="inputs", how="left")
        .join(bytes_of(trace.signatures), on="inputs", how="left")
        .join(kernels_of(trace.gpu_activities, hops), on="hop", how="left")
        .sort("start_ns")
    )
    # A functional collective calls that of c10d, and its caller waits when it likes.
    blocks = pl.col("outermost") & pl.col("waited_for").fill_null(False) & pl.col("op").is_in(_ALL_WAIT)
    table = table.with_columns(blocks=blocks)
    return table.with_columns(number=pl.int_range(pl.len()).over("group")).select(
        pl.col(name).cast(kind) for name, kind in CALLS.items()
    )


def groups_of(scalars: pl.DataFrame) -> pl.DataFrame:
    """inputs, group. A name that is too long for a recorded value is cut, and no JSON: it is not known.

    What is no text in UTF-8 is no name.
    """
    rows = []
    for number, value in scalars.select("id", "value").iter_rows():
        if value.startswith('{"process_group"'):
            with suppress(ValueError, KeyError, RecursionError):
                group = json.loads(value)["process_group"]
                if isinstance(group, str) and group.encode():
                    rows.append((number, group))
    return pl.DataFrame(rows, {"inputs": pl.UInt32, "group": pl.String}, orient="row").unique("inputs")


def _waited_for(scalars: pl.DataFrame, signatures: pl.DataFrame) -> pl.DataFrame:
    """The inputs of calls on the CPU with async_op=False, torch's only flag: its caller waits at once."""
    flags = scalars.filter(pl.col("value").is_in(["false", "true"])).group_by("id").agg(pl.col("value"))
    elsewhere = signatures.filter(pl.col("device").cast(pl.String) != "cpu")["id"].unique()
    return flags.filter(~pl.col("id").is_in(elsewhere.implode())).select(
        inputs=pl.col("id").cast(pl.UInt32),
        waited_for=pl.col("value").list.eval(pl.element() == "false").list.all(),
    )


def bytes_of(signatures: pl.DataFrame) -> pl.DataFrame:
    """Of the tensors of each signature that are the largest list: what is gathered counts once."""
    names = signatures["dtype"].cast(pl.String).unique().drop_nulls()
    if names.is_empty():  # recorded without shapes, or cut off before the first
        return pl.DataFrame(schema={"inputs": pl.UInt32, "bytes": pl.Int64})
    widths = {name: item_bytes(name.removeprefix("torch.")) for name in names}
    elements = pl.col("shape").list.eval(pl.element().product()).list.first().fill_null(1)
    return (
        signatures.filter(pl.col("shape").is_not_null())
        .select(
            pl.col("position"),
            inputs="id",
            bytes=elements * pl.col("dtype").cast(pl.String).replace_strict(widths, return_dtype=pl.Int64),
        )
        .group_by("inputs", "position")
        .agg(pl.col("bytes").sum())
        .group_by("inputs")
        .agg(pl.col("bytes").max())
    )


def kernels_of(activities: pl.DataFrame, hops: pl.DataFrame) -> pl.DataFrame:
    """When the device kernels of each call ran; they are of the innermost hop, a redispatch of the call."""
    schema = {"hop": pl.UInt32, "gpu_start_ns": pl.Int64, "gpu_end_ns": pl.Int64}
    kernels = activities.filter(communicates())
    if kernels.is_empty() or hops.is_empty():
        return pl.DataFrame(schema=schema)
    call_of: dict[int, int] = {}
    for number, parent, kind in hops.select("id", "parent", pl.col("kind").cast(pl.String)).iter_rows():
        call_of[number] = call_of.get(parent, number) if kind == "redispatch" else number
    return (
        kernels.filter(pl.col("hop").is_in(list(call_of)))
        .with_columns(hop=pl.col("hop").replace_strict(call_of, return_dtype=pl.UInt32))
        .group_by("hop")
        .agg(gpu_start_ns=pl.col("start_ns").min(), gpu_end_ns=pl.col("end_ns").max())
    )


def communicates() -> pl.Expr:
    """Whether a GPU activity is of NCCL, by its name."""
    return pl.col("name").cast(pl.String).str.contains("(?i)nccl").fill_null(False)


def arrivals(calls: pl.DataFrame, clocks: pl.DataFrame) -> pl.DataFrame:
    """`calls` with came_ns and done_ns on the one clock: see `matched`. Null where a clock is not known."""
    return calls.join(clocks.select("rank", "offset_ns"), on="rank").with_columns(
        came_ns=pl.coalesce("gpu_start_ns", "start_ns") + pl.col("offset_ns"),
        done_ns=pl.col("gpu_end_ns") + pl.col("offset_ns"),
    )


def waits(calls: pl.DataFrame, clocks: pl.DataFrame, collectives: pl.DataFrame) -> dict[int, int]:
    """rank -> how long it waited for the last ones in all `collectives`, ns."""
    ends = collectives.select("group", "number", last_ns="came_ns")
    of_ranks = arrivals(calls, clocks).join(ends, on=["group", "number"]).group_by("rank")
    return dict(of_ranks.agg(_waited_ns(pl.col("last_ns")).sum()).iter_rows())


def _waited_ns(last: pl.Expr) -> pl.Expr:
    """How long a rank that came at came_ns waited for the one that came at `last`."""
    waited = pl.min_horizontal(last, pl.col("done_ns").fill_null(last)) - pl.col("came_ns")
    return waited.alias("waited_ns")


def matched(calls: pl.DataFrame, clocks: pl.DataFrame) -> pl.DataFrame:
    """A row for each collective that at least two ranks recorded, in order.

    group, number, op, source, step, steady and bytes (of the rank that came last), ranks (how many called
    it), last (the rank that came last), came_ns (when), late_ns (how long after the median of the others),
    skew_ns (from the first to the last), wait_ns (of all ranks together, until the last one came or their own
    kernel had ended: the root of a broadcast waits for nobody), transfer_ns (of the last rank's device
    kernel; null on the CPU, where the call returns before it is done), on_gpu. A rank comes when its device
    kernel starts, and where there is none when it calls. Where a rank's clock is not known, or ranks called
    different ops, the row is left out.
    """
    return (
        arrivals(calls, clocks)
        .drop_nulls(["group", "number", "came_ns"])
        .sort("group", "number", "came_ns", "rank")
        .group_by("group", "number", maintain_order=True)
        .agg(
            pl.col("op", "source", "step", "steady", "bytes").last(),
            ops=pl.col("op").n_unique(),
            ranks=pl.len().cast(pl.Int64),
            last=pl.col("rank").last(),
            came_ns=pl.col("came_ns").last(),
            late_ns=pl.col("came_ns").last()
            - pl.col("came_ns").slice(0, pl.len() - 1).median().cast(pl.Int64),
            skew_ns=pl.col("came_ns").last() - pl.col("came_ns").first(),
            wait_ns=_waited_ns(pl.col("came_ns").last()).sum(),
            transfer_ns=pl.col("done_ns").last() - pl.col("came_ns").last(),
            on_gpu=pl.col("gpu_start_ns").is_not_null().all(),
        )
        .filter((pl.col("ranks") > 1) & (pl.col("ops") == 1))
        .drop("ops")
        .sort("came_ns")
    )
