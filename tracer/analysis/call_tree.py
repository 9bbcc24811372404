"""The calls of a trace as one tree in which equal calls from the same place are one node, with sums.

Unlike `trees.fold`, which keeps calls apart when anything below them differs, a node here is a path of calls
from the outermost op call: what a flame graph draws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.analysis.medians import finished_median
from tracer.analysis.trees import Forest, own_or_forward_line
from tracer.trace.bytes.arrays import nearest, take
from tracer.trace.tables.schema import GPU_KINDS, HOP_KINDS

_LABEL = ("kind", "op", "key", "kernel", "registered_at", "override", "handed_over")
_ORIGIN = ("module", "line", "called_from", "backward_node", "part")


@dataclass(frozen=True)
class CallTree:
    """`nodes` after their parents, level by level; `node_of` has the node of each row of the forest.

    nodes: parent (row in nodes, -1: outermost), label and origin (rows of these tables; origin is that of the
    outermost call), rows (how many are in the node), host_ns and self_ns (0 for work of the GPU), gpu_ns
    (GPU work in it and below), own_ns and own_gpu_ns (of hops and outermost rows: the part of host_ns and
    gpu_ns that is in no hop below; else 0), longest_ns, median_ns, raised, id (of the first row in its own
    table, -1: none), stack (its id in python_stacks), inputs (the most frequent id, null: none) and
    inputs_count (distinct ones).
    labels: kind, op, key, kernel, registered_at, override, handed_over.
    origins: module, line, called_from, backward_node, part (the phase, of analysis.phases; null: no hop is in
    the call).
    """

    nodes: pl.DataFrame
    labels: pl.DataFrame
    origins: pl.DataFrame
    node_of: NDArray[np.int64]


def call_tree(forest: Forest, phases: pl.Series) -> CallTree:
    """The tree of hops, or of hops with library calls, API calls and GPU work (links.combine).

    `phases`: that of each hop of the trace (phases.phase_of_hops).
    """
    rows = forest.hops.with_columns(
        line=own_or_forward_line().cast(pl.String), part=_phase_of_roots(forest, phases)
    )
    tree = path_tree(forest, rows)
    sums = _sums(rows, forest, tree.node_of).drop("node")
    return replace(tree, nodes=tree.nodes.hstack(sums))


def path_tree(forest: Forest, rows: pl.DataFrame) -> CallTree:
    """The nodes without sums: parent, label and origin. `rows` has the columns of labels and origins."""
    labels, label = _distinct(rows, _LABEL)
    origins, origin = _distinct(rows, _ORIGIN)
    node_of = np.full(len(rows), -1)
    parents, node_labels, node_origins = [], [], []
    count, many = 0, len(labels) or 1
    for level, members in enumerate(forest.levels()):
        above = node_of[forest.parent[members]] if level else origin[members]
        key, place = np.unique(above * many + label[members], return_inverse=True)
        node_of[members] = place + count
        parents.append(key // many if level else np.full(len(key), -1))
        node_labels.append(key % many)
        node_origins.append(origin[forest.root[_first(place, members, len(key))]])
        count += len(key)
    nodes = {"parent": _joined(parents), "label": _joined(node_labels), "origin": _joined(node_origins)}
    return CallTree(pl.DataFrame(nodes), labels, origins, node_of)


def _phase_of_roots(forest: Forest, phases: pl.Series) -> pl.Series:
    """The phase of the outermost call around each row: that of the first hop in it."""
    hop = forest.hops["hop" if "hop" in forest.hops.columns else "id"].cast(pl.Int64).fill_null(-1).to_numpy()
    first = np.full(len(hop), -1)
    rows = np.flatnonzero(hop >= 0)[::-1]
    first[forest.root[rows]] = hop[rows]
    of_root = pl.Series(first[forest.root])
    return phases.gather(of_root.set(of_root < 0, None))


def _first(place: NDArray[np.int64], members: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """A row of each of `count` places."""
    row = np.empty(count, np.int64)
    row[place[::-1]] = members[::-1]
    return row


def _sums(rows: pl.DataFrame, forest: Forest, node_of: NDArray[np.int64]) -> pl.DataFrame:
    kind = rows["kind"].cast(pl.String)
    on_gpu = kind.is_in(GPU_KINDS).to_numpy()
    duration = (rows["end_ns"] - rows["start_ns"]).fill_null(0).to_numpy()
    gpu = rows["gpu_ns"].to_numpy() if "gpu_ns" in rows.columns else np.zeros(len(rows), np.int64)
    host = np.where(on_gpu, 0, duration)
    table = pl.DataFrame(
        {
            "node": pl.Series(node_of, dtype=pl.UInt32),
            "host": host,
            "own": _own(forest, host),
            "self": np.where(on_gpu, 0, rows["self_ns"].fill_null(0).to_numpy()),
            "gpu": gpu,
            "own_gpu": _own(forest, gpu),
            "duration": duration,
            "raised": rows["raised"],
            "open": rows["open"],
            "inputs": rows["inputs"].cast(pl.Int64),
            "id": _ids(rows),
            "stack": rows["python_stack"].cast(pl.Int64),
        }
    )
    return (
        table.group_by("node")
        .agg(
            rows=pl.len(),
            host_ns=pl.col("host").sum(),
            self_ns=pl.col("self").sum(),
            gpu_ns=pl.col("gpu").sum(),
            own_ns=pl.col("own").sum(),
            own_gpu_ns=pl.col("own_gpu").sum(),
            longest_ns=pl.col("duration").max(),
            median_ns=finished_median(pl.col("duration")),
            raised=pl.col("raised").sum(),
            id=pl.col("id").first(),
            stack=pl.col("stack").first(),
            inputs=pl.col("inputs").mode(maintain_order=True).first(),
            inputs_count=pl.col("inputs").n_unique(),
        )
        .sort("node")
    )


def _own(forest: Forest, times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of each hop and each outermost row, what no hop below it has of its time; 0 of other rows."""
    is_hop = forest.hops["kind"].cast(pl.String).is_in(HOP_KINDS).to_numpy()
    counted = is_hop | (forest.parent < 0)
    hop_above = take(nearest(forest.parent, counted), forest.parent)  # past library and API calls
    own = np.where(counted, times, 0)
    inner = np.flatnonzero(counted & (hop_above >= 0))
    np.subtract.at(own, hop_above[inner], times[inner])
    return own


def _ids(rows: pl.DataFrame) -> pl.Series:
    """Of each row, its id in its own table; -1 for a library call that only stacks name."""
    names = [
        name
        for name in ("hop", "compiled_call", "compiled_kernel", "library_call", "api_call", "activity")
        if name in rows.columns
    ]
    known = pl.coalesce(pl.col(name).cast(pl.Int64) for name in names) if names else pl.col("id")
    if "api_call" not in rows.columns:  # hops alone
        known = pl.col("id")
    return rows.select(known.cast(pl.Int64).fill_null(-1)).to_series()


def _distinct(rows: pl.DataFrame, columns: tuple[str, ...]) -> tuple[pl.DataFrame, NDArray[np.int64]]:
    """The distinct values of the columns in order of appearance, and which of them each row has."""
    texts = rows.select(pl.col(name).cast(pl.String) for name in columns)
    distinct = texts.unique(maintain_order=True)
    found = texts.join(
        distinct.with_row_index("place"), on=columns, how="left", nulls_equal=True, maintain_order="left"
    )
    return distinct, found["place"].cast(pl.Int64).to_numpy()


def _joined(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
