"""Sends and receives of torch.distributed, matched between two ranks, and what receivers waited."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl

from tracer.analysis.cover import Cover
from tracer.analysis.job.collectives import NAMESPACE, OF_TWO, bytes_of, groups_of, kernels_of
from tracer.analysis.job.lines_before import host_rows, with_text
from tracer.analysis.job.part import RankPart

SEND, _RECEIVE, _ANY = OF_TWO
Schema = dict[str, "pl.DataType | type[pl.DataType]"]
CALLS: Schema = {
    "group": pl.String,
    "peer": pl.Int64,
    "tag": pl.Int64,
    "number": pl.Int64,
    "sends": pl.Boolean,
    "bytes": pl.Int64,
    "source": pl.String,
    "step": pl.Int64,
    "steady": pl.Boolean,
    "start_ns": pl.Int64,
    "until_ns": pl.Int64,
    "gpu_start_ns": pl.Int64,
    "gpu_end_ns": pl.Int64,
    **dict.fromkeys(("before", "after", "op", "text"), pl.String),
    "did_ns": pl.Int64,
}
MESSAGES: Schema = {
    "receiver": pl.Int64,
    "sender": pl.Int64,
    "received_at": pl.String,
    "sent_at": pl.String,
    "times": pl.Int64,
    "bytes": pl.Int64,
    "wait_ns": pl.Int64,
    "total_ns": pl.Int64,
    "on_gpu": pl.Boolean,
    **dict.fromkeys(("before", "after", "op", "text"), pl.String),
    "did_ns": pl.Int64,
}
STAGES: Schema = {
    "rank": pl.Int64,
    "received": pl.Int64,
    "unmatched": pl.Int64,
    "waited_ns": pl.Int64,
    "wall_ns": pl.Int64,
    "steps": pl.Int64,
    "most_from": pl.Int64,
}
_DID = ("before", "after", "op", "text")
_PAIR = ("group", "tag", "number")


def message_calls(part: RankPart) -> pl.DataFrame:
    """CALLS: a row for each send and receive of a rank, in order.

    `peer` is the other rank in the job (null: any rank, or the group was made before the recording), `number`
    counts the calls with the same group, peer, tag and direction from 0, `until_ns` is when the rank called
    its next op that is neither (null: none), so that it no longer waited. before, after, op, text and did_ns
    are what took most of the rank's time since its call before, of another rank: see lines_before. For
    others see collectives_of.
    """
    trace = part.trace
    hops = trace.hops.filter(pl.col("process") == part.process)
    named = hops.with_columns(pl.col("op", "kind", "phase").cast(pl.String))
    calls = named.filter(pl.col("op").is_in(OF_TWO) & (pl.col("kind") == "call")).sort("start_ns")
    if calls.is_empty():
        return pl.DataFrame(schema=CALLS)
    others = named.filter(pl.col("parent").is_null() & ~pl.col("op").is_in(OF_TWO))["start_ns"].sort()
    place = np.searchsorted(others.to_numpy(), calls["start_ns"].to_numpy(), "right")
    table = calls.select(
        hop="id",
        inputs="inputs",
        called="op",
        sends=pl.col("op") == SEND,
        source=pl.coalesce("called_from", "source").cast(pl.String),
        step=pl.col("step").cast(pl.Int64),
        steady=(pl.col("phase") == "steady").fill_null(False),
        start_ns="start_ns",
        until_ns=others.extend_constant(None, 1).gather(place),
    )
    is_named = pl.col("called") != _ANY
    groups = trace.process_groups.filter(pl.col("process") == part.process).select("group", "ranks")
    return (
        table.join(groups_of(trace.scalars), on="inputs", how="left")
        .join(bytes_of(trace.signatures), on="inputs", how="left")
        .join(_numbers(trace.scalars), on="inputs", how="left")
        .join(kernels_of(trace.gpu_activities, named), on="hop", how="left")
        .join(groups, on="group", how="left")
        .sort("start_ns")
        .pipe(_of_groups, part)
        .with_columns(
            peer=pl.when(is_named).then(pl.col("ranks").list.get(pl.col("first"), null_on_oob=True)),
            tag=pl.when(is_named).then("second").otherwise("first"),
        )
        .with_columns(number=pl.int_range(pl.len()).over("group", "peer", "tag", "sends"))
        .join(_most_before(part, named), on="hop", how="left", maintain_order="left")
        .select(pl.col(name).cast(kind) for name, kind in CALLS.items())
    )


def _of_groups(calls: pl.DataFrame, part: RankPart) -> pl.DataFrame:
    """`calls` in order, with the kernel of their ncclGroupEnd for those that have none of their own.

    batch_isend_irecv calls it after the ops, so that kernel has no op: it is the first one launched after a
    call, before the next op that is no message.
    """
    kernel = part.trace.gpu_activities.filter(
        (pl.col("process") == part.process)
        & pl.col("hop").is_null()
        & pl.col("name").cast(pl.String).str.contains("(?i)nccl.*sendrecv")
    ).select(group_start_ns="start_ns", group_end_ns="end_ns", id="api_call")
    launches = kernel.join(part.trace.api_calls.select("id", launched_ns="start_ns"), on="id").drop("id")
    if launches.is_empty():
        return calls
    found = calls.join_asof(
        launches.sort("launched_ns"), left_on="start_ns", right_on="launched_ns", strategy="forward"
    )
    is_of_group = pl.col("gpu_start_ns").is_null() & (
        pl.col("launched_ns") <= pl.col("until_ns").fill_null(pl.col("launched_ns"))
    )
    return found.with_columns(
        pl.when(is_of_group).then(f"group_{name}").otherwise(f"gpu_{name}").alias(f"gpu_{name}")
        for name in ("start_ns", "end_ns")
    ).drop("group_start_ns", "group_end_ns", "launched_ns")


def _most_before(part: RankPart, hops: pl.DataFrame) -> pl.DataFrame:
    """Of each call of torch.distributed what took most time since the one before: hop, _DID and did_ns."""
    is_call = pl.col("op").str.starts_with(NAMESPACE) & (pl.col("kind") == "call")
    windows = (
        hops.filter(is_call)
        .sort("start_ns")
        .select(
            hop="id",
            window=pl.int_range(pl.len(), dtype=pl.Int64),
            from_ns=pl.col("start_ns").shift(1).fill_null(0),
            until_ns="start_ns",
        )
    )
    most = (
        host_rows(part, windows)
        .group_by("window", "before", "after", "op")
        .agg(did_ns=pl.col("total_ns").sum())
        .sort("did_ns", "before", "after", "op", descending=[True, False, False, False])
        .unique("window", keep="first", maintain_order=True)
    )
    return with_text(part, most.join(windows.select("window", "hop"), on="window")).drop("window")


def _numbers(scalars: pl.DataFrame) -> pl.DataFrame:
    """The numbers behind the group of each call's inputs, in order: inputs, first, second."""
    numbers = scalars.filter(pl.col("value").str.contains(r"^-?\d+$")).sort("id", "position")
    return numbers.group_by(inputs=pl.col("id").cast(pl.UInt32)).agg(
        first=pl.col("value").cast(pl.Int64, strict=False).first(),
        second=pl.col("value").cast(pl.Int64, strict=False).slice(1, 1).first(),
    )


def received(
    rank: int, calls: pl.DataFrame, sends: Iterable[pl.DataFrame], clocks: pl.DataFrame
) -> pl.DataFrame:
    """What a rank received and waited for: a row for each receive that has its send.

    `calls` are CALLS of the rank, `sends` those of other ranks, each with their `rank`. sender, received_at,
    sent_at, bytes, step, steady, on_gpu, and on the one clock sent_ns, begin_ns and end_ns of the wait: from
    the receive (its kernel, if it has one) to the send, but not beyond what the rank did next.
    """
    offset = dict(clocks.select("rank", "offset_ns").iter_rows())
    found = pl.concat(
        [
            pl.DataFrame(schema={**CALLS, "rank": pl.Int64}),
            *(one.filter(pl.col("sends") & (pl.col("peer") == rank)).select(*CALLS, "rank") for one in sends),
        ]
    )
    shift = pl.col("rank").replace_strict(offset, default=None, return_dtype=pl.Int64)
    sent = found.select(
        *_PAIR,
        peer="rank",
        sent_at="source",
        sent_ns=pl.coalesce("gpu_start_ns", "start_ns") + shift,
        **{f"did_{name}": pl.col(name) for name in _DID},
        sender_did_ns="did_ns",
    )
    own = pl.lit(offset.get(rank), pl.Int64)
    return (
        calls.filter(~pl.col("sends"))
        .join(sent, on=["peer", *_PAIR])
        .with_columns(
            on_gpu=pl.col("gpu_start_ns").is_not_null(),
            begin_ns=pl.coalesce("gpu_start_ns", "start_ns") + own,
            until_ns=pl.coalesce("gpu_end_ns", "until_ns") + own,
        )
        .with_columns(end_ns=pl.max_horizontal("begin_ns", pl.min_horizontal("sent_ns", "until_ns")))
        .drop_nulls(["begin_ns", "sent_ns"])
        .select(
            *("step", "steady", "bytes", "on_gpu", "sent_at", "sent_ns", "begin_ns", "end_ns"),
            *(pl.col(f"did_{name}").alias(name) for name in _DID),
            did_ns="sender_did_ns",
            sender="peer",
            received_at="source",
        )
        .sort("begin_ns")
    )


def by_lines(rank: int, messages: pl.DataFrame) -> pl.DataFrame:
    """MESSAGES: those of `received` in the steady steps (in all, if none is), by sender, lines and size.

    before, after, op, text and did_ns: what took most of the sender's time before it sent them.
    """
    wait = pl.col("end_ns") - pl.col("begin_ns")
    keys = ("sender", "received_at", "sent_at", "bytes", "on_gpu")
    counted = _counted(messages)
    did = (
        counted.group_by(*keys, *_DID[:3])
        .agg(pl.col("text").max(), pl.col("did_ns").sum())
        .sort("did_ns", *_DID[:3], descending=[True, False, False, False])
        .unique(keys, keep="first", maintain_order=True)
    )
    table = (
        counted.group_by(keys)
        .agg(times=pl.len(), wait_ns=wait.median(), total_ns=wait.sum())
        .join(did, on=keys, how="left", nulls_equal=True)
        .with_columns(receiver=pl.lit(rank, pl.Int64))
    )
    return table.select(pl.col(name).cast(kind) for name, kind in MESSAGES.items())


def stage(rank: int, calls: pl.DataFrame, messages: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """STAGES: one row of a rank, in its steady `steps` (step, phase, start_ns, end_ns; in all, if none is).

    How many messages it received, how many calls have no other end here (in the whole trace), how long it
    waited for at least one (waits at once count once), in steps of this length in all, and the rank that it
    waited for most.
    """
    own = steps.filter(pl.col("phase") == "steady")
    own = own if len(own) else steps
    here = _counted(messages)
    wait = pl.col("end_ns") - pl.col("begin_ns")
    by = here.group_by("sender").agg(wait=wait.sum()).sort("wait", "sender", descending=[True, False])
    cover = Cover.of(here["begin_ns"].to_numpy(), here["end_ns"].to_numpy())
    most = by["sender"][0] if len(by) else None
    row = {
        "rank": rank,
        "received": len(here),
        "unmatched": int((~calls["sends"]).sum()) - len(messages),
        "waited_ns": int((cover.ends - cover.starts).sum()),
        "wall_ns": int((own["end_ns"] - own["start_ns"]).sum()),
        "steps": len(own),
        "most_from": most,
    }
    return pl.DataFrame([row], STAGES)


def _counted(messages: pl.DataFrame) -> pl.DataFrame:
    steady = messages.filter("steady")
    return steady if len(steady) else messages
