"""What an operator did in a trace: the keys it ran at, and what it called."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracer.analysis.medians import finished_median
from tracer.analysis.trees import depths
from tracer.trace.bytes.arrays import doublings
from tracer.trace.tables.series import numbers

UNKNOWN_OP = "an unknown op"


@dataclass(frozen=True)
class Decomposition:
    """The op calls of one operator.

    keys: key, kernel, registered_at, rule, override, hops, raised (of them), median_ns; in the order in
    which a call meets them.
    called: ops (list: the op calls that one call of the operator made itself, in order), calls (of the
    operator that made just these); most calls first. Calls that made none have an empty list.
    """

    op: str
    calls: int
    keys: pl.DataFrame
    called: pl.DataFrame

    @property
    def calls_others(self) -> bool:
        return bool(self.called["ops"].list.len().sum())


def decompose(hops: pl.DataFrame, op: str) -> Decomposition:
    """What `op`, such as `aten::add.Tensor`, did in these hops: all of a trace.

    A call made the op calls whose innermost enclosing op call it is, at whichever of its keys.
    """
    mine = (hops["op"] == op).fill_null(False)
    own = hops.filter(mine)
    return Decomposition(op, int((own["kind"] == "call").sum()), _keys(own), _called(hops, mine.to_numpy()))


def _keys(own: pl.DataFrame) -> pl.DataFrame:
    by = ["key", "kernel", "registered_at", "rule", "override"]
    return (
        own.with_columns(pl.col(by).cast(pl.String), depth=_depth_in_call(own))
        .group_by(by)
        .agg(
            hops=pl.len(),
            raised=pl.col("raised").sum(),
            median_ns=finished_median(pl.col("end_ns") - pl.col("start_ns")),
            depth=pl.col("depth").mean(),
            first=pl.col("id").min(),
        )
        .sort("depth", "first")
        .drop("depth", "first")
    )


def _depth_in_call(own: pl.DataFrame) -> pl.Series:
    """How many redispatches each of the operator's hops is away from its op call."""
    ids = own["id"].cast(pl.Int64).to_numpy()
    parents = numbers(own["parent"])
    if not len(own):
        return pl.Series([], dtype=pl.Int64)
    row = np.minimum(np.searchsorted(ids, parents), len(ids) - 1)
    redispatch = ((own["kind"] == "redispatch").to_numpy()) & (ids[row] == parents)
    return pl.Series(depths(np.where(redispatch, row, -1)).astype(np.int64))


def _called(hops: pl.DataFrame, mine: np.ndarray) -> pl.DataFrame:
    parent = numbers(hops["parent"])
    is_call = (hops["kind"] == "call").to_numpy()
    own_calls = np.flatnonzero(mine & is_call)
    maker = np.where(parent >= 0, _op_calls(is_call, parent)[parent], -1)
    made = np.flatnonzero(is_call & (maker >= 0) & mine[maker])
    sequences = (
        pl.DataFrame(
            {"maker": maker[made], "op": hops["op"].gather(made).cast(pl.String).fill_null(UNKNOWN_OP)}
        )
        .group_by("maker", maintain_order=True)
        .agg(ops=pl.col("op"))
        .with_columns(text=pl.col("ops").list.join("\n"))
    )
    return (
        pl.DataFrame({"maker": own_calls})
        .join(sequences, on="maker", how="left", maintain_order="left")
        .with_columns(pl.col("text").fill_null(""))
        .group_by("text", maintain_order=True)
        .agg(pl.col("ops").first(), calls=pl.len())
        .sort("calls", descending=True, maintain_order=True)
        .select(pl.col("ops").fill_null([]), pl.col("calls").cast(pl.Int64))
    )


def _op_calls(is_call: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """For each hop the row of the op call that it is or was redispatched from."""
    head = np.where(~is_call & (parent >= 0), parent, np.arange(len(parent)))
    for _ in doublings(parent):
        head = head[head]
    return head
