"""Where each thread was at one moment: the op call that it is in, or the one that it left last."""

from __future__ import annotations

import polars as pl

COLLECTIVES = r"^_?c10d(_functional)?::"
"""Ops of torch.distributed"""
BOOKKEEPING = "profiler::"
"""Ops that begin and end a range of record_function: trees leave them out too"""
_THREAD = ("process", "thread")


def last_ops(hops: pl.DataFrame, until_ns: int) -> pl.DataFrame:
    """A row for each thread that called an op, at `until_ns` (nanoseconds since the trace began).

    process, thread, is_in (whether its last outermost op call is open), op (the innermost open one, else the
    one that it left), since_ns (how long it has been in it, or has called no op), collective (the last op of
    torch.distributed that it called in that op call, null: none), collective_hop (its id), waits_ns (when it
    called that, if it has called no op after it, else null) and source.

    A collective on the CPU returns at once, and the thread then waits for it without an op: so a thread whose
    last op call was a collective probably waits for that.
    """
    work = hops.filter(~pl.col("op").cast(pl.String).str.starts_with(BOOKKEEPING).fill_null(False))
    texts = work.select(
        *_THREAD,
        "id",
        "kind",
        "parent",
        "open",
        "start_ns",
        "end_ns",
        pl.col("op", "source", "called_from").cast(pl.String),
    ).sort(*_THREAD, "start_ns", maintain_order=True)
    last = (
        texts.filter(pl.col("parent").is_null())
        .group_by(*_THREAD, maintain_order=True)
        .last()
        .with_columns(source=pl.coalesce("called_from", "source"))
        .drop("parent", "called_from")
    )
    inside = texts.join(last.select(*_THREAD, began="start_ns"), on=_THREAD).filter(
        pl.col("start_ns") >= pl.col("began")
    )
    innermost = inside.filter(pl.col("open")).group_by(*_THREAD).agg(innermost=pl.col("op").last())
    collectives = inside.filter(pl.col("op").str.contains(COLLECTIVES))
    # A redispatch has its name too.
    calls = collectives.filter(pl.col("kind").cast(pl.String) == "call")
    ends = pl.when("open").then(None).otherwise("end_ns")
    waits = (
        calls.with_columns(ends_ns=ends)
        .group_by(*_THREAD)
        .agg(pl.col("op", "id", "start_ns", "ends_ns").last())
        .join(inside.group_by(*_THREAD).agg(newest_ns=pl.col("start_ns").max()), on=_THREAD)
        .with_columns(
            waits_ns=pl.when(~(pl.col("newest_ns") > pl.col("ends_ns")).fill_null(False)).then("start_ns")
        )
        .select(*_THREAD, "waits_ns", collective="op", collective_hop="id")
    )
    joined = last.join(innermost, on=_THREAD, how="left").join(waits, on=_THREAD, how="left")
    since = pl.when("open").then("start_ns").otherwise("end_ns")
    return joined.select(
        *_THREAD,
        is_in="open",
        op=pl.coalesce("innermost", "op"),
        since_ns=(until_ns - since).clip(lower_bound=0),
        collective="collective",
        collective_hop="collective_hop",
        waits_ns="waits_ns",
        source="source",
    ).sort(*_THREAD)
