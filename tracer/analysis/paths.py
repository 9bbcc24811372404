"""Distinct dispatch paths: outermost op calls that ran the same hops, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.analysis.medians import finished_median
from tracer.analysis.patterns import fits_op
from tracer.analysis.trees import Forest, counts, fold
from tracer.trace.tables.schema import HOP_KINDS

ONCE = 3
"""A first call is a row of its own if it took more than this many medians of the other calls"""


@dataclass(frozen=True)
class PathTables:
    """The hottest dispatch paths, joined by the column `path` (0 is the hottest).

    paths: the columns of survey_paths but structure.
    nodes: path and the columns of `trees.fold`, folded over all calls of the path, first ones too; and of
    the calls with the inputs that cost most usual_ns and usual_self_ns: median x members.
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

    The cost of calls with the same inputs is their median x calls: one call that was preempted does not
    decide which path is the hottest, and many small calls do not hide a large one.

    Columns: structure (UInt64, see Forest.structure), path, hops, calls, total_ns, median_ns,
    longest_ns, cost_ns (in the steady steps; in all where there are none), op, key, hop (id of a call),
    unfinished (how many of the calls are, and so not in the median, unless all are), and gpu_ns where the
    forest has GPU activities. First calls that loaded code or compiled (_once) are in none of these:
    once_calls counts them, and once_ns is what they took. What is no hop (links.combine) tells paths apart,
    counts in no column but gpu_ns, and makes no path of its own.
    """
    calls, measured = _outermost_calls(forest), _measured(forest)
    others = calls.filter(~pl.col("once"))
    costs = (
        _by_inputs(others, "structure").group_by("structure").agg(pl.col("cost_ns", "cost_of_all_ns").sum())
    )
    once = (
        calls.filter("once").group_by("structure").agg(once_calls=pl.len(), once_ns=pl.col("duration").sum())
    )
    duration = pl.col("duration")
    return (
        others.group_by("structure")
        .agg(
            pl.col("op", "key", "hop", "hops").first(),
            calls=pl.len(),
            total_ns=duration.sum(),
            median_ns=finished_median(duration),
            unfinished=pl.col("open").sum(),
            longest_ns=duration.max(),
            **{name: pl.col(name).sum() for name in measured},
        )
        .join(costs, on="structure", how="left")
        .join(once, on="structure", how="left")
        .with_columns(pl.col("once_calls", "once_ns").fill_null(0))
        .sort("cost_ns", "cost_of_all_ns", "hop", descending=[True, True, False])
        .with_row_index("path")
        .select(
            *("structure", "path", "hops", "calls", "total_ns", "median_ns", "longest_ns", "cost_ns"),
            *("once_calls", "once_ns", "op", "key", "hop", "unfinished", *measured),
        )
    )


def calls_and_time(survey: pl.DataFrame) -> tuple[int, int]:
    """How many calls the paths have, and how long those took (ns), first ones too."""
    calls, ns = survey.select(
        (pl.col("calls") + pl.col("once_calls")).sum(), (pl.col("total_ns") + pl.col("once_ns")).sum()
    ).row(0)
    return int(calls), int(ns)


def _measured(forest: Forest) -> list[str]:
    return [name for name in ("gpu_ns",) if name in forest.hops.columns]


def _outermost_calls(forest: Forest) -> pl.DataFrame:
    """Outermost op calls: columns of hops, hop (id), structure, hops (in the call), duration, once, and
    counted: whether the call decides what its path costs.
    """
    is_hop = forest.hops["kind"].is_in(HOP_KINDS).to_numpy()
    sizes, outermost = counts(forest.root[is_hop], len(is_hop)), (forest.parent < 0) & is_hop
    steady = (pl.col("phase").cast(pl.String) == "steady").fill_null(False)
    return (
        forest.hops.select(
            *("op", "key", "process", "start_ns", "open", "inputs", "source", "called_from"),
            *("backward_node", *_measured(forest)),
            hop="id",
            duration=pl.col("end_ns") - pl.col("start_ns"),
            steady=steady,
        )
        .filter(outermost)
        .with_columns(
            structure=forest.structure[outermost],
            hops=sizes[outermost],
            counted=pl.col("steady") | ~pl.col("steady").any(),
        )
        .with_columns(once=_once())
    )


def _once() -> pl.Expr:
    """Whether a call is the first of its path in its process, and took ONCE medians of the others.

    Of those with the same inputs, if there are any: a large input takes longer each time.
    """
    duration, done = pl.col("duration"), ~pl.col("open").fill_null(False)
    first = pl.col("start_ns") == pl.col("start_ns").min().over("structure", "process")
    others = duration.filter(~first & done).median()
    usual = pl.coalesce(others.over("structure", "inputs"), others.over("structure"))
    return (first & done & (duration > ONCE * usual)).fill_null(False)


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
    nodes = _nodes(forest.with_hops(hops), chosen)
    calls = _outermost_calls(forest).filter(~pl.col("once"))
    roots = calls.join(top.select("structure", "path"), on="structure", how="inner", maintain_order="left")
    line = pl.struct("source", "backward_node").mode(maintain_order=True).first()
    inputs = _by_inputs(
        roots,
        "path",
        line=line,
        lines=pl.col("source").n_unique(),
        **{name: pl.col(name).sum() for name in _measured(forest)},
    )
    return PathTables(
        paths=top.drop("structure"),
        nodes=_with_usual(
            nodes, _nodes(forest.with_hops(hops), chosen & _costliest(hops, forest.root, inputs))
        ),
        sources=_count(roots, "source", "called_from", "backward_node"),
        inputs=inputs.rename({"inputs": "signature"})
        .drop("cost_of_all_ns")
        .unnest("line")
        .sort("path", "calls", descending=[False, True], maintain_order=True),
    )


def _nodes(forest: Forest, chosen: NDArray[np.bool_]) -> pl.DataFrame:
    """Those of each path, in the order of a tree."""
    groups, nodes = fold(forest, ["path"], chosen=chosen)
    nodes = nodes.join(groups.select("group", "path"), on="group", how="inner", maintain_order="left")
    return nodes.drop("group", "parent_node").sort("path", maintain_order=True)


def _costliest(hops: pl.DataFrame, root: NDArray[np.int32], inputs: pl.DataFrame) -> NDArray[np.bool_]:
    """Which rows of `hops` are in calls with the inputs that cost most of their path."""
    best = inputs.sort("cost_ns", "total_ns", descending=True, maintain_order=True).unique(
        "path", keep="first"
    )
    of = hops.select("path", inputs=pl.col("inputs").gather(root)).join(
        best.select("path", "inputs", best=True),
        on=["path", "inputs"],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    return of["best"].fill_null(False).to_numpy()


def _with_usual(nodes: pl.DataFrame, costliest: pl.DataFrame) -> pl.DataFrame:
    """The calls of a path have the same nodes, whatever their inputs."""
    usual = [(pl.col(f"median{of}_ns") * pl.col("members")).alias(f"usual{of}_ns") for of in ("", "_self")]
    place = pl.int_range(pl.len()).over("path").alias("place")
    found = costliest.select("path", place, *usual)
    nodes = nodes.with_columns(place).join(found, on=["path", "place"], how="left", maintain_order="left")
    return nodes.drop("place")


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
