"""The op calls of an eager run that compiled code replaced, found by the lines and names of its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracer.analysis.difference.op_calls import base_name, is_work, matched_name, outermost_of, parents, timed
from tracer.analysis.difference.places import Places, within
from tracer.analysis.op_work import outputs_of_backward, work_of
from tracer.analysis.phases import RANGE_OPS, in_backward
from tracer.analysis.source_lines import SourceLines

if TYPE_CHECKING:
    from tracer.trace import Trace

_KEY = ("line", "matched", "backward")


@dataclass(frozen=True)
class EagerCalls:
    """Times in nanoseconds.

    calls   op calls that nodes of compiled code compute: line, op, matched, backward, by_line, module, step,
            ns, gpu_ns, launches, bytes (null: unknown)
    lines   what lines of compiled code took: line, backward, step, ns, gpu_ns
    """

    calls: pl.DataFrame
    lines: pl.DataFrame


def eager_calls(trace: Trace, steps: Sequence[int] | None, places: Places, nodes: pl.DataFrame) -> EagerCalls:
    """Looks for nodes (line, matched, backward, work) among the op calls in these steps (None: in all).

    Of op calls within each other the outermost that is a node counts. One that no node has, and none within
    it, counts by its line (`by_line`).
    """
    sources = SourceLines.of(trace)
    hops = trace.hops
    parent = parents(hops)
    named = hops.select(
        op=base_name(),
        line=places.numbers(sources, hops["source"]),
        backward=in_backward(),
    ).with_columns(matched=matched_name())
    wanted = nodes.filter("work").select(_KEY).unique()
    is_node = named.join(
        wanted.with_columns(found=True), on=_KEY, how="left", nulls_equal=True, maintain_order="left"
    )["found"]
    node = outermost_of(is_node.fill_null(False).to_numpy(), parent)
    own = (parent < 0) & ~hops["op"].cast(pl.String).str.starts_with(RANGE_OPS).fill_null(False).to_numpy()
    root = outermost_of(own, parent)
    has_node = np.zeros(len(hops) + 1, np.bool_)
    has_node[root[node >= 0]] = True
    has_node[-1] = False
    of_lines = named.join(
        nodes.select("line", "backward").drop_nulls().unique().with_columns(found=True),
        on=["line", "backward"],
        how="left",
        maintain_order="left",
    )["found"]
    in_lines = of_lines.fill_null(False).to_numpy()
    left = own & in_lines & ~has_node[:-1] & named.select(is_work(pl.col("op"))).to_series().to_numpy()
    owner = np.where(node >= 0, node, outermost_of(left, parent))
    calls = within(timed(trace, hops, owner), steps)
    rows = calls["row"].to_numpy()
    calls = calls.with_columns(
        *named[rows].get_columns(),
        hops[rows].select(pl.col("module").cast(pl.String)).to_series(),
        by_line=pl.Series(left[rows], dtype=pl.Boolean),
        bytes=_bytes(trace, rows),
    ).drop("row")
    lines = within(timed(trace, hops, outermost_of(own & in_lines, parent)), steps)
    lines = lines.with_columns(named[lines["row"].to_numpy()].select("line", "backward").get_columns())
    return EagerCalls(calls, lines.select("line", "backward", "step", "ns", "gpu_ns"))


def _bytes(trace: Trace, rows: np.ndarray) -> pl.Series:
    """Bytes that each of these calls reads and writes, by its shapes."""
    called = trace.hops[rows].select(pl.col("op").cast(pl.String), number="inputs")
    wanted = called.unique().drop_nulls()
    tensors = trace.signatures.filter(pl.col("id").is_in(wanted["number"].unique().to_list()))
    signatures = {
        number: part.to_dicts()
        for (number,), part in tensors.partition_by("id", as_dict=True, maintain_order=True).items()
    }
    outputs = outputs_of_backward(trace.hops, signatures)
    found = []
    for op, number in wanted.iter_rows():
        work = work_of(op, signatures[number], outputs) if number in signatures else None
        found.append((op, number, work.bytes if work else None))
    ops, numbers, sizes = zip(*found, strict=True) if found else ((), (), ())
    known = pl.DataFrame(
        {
            "op": pl.Series(ops, dtype=pl.String),
            "number": pl.Series(numbers, dtype=called.schema["number"]),
            "bytes": pl.Series(sizes, dtype=pl.Int64),
        }
    )
    return called.join(known, on=["op", "number"], how="left", maintain_order="left")["bytes"]
