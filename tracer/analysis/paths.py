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
    inputs: path, signature (id or null), calls, total_ns, median_ns, cost_ns, the source and backward_node of
    most of these calls, lines (how many sources there are); with GPU activities gpu_ns. Most calls first.
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
    measured = _measured(forest)
    roots = (
        forest.hops.select(
            *("op", "key", *measured, "start_ns", "open", "inputs"), *_timed(forest.hops), hop="id"
        )
        .filter(outermost)
        .with_columns(structure=forest.structure[outermost], hops=sizes[outermost])
    )
    costs = (
        _by_inputs(roots, "structure").group_by("structure").agg(pl.col("cost_ns", "cost_of_all_ns").sum())
    )
    duration = pl.col("duration")
    first, median = duration.sort_by("start_ns").first(), finished_median(duration)
    return (
        roots.group_by("structure")
        .agg(
            pl.col("op", "key", "hop", "hops").first(),
            calls=pl.len(),
            total_ns=duration.sum(),
            median_ns=median,
            unfinished=pl.col("open").sum(),
            longest_ns=duration.max(),
            once_ns=pl.when((pl.len() > 1) & (first > ONCE * median)).then(first).otherwise(0),
            **{name: pl.col(name).sum() for name in measured},
        )
        .join(costs, on="structure", how="left")
        .sort("cost_ns", "cost_of_all_ns", "hop", descending=[True, True, False])
        .with_row_index("path")
        .select(
            *("structure", "path", "hops", "calls", "total_ns", "median_ns", "longest_ns", "cost_ns"),
            *("once_ns", "op", "key", "hop", "unfinished", *measured),
        )
    )


def _measured(forest: Forest) -> list[str]:
    return [name for name in ("gpu_ns",) if name in forest.hops.columns]


def _timed(hops: pl.DataFrame) -> list[pl.Expr]:
    """duration, and counted: whether a call decides what its path costs."""
    steady = (pl.col("phase").cast(pl.String) == "steady").fill_null(False)
    outermost_steady = hops.select((steady & pl.col("parent").is_null()).any()).item()
    counted = steady if outermost_steady else pl.lit(True)
    return [(pl.col("end_ns") - pl.col("start_ns")).alias("duration"), counted.alias("counted")]


def _by_inputs(calls: pl.DataFrame, by: str, **more: pl.Expr) -> pl.DataFrame:
    """Calls with the same inputs: by, inputs, calls, total_ns, median_ns, cost_ns and cost_of_all_ns."""
    duration, counted = pl.col("duration"), pl.col("counted")
    median = finished_median(duration)
    return calls.group_by(by, "inputs", maintain_order=True).agg(
        calls=pl.len(),
        total_ns=duration.sum(),
        median_ns=median,
        cost_ns=(finished_median(duration, counted) * counted.sum()).fill_null(0),
        cost_of_all_ns=median * pl.len(),
        **more,
    )


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
    measured = _measured(forest)
    roots = hops.select(
        *("path", "source", "called_from", "backward_node", "inputs", "open", *measured), *_timed(hops)
    ).filter(chosen & (forest.parent < 0))
    line = pl.struct("source", "backward_node").mode(maintain_order=True).first()
    inputs = _by_inputs(
        roots,
        "path",
        line=line,
        lines=pl.col("source").n_unique(),
        **{name: pl.col(name).sum() for name in measured},
    )
    return PathTables(
        paths=top.drop("structure"),
        nodes=nodes.join(groups.select("group", "path"), on="group", how="inner", maintain_order="left")
        .drop("group", "parent_node")
        .sort("path", maintain_order=True),
        sources=_count(roots, "source", "called_from", "backward_node"),
        inputs=inputs.rename({"inputs": "signature"})
        .drop("cost_of_all_ns")
        .unnest("line")
        .sort("path", "calls", descending=[False, True], maintain_order=True),
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
