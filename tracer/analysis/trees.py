"""Dispatch trees: hops as a forest, and the same forest with identical subtrees folded.

Everything works on whole columns, one level of the forest at a time, so that millions of hops
take seconds; nothing here makes a Python object for a hop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.analysis.medians import finished_median
from tracer.base import heap
from tracer.trace.bytes.arrays import doublings
from tracer.trace.tables.schema import HOP_KINDS

OF_A_GROUP = ["process", "thread", "source", "called_from", "backward_node", "range"]
"""The columns by which outermost hops are one group of a tree"""

_AT_ONCE = 1 << 20
"""Rows: columns in between of all rows would take more memory than the result"""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LABEL = ("op", "key", "kernel", "kind", "handed_over", "raised", "open")
_SHOWN = (
    *("op", "key", "kernel", "kind", "registered_at", "rule", "override", "handed_over"),
    *("source", "module", "raised", "open"),
)
_MEASURED = ("gpu_ns", "queries", "others")


def own_or_forward_line() -> pl.Expr:
    """`source`, but null for a backward hop where it is the running line: its forward is not known."""
    known = pl.col("backward_node").is_null() | pl.col("forward_hop").is_not_null()
    known |= pl.col("source") != pl.col("called_from")
    return pl.when(known).then("source")


@dataclass(frozen=True)
class Forest:
    """Hops in the order they were entered, and the place of each in the tree.

    Arrays have one element a hop (int32): `parent` is the row of the enclosing hop (-1 for an outermost
    one), `depth` the number of enclosing hops, `root` the row of the outermost one.
    """

    hops: pl.DataFrame
    parent: np.ndarray
    depth: np.ndarray
    root: np.ndarray

    @classmethod
    def of(cls, hops: pl.DataFrame) -> Forest:
        """Builds the forest of `hops`: all of a trace, or any rows of it in their order.

        A hop whose parent is not among the rows counts as an outermost one.
        """
        parent = parent_rows(hops)
        return cls(hops, parent, *_depth_and_root(parent))

    def with_hops(self, hops: pl.DataFrame) -> Forest:
        """The same forest of the same rows with other columns; those that tell structures apart are equal."""
        forest = Forest(hops, self.parent, self.depth, self.root)
        forest.__dict__["structure"] = self.structure
        forest.__dict__["_by_depth"] = self._by_depth
        return forest

    def levels(self) -> Iterator[np.ndarray]:
        """The rows of each depth, outermost first."""
        order, ends = self._by_depth
        start = 0
        for end in ends:
            yield order[start:end]
            start = end

    @cached_property
    def tree_sizes(self) -> np.ndarray:
        """How many hops each outermost one has below it, itself included."""
        return counts(self.root, len(self.root))[self.parent < 0]

    @cached_property
    def _by_depth(self) -> tuple[np.ndarray, list[int]]:
        """The rows, outermost first, and where the rows of each depth end."""
        depth = self.depth
        deepest = int(depth.max(initial=-1))
        if deepest < 1 << 16:
            depth = depth.astype(np.uint16)  # numpy sorts short integers by radix
        order = np.argsort(depth, kind="stable").astype(np.int32)
        return order, np.searchsorted(depth[order], np.arange(deepest + 1), "right").tolist()

    @cached_property
    def structure(self) -> np.ndarray:
        """One number (uint64) a hop, equal where op, key, kernel, kind, end and all below are.

        With all below the lines of Python kernels in them.
        """
        number = _labels(self.hops) + _own_lines(self.hops, self.parent)
        for rows in reversed(list(self.levels())[1:]):
            parent = self.parent[rows]  # in order of entry, so siblings are adjacent
            first = np.flatnonzero(np.diff(parent, prepend=-1))
            rank = np.arange(len(rows)) - np.repeat(first, np.diff(first, append=len(rows)))
            below = np.add.reduceat(_mix(number[rows] + _mix(rank.astype(np.uint64))), first)
            number[parent[first]] = _mix(number[parent[first]] + below)
        heap.give_back()
        return number

    def around(self, matching: np.ndarray) -> np.ndarray:
        """True for hops that match, that enclose a match and that a match encloses."""
        above = matching.copy()
        for rows in reversed(list(self.levels())[1:]):
            above[self.parent[rows[above[rows]]]] = True
        return above | self.below(matching)

    def below(self, matching: np.ndarray) -> np.ndarray:
        """True for hops that match and that a match encloses."""
        below = matching.copy()
        for rows in list(self.levels())[1:]:
            below[rows] |= below[self.parent[rows]]
        return below


def counts(rows: np.ndarray, length: int) -> np.ndarray:
    """How often each row of a table with `length` rows is in `rows`."""
    found = np.zeros(length, np.uint32)
    for start in range(0, len(rows), _AT_ONCE):
        part = rows[start : start + _AT_ONCE]
        first = int(part.min())
        there = np.bincount(part - first)
        found[first : first + len(there)] += there.astype(np.uint32)
    return found


def depths(parent: np.ndarray) -> np.ndarray:
    """The number of rows that enclose each row, from the row of its parent (-1: none)."""
    return _depth_and_root(parent)[0]


def levels(parent: np.ndarray) -> list[np.ndarray]:
    """The rows of each depth, outermost first, from the row of each row's parent (-1: none)."""
    depth = depths(parent)
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.cumsum(np.bincount(depth))[:-1]) if len(order) else []


def longest_first(groups: pl.DataFrame, nodes: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The result of fold with the group that took the most time first, and in each the longest subtrees.

    Lines below outermost ones stay in the order of their calls.
    """
    groups = groups.sort("total_ns", descending=True, maintain_order=True)
    place = groups.select("group").with_row_index("place")
    outermost = pl.col("level") == 0
    ordered = (
        nodes.with_row_index("row")
        .join(place, on="group", maintain_order="left")
        .with_columns(
            tree=pl.when(outermost).then("row").forward_fill(),
            weight=pl.when(outermost).then("total_ns").forward_fill(),
        )
        .sort("place", "weight", "tree", "row", descending=[False, True, False, False])
    )
    now = np.empty(len(nodes), np.int64)
    now[ordered["row"].to_numpy()] = np.arange(len(nodes))
    parent = ordered["parent_node"].fill_null(-1).to_numpy()
    moved = pl.Series("parent_node", np.where(parent < 0, -1, now[parent]), dtype=pl.Int64)
    return groups, ordered.select(nodes.columns).with_columns(
        pl.when(moved >= 0).then(moved).cast(nodes.schema["parent_node"]).alias("parent_node")
    )


def fold(
    forest: Forest, by: list[str], *, identical: bool = True, chosen: np.ndarray | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Folds identical subtrees among siblings; returns (groups, nodes).

    Outermost hops are siblings where the columns named in `by` are equal. With `identical` False
    nothing is folded, and outermost hops form a group only while they follow each other. With `chosen`
    (a bool a hop, the same in a whole tree) only these trees are folded.

    groups: group, the columns of `by`, calls (outermost hops), total_ns; in order of appearance.
    Where `hops` has rows of other kinds too (links.combine): bare (outermost rows that are no
    hops) and gpu_ns, and in nodes the medians of gpu_ns, queries and others, and gpu_total_ns.
    nodes, as a reader of the tree meets them: group, level (0 outermost), members (hops folded
    into this line), count (of them under each hop of the line above), median_ns, median_self_ns (null
    where that is not known: links.combine), total_ns, signatures (list of the distinct ids, null among
    them), modules (distinct ones, of outermost hops; else null), parent_node (row in nodes, null at level 0),
    and as `hop` the id of the first member with its op, key, kernel, kind, registered_at, rule, override,
    handed_over, signature (id or null), source, module, raised, open.

    relu(max max) relu(max max) add     ->    level  op    members  count  parent_node
                                              0      relu  2        2      null
                                              1      max   4        2      0
                                              0      add   1        1      null
    """
    hops = forest.hops
    outermost = forest.parent < 0 if chosen is None else (forest.parent < 0) & chosen
    group = np.zeros(len(hops), np.uint32)
    group[outermost] = _groups(hops.select(by).filter(outermost), consecutive=not identical)
    place = np.arange(len(hops), dtype=np.uint64)
    if identical:
        structure = forest.structure
        for level, rows in enumerate(forest.levels()):
            above = place[forest.parent[rows]] if level else group[rows].astype(np.uint64)
            place[rows] = _mix(_mix(above) + structure[rows])
    modules = (
        pl.DataFrame({"place": place[outermost], "module": hops["module"].filter(outermost)})
        .group_by("place")
        .agg(modules=pl.col("module").n_unique())
    )
    measured = [name for name in _MEASURED if name in hops.columns]
    columns = hops.select("inputs", "start_ns", "end_ns", "self_ns", "open", *measured)
    of_level = [
        columns[rows]
        .with_columns(
            place=place[rows], row=rows.astype(np.uint32), duration=pl.col("end_ns") - pl.col("start_ns")
        )
        .group_by("place")
        .agg(
            pl.col("row").first(),
            members=pl.len(),
            median_ns=finished_median(pl.col("duration")),
            median_self_ns=finished_median(pl.col("self_ns")),
            total_ns=pl.col("duration").sum(),
            signatures=pl.col("inputs").unique(maintain_order=True),
            **{name: pl.col(name).median().round().cast(pl.Int64) for name in measured},
            **({"gpu_total_ns": pl.col("gpu_ns").sum()} if measured else {}),
        )
        for rows in _together(forest, chosen)
    ]
    nodes = pl.concat(of_level).join(modules, on="place", how="left", maintain_order="left")
    first = nodes["row"].to_numpy()
    nodes = nodes.with_columns(
        row=first.astype(np.int64),
        parent_place=place[forest.parent[first]],
        level=forest.depth[first].astype(np.int64),
        group=group[forest.root[first]].astype(np.int64),
    ).sort("group", "row")
    shown = dict.fromkeys((*by, "kind", "start_ns", "end_ns", *measured))
    outermost_hops = hops.select(*shown).filter(outermost)
    heap.give_back()
    outermost_hops = outermost_hops.with_columns(group=group[outermost].astype(np.int64))
    is_hop = pl.col("kind").cast(pl.String).is_in(HOP_KINDS)
    groups = outermost_hops.group_by("group").agg(
        pl.col(by).first(),
        calls=is_hop.sum() if measured else pl.len(),
        total_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
        **({"bare": (~is_hop).sum(), "gpu_ns": pl.col("gpu_ns").sum()} if measured else {}),
    )
    measured += ["gpu_total_ns"] * bool(measured)
    return groups.sort("group"), _nodes(hops, nodes, measured)


def _own_lines(hops: pl.DataFrame, parent: np.ndarray) -> NDArray[np.uint64]:
    """One number a hop, equal where the line is; 0 if it is outermost or has the line of the hop around."""
    line = _codes(hops["source"])
    changed = (parent >= 0) & (line != line[parent])
    number: NDArray[np.uint64] = np.where(changed, line + 1, 0).astype(np.uint64) * _GOLDEN
    return number


def _together(forest: Forest, chosen: np.ndarray | None) -> Iterator[np.ndarray]:
    """All rows, or the chosen ones: whole levels, small ones together, since a place is of one level."""
    parts, rows = [np.empty(0, np.int32)], 0
    for level in forest.levels():
        parts.append(level if chosen is None else level[chosen[level]])
        rows += len(parts[-1])
        if rows >= _AT_ONCE:
            yield np.concatenate(parts)
            parts, rows = [np.empty(0, np.int32)], 0
    yield np.concatenate(parts)


def _nodes(hops: pl.DataFrame, nodes: pl.DataFrame, measured: list[str]) -> pl.DataFrame:
    above = nodes.select(
        parent_place="place", parent_node=pl.row_index().cast(pl.Int64), parent_members="members"
    )
    nodes = nodes.with_columns(parent_place=pl.when(pl.col("level") > 0).then("parent_place")).join(
        above, on="parent_place", how="left", maintain_order="left"
    )
    shown = hops.select(*_SHOWN, hop="id", signature="inputs")[nodes["row"].to_numpy()]
    return pl.concat(
        [
            nodes.select(
                "group",
                "level",
                "members",
                (pl.col("members") // pl.col("parent_members").fill_null(1)).alias("count"),
                "median_ns",
                "median_self_ns",
                "total_ns",
                "signatures",
                "modules",
                "parent_node",
                *measured,
            ),
            shown,
        ],
        how="horizontal",
    )


def _depth_and_root(parent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    depth = (parent >= 0).astype(np.int32)
    jump = np.where(parent >= 0, parent, np.arange(len(parent), dtype=parent.dtype))
    for _ in doublings(parent):  # as many rounds as the depth has bits
        further = jump[jump]
        if np.array_equal(further, jump):
            break
        depth += depth[jump]
        jump = further
    return depth, jump


def outermost_rows(parent: np.ndarray) -> np.ndarray:
    """The row of the outermost one around each row, from the row of its parent (-1: none)."""
    return _depth_and_root(parent)[1]


def parent_rows(hops: pl.DataFrame) -> np.ndarray:
    """The row of the parent of each hop; -1 where it is not among the rows, which are ordered by id."""
    ids = hops["id"].to_numpy()
    parents = hops["parent"].cast(pl.Int64).fill_null(-1).cast(pl.Int32).to_numpy()
    if not len(ids):
        return np.empty(0, np.int32)
    if ids[0] == 0 and ids[-1] == len(ids) - 1:
        return parents  # all hops of a trace: ids are rows
    return np.where(parents >= 0, rows_of_ids(ids, parents), -1).astype(np.int32)


def rows_of_ids(ids: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The row of each id that is wanted among `ids`, which are in order; -1 where it is not there."""
    rows = np.searchsorted(ids, np.maximum(wanted, 0).astype(ids.dtype))
    rows[rows == len(ids)] = 0
    return np.where(ids[rows] == wanted, rows, -1)


def _mix(number: np.ndarray) -> np.ndarray:
    """splitmix64: spreads each number over all 64 bits."""
    number = number + _GOLDEN
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


def _labels(hops: pl.DataFrame) -> np.ndarray:
    label = np.zeros(len(hops), np.uint64)
    for name in _LABEL:
        codes = _codes(hops[name])
        for first in range(0, len(hops), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            label[part] = _mix(label[part] + codes[part])
    return label


def _codes(column: pl.Series) -> np.ndarray:
    """A number a row (uint32), 0 for null."""
    if column.dtype != pl.Boolean:
        column = column.cast(pl.Categorical).to_physical()
    return (column.cast(pl.UInt32) + 1).fill_null(0).to_numpy()


def _groups(keys: pl.DataFrame, *, consecutive: bool) -> np.ndarray:
    """Numbers the distinct rows by first appearance, or with `consecutive` each run of equal ones."""
    if not keys.width:
        return np.zeros(len(keys), np.int64)
    if consecutive:
        return keys.select(pl.struct(pl.all()).rle_id()).to_series().to_numpy()
    first = keys.with_row_index("row").select(pl.col("row").first().over(keys.columns))
    return np.unique(first.to_series().to_numpy(), return_inverse=True)[1]
