"""Distinct dispatch paths: outermost op calls that ran the same hops, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracer.analysis.medians import finished_median
from tracer.analysis.patterns import fits_op
from tracer.analysis.trees import Forest, counts, fold
from tracer.trace.tables.schema import HOP_KINDS

ONCE = 3
"""A first call counts by itself if it took more than this many medians: it loaded code, or compiled"""


@dataclass(frozen=True)
class PathTables:
    """The hottest dispatch paths, joined by the column `path` (0 is the hottest).

    paths: path, hops (in one call), calls, total_ns, median_ns, longest_ns, cost_ns and once_ns (see
    survey_paths), of the first call the op, key and hop (id), and unfinished (calls); with GPU activities
    gpu_ns.
    nodes: path and the columns of `trees.fold`, folded over all calls of the path.
    sources: path, source, called_from, backward_node (null: forward), calls; most calls first.
    inputs: path, signature (id or null), calls, total_ns, median_ns; most calls first.
    """

    paths: pl.DataFrame
    nodes: pl.DataFrame
    sources: pl.DataFrame
    inputs: pl.DataFrame


def survey_paths(forest: Forest) -> pl.DataFrame:
    """Every distinct path of outermost op calls, the one that costs most in the steady steps first.

    The cost of calls with the same inputs is their median x calls: one call that was preempted, or that
    loaded code, does not decide which path is the hottest, and many small calls do not hide a large one.

    Columns: structure (UInt64, see Forest.structure), path, hops, calls, total_ns, median_ns,
    longest_ns, cost_ns (in the steady steps; in all where there are none), once_ns (what the first call took
    if that was more than ONCE medians; else 0), op, key, hop, unfinished (how many of the calls are, and so
    not in the median, unless all are), and gpu_ns where the forest has GPU activities. What is no hop
    (links.combine) tells paths apart, counts in no column but gpu_ns, and makes no path of its own.
    """
    is_hop = forest.hops["kind"].is_in(HOP_KINDS).to_numpy()
    sizes = counts(forest.root[is_hop], len(is_hop))
    outermost = (forest.parent < 0) & is_hop
    measured = [name for name in ("gpu_ns",) if name in forest.hops.columns]
    roots = (
        forest.hops.select(
            *("op", "key", *measured, "start_ns", "end_ns", "open", "inputs"),
            hop="id",
            steady=(pl.col("phase").cast(pl.String) == "steady").fill_null(False),
        )
        .filter(outermost)
        .with_columns(
            duration=pl.col("end_ns") - pl.col("start_ns"),
            structure=forest.structure[outermost],
            hops=sizes[outermost],
        )
    )
    duration = pl.col("duration")
    first = duration.sort_by("start_ns").first()
    return (
        roots.group_by("structure")
        .agg(
            pl.col("op", "key", "hop", "hops").first(),
            calls=pl.len(),
            total_ns=pl.col("duration").sum(),
            median_ns=finished_median(pl.col("duration")),
            unfinished=pl.col("open").sum(),
            longest_ns=pl.col("duration").max(),
            once_ns=pl.when((pl.len() > 1) & (first > ONCE * finished_median(duration))).then(first),
            **{name: pl.col(name).sum() for name in measured},
        )
        .join(_costs(roots), on="structure", how="left")
        .sort("cost_ns", "cost_of_all_ns", "hop", descending=[True, True, False])
        .with_row_index("path")
        .select(
            *("structure", "path", "hops", "calls", "total_ns", "median_ns", "longest_ns", "cost_ns"),
            pl.col("once_ns").fill_null(0),
            *("op", "key", "hop", "unfinished", *measured),
        )
    )


def _costs(roots: pl.DataFrame) -> pl.DataFrame:
    """structure, cost_ns and cost_of_all_ns: the sum over its inputs, in the steady steps and in all."""
    cost = finished_median(pl.col("duration")) * pl.len()
    steady = roots.filter(pl.col("steady"))
    tables = [
        rows.group_by("structure", "inputs")
        .agg(cost.alias(name))
        .group_by("structure")
        .agg(pl.col(name).sum())
        for rows, name in ((steady if len(steady) else roots, "cost_ns"), (roots, "cost_of_all_ns"))
    ]
    return tables[1].join(tables[0], on="structure", how="left").with_columns(pl.col("cost_ns").fill_null(0))


def steady_part(forest: Forest) -> Forest:
    """The outermost calls that began in steady steps, and all in them."""
    steady = (forest.hops["phase"].cast(pl.String) == "steady").fill_null(False).to_numpy()
    return Forest.of(forest.hops.filter(steady[forest.root]))


def paths_with(forest: Forest, survey: pl.DataFrame, patterns: list[str]) -> pl.DataFrame:
    """The rows of `survey` (from survey_paths) in which an op or a function fits one of the patterns."""
    ops = forest.hops["op"].cast(pl.String)
    fitting = [op for op in ops.unique().drop_nulls() if any(fits_op(op, pattern) for pattern in patterns)]
    roots = forest.root[ops.is_in(fitting).fill_null(False).to_numpy()]
    return survey.filter(pl.col("structure").is_in(pl.Series(forest.structure[roots]).unique().implode()))


def hottest_paths(forest: Forest, survey: pl.DataFrame, limit: int) -> PathTables:
    """The `limit` hottest paths of `survey` (from survey_paths) with what is in them."""
    top = survey.head(limit)
    of_path = _paths_of_rows(forest, top)
    chosen = of_path.is_not_null().to_numpy()
    hops = forest.hops.with_columns(path=of_path)
    groups, nodes = fold(forest.with_hops(hops), ["path"], chosen=chosen)
    roots = hops.select(
        *("path", "source", "called_from", "backward_node", "inputs", "open"),
        duration=pl.col("end_ns") - pl.col("start_ns"),
    ).filter(chosen & (forest.parent < 0))
    inputs = roots.group_by("path", "inputs", maintain_order=True).agg(
        calls=pl.len(),
        total_ns=pl.col("duration").sum(),
        median_ns=finished_median(pl.col("duration")),
    )
    return PathTables(
        paths=top.drop("structure"),
        nodes=nodes.join(groups.select("group", "path"), on="group", how="inner", maintain_order="left")
        .drop("group", "parent_node")
        .sort("path", maintain_order=True),
        sources=_count(roots, "source", "called_from", "backward_node"),
        inputs=inputs.rename({"inputs": "signature"}).sort(
            "path", "calls", descending=[False, True], maintain_order=True
        ),
    )


def _paths_of_rows(forest: Forest, paths: pl.DataFrame) -> pl.Series:
    """The path of each row; null where its outermost call is of none of them."""
    outermost = np.flatnonzero(forest.parent < 0)
    of_root = pl.DataFrame({"structure": forest.structure[outermost]}).join(
        paths.select("structure", "path"), on="structure", how="left", maintain_order="left"
    )["path"]
    path = np.full(len(forest.hops), -1, np.int32)
    path[outermost] = of_root.cast(pl.Int32).fill_null(-1).to_numpy()
    found = pl.Series(path[forest.root])
    return found.set(found < 0, None).cast(of_root.dtype)


def _count(roots: pl.DataFrame, *columns: str) -> pl.DataFrame:
    return (
        roots.group_by("path", *columns, maintain_order=True)
        .len("calls")
        .sort("path", "calls", descending=[False, True], maintain_order=True)
    )
