"""Surveys: what the hops of a trace cost by op, key, source line and thread, and how they ended."""

from __future__ import annotations

import numpy as np
import polars as pl

from tracer.analysis.medians import finished_median
from tracer.analysis.phases import in_backward
from tracer.analysis.trees import Forest, own_or_forward_line, rows_of_ids
from tracer.trace.tables.distinct import distinct

_DURATION = pl.col("end_ns") - pl.col("start_ns")


def per_key(hops: pl.DataFrame) -> pl.DataFrame:
    """key, ops (distinct), hops, self_ns, median_self_ns; most self time first."""
    own = pl.col("self_ns")
    keys = hops.group_by("key", maintain_order=True).agg(
        hops=pl.len(), self_ns=own.sum(), median_self_ns=finished_median(own)
    )
    ops = distinct(hops, "key", "op").group_by("key").agg(ops=pl.len())
    joined = keys.join(ops, on="key", how="left", maintain_order="left", nulls_equal=True)
    return _by_self_time(joined.select("key", "ops", "hops", "self_ns", "median_self_ns"))


def per_backward_node(forest: Forest) -> pl.DataFrame:
    """Backward op calls beside the forward line and op that made their node; most time first.

    Columns: source (the forward line) and forward_op (both null where none is known), backward_node,
    called_from, ops (list of the distinct ops called), calls, hops, total_ns.
    """
    columns = ("op", "source", "backward_node", "forward_hop", "called_from")
    outermost = _outermost(forest, *columns).filter(pl.col("backward"))
    forward = outermost["forward_hop"].cast(pl.Int64).fill_null(-1)
    rows = pl.Series(rows_of_ids(forest.hops["id"].to_numpy(), forward.to_numpy()))
    return (
        outermost.with_columns(
            source=own_or_forward_line(), forward_op=forest.hops["op"].gather(rows.set(rows < 0, None))
        )
        .group_by("source", "forward_op", "backward_node", "called_from", maintain_order=True)
        .agg(
            ops=pl.col("op").cast(pl.String).unique(maintain_order=True),
            calls=pl.len(),
            hops=pl.col("size").sum(),
            total_ns=pl.col("duration").sum(),
        )
        .sort("total_ns", descending=True, maintain_order=True)
    )


def per_thread(forest: Forest) -> pl.DataFrame:
    """process, thread, calls (outermost), hops, total_ns (in ops), first_ns, last_ns."""
    return (
        _outermost(forest, "process", "thread")
        .group_by("process", "thread", maintain_order=True)
        .agg(
            calls=pl.len(),
            hops=pl.col("size").sum(),
            total_ns=pl.col("duration").sum(),
            first_ns=pl.col("start_ns").min(),
            last_ns=pl.col("end_ns").max(),
        )
    )


def open_hops(forest: Forest) -> pl.DataFrame:
    """Hops that had not finished at the end, outermost first on each thread.

    Columns: process, thread, depth, op, key, kernel, source, called_from, open_ns (for how long).
    """
    return (
        forest.hops.with_columns(depth=pl.Series(forest.depth, dtype=pl.Int64))
        .filter(pl.col("open"))
        .select(
            "process", "thread", "depth", "op", "key", "kernel", "source", "called_from", open_ns=_DURATION
        )
    )


def exceptions(forest: Forest) -> pl.DataFrame:
    """Hops that exceptions came from, and how far those went; most frequent first.

    An exception comes from a raised hop whose last hop below did not raise. Columns: op, key,
    kernel, source, called_from, left (op of the outermost hop it left), caught_in (op of the hop
    that caught it; null: it reached Python), count.
    """
    hops, parent = forest.hops, forest.parent
    raised = hops["raised"].fill_null(False).to_numpy()
    rows = np.flatnonzero(raised)
    last_child = np.full(len(hops) if len(rows) else 0, -1, parent.dtype)
    if len(rows):
        nested = np.flatnonzero(parent >= 0)
        last_child[parent[nested]] = nested  # rows are in order of entry: the last one stays
    origin = rows[(last_child[rows] < 0) | ~raised[last_child[rows]]]
    top = origin
    while True:  # as many rounds as an exception left hops
        above = parent[top]
        further = np.where((above >= 0) & raised[above] & (last_child[above] == top), above, top)
        if np.array_equal(further, top):
            break
        top = further
    catcher = parent[top]
    ops = hops["op"]
    return (
        hops.select("op", "key", "kernel", "source", "called_from")[origin]
        .with_columns(left=ops[top].cast(pl.String), caught_in=ops[np.maximum(catcher, 0)].cast(pl.String))
        .with_columns(caught_in=pl.when(pl.Series(catcher >= 0)).then("caught_in"))
        .group_by(pl.all(), maintain_order=True)
        .len("count")
        .sort("count", descending=True, maintain_order=True)
    )


def _outermost(forest: Forest, *columns: str) -> pl.DataFrame:
    """These columns of outermost hops, with backward (bool), size (hops, this one included), start_ns, end_ns
    and duration (ns).
    """
    outermost = forest.parent < 0
    return (
        forest.hops.select(*dict.fromkeys((*columns, "backward_node", "start_ns", "end_ns")))
        .filter(outermost)
        .with_columns(
            backward=in_backward(),
            size=pl.Series(forest.tree_sizes, dtype=pl.Int64),
            duration=_DURATION,
        )
    )


def _by_self_time(survey: pl.DataFrame) -> pl.DataFrame:
    return survey.sort("self_ns", descending=True, maintain_order=True)
