"""The calls of both sides as one tree: what a step spends in each of them, before and after.

Of each side the first run is drawn. The calls of a kind are scaled so that they take the median that the kind
has on its side, as in tables, and what is below them with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracer.analysis.call_tree import CallTree, path_tree
from tracer.analysis.compiled import without_calls
from tracer.analysis.cuda_tables import has_cuda
from tracer.analysis.difference.change import Change
from tracer.analysis.difference.compared_steps import ComparedSteps
from tracer.analysis.difference.kinds import Key, key_of, name_and_text
from tracer.analysis.links import Links, combine
from tracer.analysis.phases import in_backward
from tracer.analysis.source_lines import SourceLines
from tracer.analysis.trees import Forest
from tracer.trace.tables.schema import GPU_KINDS

if TYPE_CHECKING:
    from tracer.analysis.difference import Difference
    from tracer.trace import Trace

SIDES = ("before", "after")
SUMS = ("ns", "gpu_ns", "calls")
_SHARED = ("kind", "op", "key", "kernel", "module", "backward_node")
_OF_ONE_SIDE = ("registered_at", "override", "handed_over", "called_from", "part")
"""What would keep equal calls of both sides apart"""


def both_calls(before: Sequence[Trace], after: Sequence[Trace], found: Difference) -> CallTree:
    """Its nodes have `change`, a place in found.changes, and before_ns, after_calls, ...: SUMS of a step.

    A key of an outermost call, or a kernel function, that is another one after is `BEFORE -> AFTER`.
    """
    numbers = ComparedSteps.of([*before, *after]).numbers
    chosen = (before[0], numbers[0]), (after[0], numbers[len(before)])
    cuda = bool(found.gpu.before or found.gpu.after)
    sides = [_calls(trace, steps, found.changes, side, cuda) for side, (trace, steps) in enumerate(chosen)]
    rows = _aligned(pl.concat([forest.hops for forest in sides]))
    tree = path_tree(_together(sides, rows), rows)
    sums = (
        rows.with_columns(node=pl.Series(tree.node_of))
        .group_by("node")
        .agg(
            pl.col("change").first(),
            *(
                pl.col(name).filter(pl.col("side") == side).sum().alias(f"{SIDES[side]}_{name}")
                for side in (0, 1)
                for name in SUMS
            ),
        )
    )
    nodes = tree.nodes.hstack(sums.sort("node").drop("node"))
    return CallTree(nodes, tree.labels, tree.origins, tree.node_of)


def line_names(changes: Sequence[Change]) -> list[str]:
    """Of each change `train.py:7`, or `train.py:7 -> train.py:9` if the line moved or was edited.

    Op calls of one side only are of the line that has their name, if code of it is on both sides.
    """
    pairs = {change.before.line: change.after.line for change in changes if change.before and change.after}
    before_of = {after: before for before, after in pairs.items()}

    def name(change: Change) -> str:
        before = change.before.line if change.before else before_of.get(change.kind.line)
        if before is None and pairs.get(change.kind.line, change.kind.line) != change.kind.line:
            return f"{change.kind.line} (new)"  # before, another line had this number
        before = before or change.kind.line
        after = pairs.get(before, before)
        return before if before == after else f"{before} -> {after}"

    return list(map(name, changes))


def _calls(
    trace: Trace, steps: Sequence[int] | None, changes: Sequence[Change], side: int, cuda: bool
) -> Forest:
    """The calls in these steps (None: all), with the columns of labels and origins, `side` and `change`."""
    links = combine(trace) if cuda or not has_cuda(trace) else Links(trace.hops, {})
    whole = without_calls(Forest.of(links.rows))
    own = _changes(whole.hops, SourceLines.of(trace), changes, side)
    if steps is not None:
        own = own.set(~whole.hops["step"].is_in(list(steps)).fill_null(False), -1)
    forest = Forest.of(whole.hops.with_columns(change=own.gather(whole.root)).filter(pl.col("change") >= 0))
    lines = dict(enumerate(line_names(changes)))
    on_gpu = pl.col("kind").cast(pl.String).is_in(GPU_KINDS)
    rows = forest.hops.select(
        "change",
        *(pl.col(name).cast(pl.String) for name in _SHARED),
        *(pl.lit(None, pl.String).alias(name) for name in _OF_ONE_SIDE),
        line=pl.col("change").replace_strict(lines, return_dtype=pl.String),
        side=pl.lit(side),
        outermost=pl.Series(forest.parent < 0),
        ns=pl.when(on_gpu).then(0).otherwise(pl.col("end_ns") - pl.col("start_ns")).fill_null(0),
        gpu_ns=pl.col("gpu_ns") if links.has_gpu and cuda else pl.lit(0),
        calls=pl.lit(1 / max(len(steps or ()), 1)),
    )
    return Forest(_scaled(rows, changes, side), forest.parent, forest.depth, forest.root)


def _changes(hops: pl.DataFrame, sources: SourceLines, changes: Sequence[Change], side: int) -> pl.Series:
    """Of each row the change that it would be of as an outermost call; -1: none."""
    numbers: dict[Key, int] = {}
    for number, change in enumerate(changes):
        kind = (change.before, change.after)[side]
        if kind is not None:
            numbers[kind.runs[0].key] = number
    rows = hops.select(pl.col("source", "op").cast(pl.String), backward=in_backward())
    kinds = rows.unique()
    found = [
        numbers.get(key_of(*name_and_text(sources, line), op or "?", back), -1)
        for line, op, back in kinds.iter_rows()
    ]
    kinds = kinds.with_columns(change=pl.Series(found, dtype=pl.Int64))
    on = ["source", "op", "backward"]
    return rows.join(kinds, on=on, how="left", nulls_equal=True, maintain_order="left")["change"]


def _scaled(rows: pl.DataFrame, changes: Sequence[Change], side: int) -> pl.DataFrame:
    """Times that add up, over the outermost calls of a change, to what its table says of this side."""
    for name in ("ns", "gpu_ns"):
        wanted = {
            number: getattr(change.times.times if name == "ns" else change.times.gpu, SIDES[side]) or 0.0
            for number, change in enumerate(changes)
        }
        whole = pl.col(name).filter("outermost").sum().over("change")
        median = pl.col("change").replace_strict(wanted, return_dtype=pl.Float64)
        rows = rows.with_columns(
            pl.when(whole > 0).then(pl.col(name) * median / whole).otherwise(0.0).alias(name)
        )
    return rows


def _aligned(rows: pl.DataFrame) -> pl.DataFrame:
    """Equal calls of both sides have equal keys and kernel functions, so that they are one node."""
    rows = _one_text(rows, "key", ["change", "outermost"], pl.col("outermost"))
    return _one_text(rows, "kernel", ["kind", "op", "key"], pl.lit(True))


def _one_text(rows: pl.DataFrame, name: str, group: list[str], where: pl.Expr) -> pl.DataFrame:
    """`BEFORE -> AFTER` in groups where the sides share no text of this column."""
    texts = [
        pl.col(name).filter(pl.col("side") == side).drop_nulls().unique(maintain_order=True)
        for side in (0, 1)
    ]
    one, other = pl.col("one").list, pl.col("other").list
    apart = (
        rows.filter(where)
        .group_by(group)
        .agg(one=texts[0], other=texts[1])
        .filter((one.len() > 0) & (other.len() > 0) & (one.set_intersection("other").list.len() == 0))
        .select(*group, both=pl.concat_str(one.join(", "), pl.lit(" -> "), other.join(", ")))
    )
    found = rows.join(apart, on=group, how="left", nulls_equal=True, maintain_order="left")
    return found.with_columns(pl.coalesce("both", name).alias(name)).drop("both")


def _together(sides: Sequence[Forest], rows: pl.DataFrame) -> Forest:
    one, other = sides
    first = len(one.root)
    parent = np.concatenate([one.parent, np.where(other.parent < 0, -1, other.parent + first)])
    depth = np.concatenate([one.depth, other.depth])
    return Forest(rows, parent, depth, np.concatenate([one.root, other.root + first]))
