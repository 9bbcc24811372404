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

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LABEL = ("op", "key", "kernel", "kind", "raised", "open")
_SHOWN = (
    *("op", "key", "kernel", "kind", "registered_at", "rule", "override"),
    *("source", "module", "raised", "open"),
)
_MEASURED = ("gpu_ns", "queries", "others")
_HOP_KINDS = ("call", "redispatch")


def own_or_forward_line() -> pl.Expr:
    """`source`, but null for a backward hop without a forward hop, where it is the running line."""
    known = pl.col("backward_node").is_null() | pl.col("forward_hop").is_not_null()
    return pl.when(known).then("source")


@dataclass(frozen=True)
class Forest:
    """Hops in the order they were entered, and the place of each in the tree.

    Arrays have one element a hop: `parent` is the row of the enclosing hop (-1 for an outermost
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
        return forest

    def levels(self) -> Iterator[np.ndarray]:
        """The rows of each depth, outermost first."""
        depth = self.depth
        if len(depth) and depth.max() < 1 << 16:
            depth = depth.astype(np.uint16)  # numpy sorts short integers by radix
        order = np.argsort(depth, kind="stable")
        start = 0
        for end in np.cumsum(np.bincount(self.depth)).tolist():
            yield order[start:end]
            start = end

    @cached_property
    def structure(self) -> np.ndarray:
        """One number (uint64) a hop, equal where op, key, kernel, kind, end and all below are."""
        number = _labels(self.hops)
        for rows in reversed(list(self.levels())[1:]):
            parent = self.parent[rows]  # in order of entry, so siblings are adjacent
            first = np.flatnonzero(np.diff(parent, prepend=-1))
            rank = np.arange(len(rows)) - np.repeat(first, np.diff(first, append=len(rows)))
            below = np.add.reduceat(_mix(number[rows] + _mix(rank.astype(np.uint64))), first)
            number[parent[first]] = _mix(number[parent[first]] + below)
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


def depths(parent: np.ndarray) -> np.ndarray:
    """The number of rows that enclose each row, from the row of its parent (-1: none)."""
    return _depth_and_root(parent)[0]


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


def fold(forest: Forest, by: list[str], *, identical: bool = True) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Folds identical subtrees among siblings; returns (groups, nodes).

    Outermost hops are siblings where the columns named in `by` are equal. With `identical` False
    nothing is folded, and outermost hops form a group only while they follow each other.

    groups: group, the columns of `by`, calls (outermost hops), total_ns; in order of appearance.
    Where `hops` has rows of other kinds too (links.combine): bare (outermost rows that are no
    hops) and gpu_ns, and in nodes the medians of gpu_ns, queries and others, and gpu_total_ns.
    nodes, as a reader of the tree meets them: group, level (0 outermost), members (hops folded
    into this line), count (of them under each hop of the line above), median_ns, median_self_ns (null
    where that is not known: links.combine), total_ns, signatures (list of the distinct ids, null among
    them), modules (distinct ones, of outermost hops; else null), parent_node (row in nodes, null at level 0),
    and as `hop` the id of the first member with its op, key, kernel, kind, registered_at, rule, override,
    signature (id or null), source, module, raised, open.
    """
    hops = forest.hops
    outermost = forest.parent < 0
    group = np.zeros(len(hops), np.int64)
    group[outermost] = _groups(hops.filter(outermost).select(by), consecutive=not identical)
    place = np.arange(len(hops), dtype=np.uint64)
    if identical:
        structure = forest.structure
        for level, rows in enumerate(forest.levels()):
            above = place[forest.parent[rows]] if level else group[rows].astype(np.uint64)
            place[rows] = _mix(_mix(above) + structure[rows])
    modules = (
        pl.DataFrame({"place": place[outermost], "module": hops.filter(outermost)["module"]})
        .group_by("place")
        .agg(modules=pl.col("module").n_unique())
    )
    first_of = pl.col("row", "parent_place", "level", "group").first()
    measured = [name for name in _MEASURED if name in hops.columns]
    nodes = (
        pl.DataFrame(
            {
                "place": place,
                "row": np.arange(len(hops), dtype=np.uint32),
                "parent_place": place[forest.parent],
                "level": forest.depth.astype(np.uint16),
                "group": group.astype(np.uint32)[forest.root],
                "inputs": hops["inputs"],
                "duration": hops["end_ns"] - hops["start_ns"],
                "self": hops["self_ns"],
                **{name: hops[name] for name in measured},
            }
        )
        .group_by("place")
        .agg(
            first_of,
            members=pl.len(),
            median_ns=pl.col("duration").median().round().cast(pl.Int64),
            median_self_ns=pl.col("self").median().round().cast(pl.Int64),
            total_ns=pl.col("duration").sum(),
            signatures=pl.col("inputs").unique(maintain_order=True),
            **{name: pl.col(name).median().round().cast(pl.Int64) for name in measured},
            **({"gpu_total_ns": pl.col("gpu_ns").sum()} if measured else {}),
        )
        .cast(dict.fromkeys(("row", "level", "group"), pl.Int64))
        .join(modules, on="place", how="left", maintain_order="left")
        .sort("group", "row")
    )
    outermost_hops = hops.filter(outermost).with_columns(group=group[outermost])
    is_hop = pl.col("kind").cast(pl.String).is_in(_HOP_KINDS)
    groups = outermost_hops.group_by("group").agg(
        pl.col(by).first(),
        calls=is_hop.sum() if measured else pl.len(),
        total_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
        **({"bare": (~is_hop).sum(), "gpu_ns": pl.col("gpu_ns").sum()} if measured else {}),
    )
    measured += ["gpu_total_ns"] * bool(measured)
    return groups.sort("group"), _nodes(hops, nodes, measured)


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
    depth = (parent >= 0).astype(np.int64)
    jump = np.where(parent >= 0, parent, np.arange(len(parent)))
    while True:  # pointer doubling: as many rounds as the depth has bits
        further = jump[jump]
        if np.array_equal(further, jump):
            return depth, jump
        depth += depth[jump]
        jump = further


def outermost_rows(parent: np.ndarray) -> np.ndarray:
    """The row of the outermost one around each row, from the row of its parent (-1: none)."""
    return _depth_and_root(parent)[1]


def parent_rows(hops: pl.DataFrame) -> np.ndarray:
    """The row of the parent of each hop; -1 where it is not among the rows, which are ordered by id."""
    ids = hops["id"].cast(pl.Int64).to_numpy()
    parents = hops["parent"].cast(pl.Int64).fill_null(-1).to_numpy()
    if not len(ids):
        return np.empty(0, np.int64)
    if ids[0] == 0 and ids[-1] == len(ids) - 1:
        return parents  # all hops of a trace: ids are rows
    rows = np.searchsorted(ids, parents)
    rows[rows == len(ids)] = 0
    return np.where((parents >= 0) & (ids[rows] == parents), rows, -1)


def _mix(number: np.ndarray) -> np.ndarray:
    """splitmix64: spreads each number over all 64 bits."""
    number = number + _GOLDEN
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


def _labels(hops: pl.DataFrame) -> np.ndarray:
    label = np.zeros(len(hops), np.uint64)
    for name in _LABEL:
        label = _mix(label + _codes(hops[name]))
    return label


def _codes(column: pl.Series) -> np.ndarray:
    if column.dtype != pl.Boolean:
        column = column.cast(pl.Categorical).to_physical()
    return (column.cast(pl.Int64) + 1).fill_null(0).to_numpy().astype(np.uint64)


def _groups(keys: pl.DataFrame, *, consecutive: bool) -> np.ndarray:
    """Numbers the distinct rows by first appearance, or with `consecutive` each run of equal ones."""
    if not keys.width:
        return np.zeros(len(keys), np.int64)
    if consecutive:
        return keys.select(pl.struct(pl.all()).rle_id()).to_series().to_numpy()
    first = keys.with_row_index("row").select(pl.col("row").first().over(keys.columns))
    return np.unique(first.to_series().to_numpy(), return_inverse=True)[1]
