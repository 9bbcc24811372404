"""Forests and folding, against plain recursion over the same hops."""

from __future__ import annotations

from collections import Counter
from statistics import median

import numpy as np
import polars as pl
from frames import Hop, TraceBuilder, hop
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from tracer.analysis.trees import Forest, fold

unhurried = examples()
BY = ["process", "thread", "source"]


def leaves() -> st.SearchStrategy[Hop]:
    return st.builds(
        Hop,
        op=st.sampled_from(["aten::mm", "aten::add.Tensor", "aten::empty"]),
        key=st.sampled_from(["CPU", "AutogradCPU"]),
        self_ns=st.integers(0, 5000),
    )


def nested() -> st.SearchStrategy[Hop]:
    def above(below: st.SearchStrategy[Hop]) -> st.SearchStrategy[Hop]:
        return st.builds(
            lambda leaf, children: Hop(leaf.op, leaf.key, tuple(children), leaf.self_ns),
            leaves(),
            st.lists(below, max_size=4),
        )

    return st.recursive(leaves(), above, max_leaves=12)


@st.composite
def traces(draw: st.DrawFn) -> pl.DataFrame:
    builder = TraceBuilder()
    for thread in range(draw(st.integers(1, 3))):
        for root in draw(st.lists(nested(), max_size=6)):
            source = draw(st.sampled_from([None, "a.py:1", "a.py:2"]))
            root = Hop(root.op, root.key, root.children, root.self_ns, {"source": source})
            builder.calls(root, thread=thread, process=thread % 2, times=draw(st.integers(1, 3)))
    return builder.hops()


def shapes_of(hops: pl.DataFrame) -> list[object]:
    """The nested structure of each hop as tuples: the meaning of Forest.structure."""
    rows = hops.to_dicts()
    children: dict[int, list[int]] = {}
    for row in rows:
        if row["parent"] is not None:
            children.setdefault(row["parent"], []).append(row["id"])
    shapes: list[object] = [None] * len(rows)
    for row in reversed(rows):
        label = tuple(row[name] for name in ("op", "key", "kernel", "kind", "raised", "open"))
        shapes[row["id"]] = (label, tuple(shapes[child] for child in children.get(row["id"], [])))
    return shapes


@unhurried
@given(traces())
def test_forest_knows_parent_depth_and_root(hops: pl.DataFrame) -> None:
    forest = Forest.of(hops)
    parents = [-1 if parent is None else parent for parent in hops["parent"].to_list()]
    assert forest.parent.tolist() == parents
    for row, parent in enumerate(parents):
        assert forest.depth[row] == (0 if parent < 0 else forest.depth[parent] + 1)
        assert forest.root[row] == (row if parent < 0 else forest.root[parent])


@unhurried
@given(traces())
def test_structure_is_equal_exactly_where_the_nested_hops_are(hops: pl.DataFrame) -> None:
    numbers = Forest.of(hops).structure.tolist()
    shapes = shapes_of(hops)
    assert len(set(zip(numbers, shapes, strict=True))) == len(set(numbers)) == len(set(shapes))


@unhurried
@given(traces())
def test_fold_joins_identical_siblings_and_nothing_else(hops: pl.DataFrame) -> None:
    forest = Forest.of(hops)
    _, nodes = fold(forest, BY)
    rows, shapes = hops.to_dicts(), shapes_of(hops)

    def place(number: int) -> tuple[object, ...]:
        row = rows[number]
        if row["parent"] is None:
            return (*(row[name] for name in BY), shapes[number])
        return (*place(row["parent"]), shapes[number])

    members: dict[tuple[object, ...], list[int]] = {}
    for row in rows:
        members.setdefault(place(row["id"]), []).append(row["id"])
    assert dict(zip(nodes["hop"].to_list(), nodes["members"].to_list(), strict=True)) == {
        ids[0]: len(ids) for ids in members.values()
    }
    first = {ids[0]: ids for ids in members.values()}
    for node in nodes.to_dicts():
        durations = [rows[i]["end_ns"] - rows[i]["start_ns"] for i in first[node["hop"]]]
        assert node["total_ns"] == sum(durations)
        assert abs(node["median_ns"] - median(durations)) <= 0.5
        above = node["parent_node"]
        assert node["count"] * (nodes["members"][above] if above is not None else 1) == node["members"]


@unhurried
@given(traces(), st.booleans())
def test_nodes_stand_under_their_parents_and_groups_are_whole(hops: pl.DataFrame, identical: bool) -> None:
    groups, nodes = fold(Forest.of(hops), BY, identical=identical)
    above: list[int] = []
    for number, node in enumerate(nodes.to_dicts()):
        del above[node["level"] :]
        assert node["parent_node"] == (above[-1] if above else None)
        above.append(number)
    assert nodes["group"].is_sorted()
    assert nodes["members"].sum() == len(hops)
    assert groups["calls"].sum() == hops["parent"].null_count()
    if not identical:
        assert nodes["hop"].to_list() == hops["id"].to_list()


@unhurried
@given(traces(), st.data())
def test_around_keeps_what_encloses_and_what_is_enclosed(hops: pl.DataFrame, data: st.DataObject) -> None:
    n = len(hops)
    matching = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=bool)
    parents = Forest.of(hops).parent.tolist()

    def line(row: int) -> list[int]:
        return [] if row < 0 else [row, *line(parents[row])]

    lines = [line(row) for row in range(n)]
    enclosed = [any(matching[above] for above in line) for line in lines]
    encloses = [any(row in lines[m] for m in np.flatnonzero(matching)) for row in range(n)]
    expected = [a or b for a, b in zip(enclosed, encloses, strict=True)]
    assert Forest.of(hops).around(matching).tolist() == expected


def test_interleaved_identical_subtrees_fold_at_the_first() -> None:
    cell = [hop("aten::mm", "CPU"), hop("aten::add.Tensor", "CPU")]
    hops = TraceBuilder().calls(hop("aten::gru.input", "CPU", *cell, *cell, *cell)).hops()
    _, nodes = fold(Forest.of(hops), BY)
    assert nodes.select("op", "count").rows() == [
        ("aten::gru.input", 1),
        ("aten::mm", 3),
        ("aten::add.Tensor", 3),
    ]


def test_how_a_hop_ended_keeps_subtrees_apart() -> None:
    calls = [hop("aten::mm", "CPU"), hop("aten::mm", "CPU", raised=True), hop("aten::mm", "CPU", open=True)]
    _, nodes = fold(Forest.of(TraceBuilder().calls(*calls).hops()), BY)
    assert len(nodes) == 3


def test_lines_in_a_python_kernel_keep_subtrees_apart() -> None:
    def of_lines(*lines: int) -> Hop:
        inner = (hop("aten::mm", "CPU", source=f"k.py:{line}") for line in lines)
        return hop("mine::op", "CPU", *inner, source="a.py:1")

    builder = TraceBuilder().calls(of_lines(7, 7, 8), of_lines(7, 7, 8), of_lines(8, 8, 8))
    _, nodes = fold(Forest.of(builder.hops()), BY)
    assert nodes.select("op", "source", "count").rows() == [
        *[("mine::op", "a.py:1", 2), ("aten::mm", "k.py:7", 2), ("aten::mm", "k.py:8", 1)],
        *[("mine::op", "a.py:1", 1), ("aten::mm", "k.py:8", 3)],
    ]


def test_distinct_inputs_of_folded_calls_are_listed() -> None:
    builder = TraceBuilder()
    small = builder.signature(([4], "torch.float32"))
    large = builder.signature(([8], "torch.float32"))
    builder.calls(*(hop("aten::neg", "CPU", inputs=i) for i in (small, large, small)))
    _, nodes = fold(Forest.of(builder.hops()), BY)
    assert nodes.select("count", "signatures", "signature").rows() == [(3, [small, large], small)]


def test_without_folding_a_line_that_runs_again_makes_a_new_group() -> None:
    builder = TraceBuilder()
    builder.calls(hop("aten::mm", "CPU", source="a.py:1"), hop("aten::mm", "CPU", source="a.py:2"), times=2)
    groups, _ = fold(Forest.of(builder.hops()), BY, identical=False)
    assert groups["source"].to_list() == ["a.py:1", "a.py:2", "a.py:1", "a.py:2"]
    groups, _ = fold(Forest.of(builder.hops()), BY)
    assert groups.select("source", "calls").rows() == [("a.py:1", 2), ("a.py:2", 2)]


def test_rows_taken_out_leave_a_forest_of_the_rest() -> None:
    builder = TraceBuilder().calls(hop("aten::a", "CPU", hop("aten::b", "CPU", hop("aten::c", "CPU"))))
    forest = Forest.of(builder.hops().filter(pl.col("op") != "aten::a"))
    assert forest.parent.tolist() == [-1, 0]
    assert Counter(forest.depth.tolist()) == {0: 1, 1: 1}


def test_deep_recursion() -> None:
    deep = hop("aten::leaf", "CPU")
    for _ in range(400):
        deep = hop("aten::again", "CPU", deep)
    forest = Forest.of(TraceBuilder().calls(deep, times=2).hops())
    assert forest.depth.max() == 400
    assert len(fold(forest, BY)[1]) == 401


def test_no_hops() -> None:
    groups, nodes = fold(Forest.of(TraceBuilder().hops()), BY)
    assert groups.is_empty()
    assert nodes.is_empty()
