"""The tree of calls: its sums are those of the tables."""

from __future__ import annotations

import gpu_trace
import polars as pl
import pytest
import test_report
from frames import FakeTrace, TraceBuilder, hop

from tracer.analysis.call_tree import CallTree, call_tree
from tracer.analysis.flat import flat_table
from tracer.analysis.links import GPU_KINDS, HOP_KINDS
from tracer.analysis.phases import phase_of_hops
from tracer.report.reading import Reading
from tracer.trace import Trace, load


@pytest.fixture(scope="module")
def recorded() -> Trace:
    return load(gpu_trace.PATH)


def tree_of(trace: Trace | FakeTrace) -> CallTree:
    return call_tree(Reading(trace, "t").part, phase_of_hops(trace))


def with_labels(tree: CallTree) -> pl.DataFrame:
    labels = tree.labels.with_row_index("label").cast({"label": pl.Int64})
    origins = tree.origins.with_row_index("origin").cast({"origin": pl.Int64})
    return tree.nodes.join(labels, on="label").join(origins, on="origin")


def test_every_row_is_in_a_node(recorded: Trace) -> None:
    reading = Reading(recorded, "t")
    tree = call_tree(reading.part, reading.phases)
    assert tree.nodes["rows"].sum() == len(reading.part.hops)
    nodes = with_labels(tree)
    assert nodes.filter(pl.col("kind").is_in(HOP_KINDS))["rows"].sum() == len(recorded.hops)
    counted = pl.Series(tree.node_of).value_counts().sort("")["count"]
    assert counted.to_list() == tree.nodes["rows"].to_list()


def test_the_times_of_outermost_calls_are_all_times(recorded: Trace) -> None:
    tree = tree_of(recorded)
    nodes = with_labels(tree)
    outermost = nodes.filter(pl.col("parent") < 0)
    hops = outermost.filter(pl.col("kind").is_in(HOP_KINDS))
    assert hops["host_ns"].sum() == Reading(recorded, "t").time_in_ops_ns
    activities = recorded.gpu_activities.filter(pl.col("api_call").is_not_null())
    on_gpu = activities.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item()
    assert outermost["gpu_ns"].sum() == on_gpu
    assert nodes.filter(pl.col("kind").is_in(GPU_KINDS))["gpu_ns"].sum() == on_gpu


def test_own_times_add_up_to_all_times(recorded: Trace) -> None:
    nodes = tree_of(recorded).nodes
    outermost = nodes.filter(pl.col("parent") < 0)
    assert nodes["own_ns"].sum() == outermost["host_ns"].sum()
    assert nodes["own_gpu_ns"].sum() == outermost["gpu_ns"].sum()


def test_parents_come_first_and_are_of_the_same_origin(recorded: Trace) -> None:
    nodes = tree_of(recorded).nodes.with_row_index("node")
    inner = nodes.filter(pl.col("parent") >= 0)
    assert (inner["parent"] < inner["node"]).all()
    above = nodes.select(parent=pl.col("node").cast(pl.Int64), origin_above="origin")
    assert (
        (inner.join(above, on="parent").select(pl.col("origin") == pl.col("origin_above"))).to_series().all()
    )
    siblings = nodes.select("parent", "label", pl.when(pl.col("parent") < 0).then("origin"))
    assert siblings.is_unique().all()


def test_sums_by_op_key_line_and_module_are_those_of_the_tables() -> None:
    trace = test_report.training()
    nodes = with_labels(tree_of(trace))
    hops = trace.hops.with_columns(pl.col("op", "key", "module").cast(pl.String))
    for column in ("op", "key"):
        ours = nodes.group_by(column).agg(pl.col("rows", "self_ns", "own_ns").sum()).sort(column)
        table = flat_table(trace, by=column)
        theirs = table.with_columns(pl.col(column).cast(pl.String)).sort(column)
        assert ours["self_ns"].to_list() == theirs["self_ns"].to_list()
        assert ours["own_ns"].to_list() == theirs["self_ns"].to_list()  # nothing but hops in this trace
        assert ours["rows"].to_list() == theirs["hops"].to_list()
    outermost = nodes.filter(pl.col("parent") < 0)
    roots = hops.filter(pl.col("parent").is_null())
    roots = roots.with_columns(duration=pl.col("end_ns") - pl.col("start_ns"))
    for column in ("op", "module"):
        ours = outermost.group_by(column).agg(pl.col("host_ns").sum()).sort(column)
        theirs = roots.group_by(column).agg(pl.col("duration").sum()).sort(column)
        assert ours.rows() == theirs.rows()


def test_calls_that_differ_only_below_are_one_node() -> None:
    source = {"source": "a.py:1", "module": "encoder"}
    trace = (
        TraceBuilder()
        .calls(
            hop("aten::linear", "CPU", hop("aten::mm", "CPU", self_ns=30), self_ns=5, **source),
            hop("aten::linear", "CPU", hop("aten::addmm", "CPU", self_ns=50), self_ns=5, **source),
            hop("aten::linear", "CPU", self_ns=7, **{**source, "source": "a.py:2"}),
        )
        .trace()
    )
    nodes = with_labels(tree_of(trace)).sort("line", "parent", "op")
    found = nodes.select("line", "op", "parent", "rows", "host_ns", "self_ns").rows()
    assert found == [
        ("a.py:1", "aten::linear", -1, 2, 90, 10),
        ("a.py:1", "aten::addmm", 0, 1, 50, 50),
        ("a.py:1", "aten::mm", 0, 1, 30, 30),
        ("a.py:2", "aten::linear", -1, 1, 7, 7),
    ]


def test_a_trace_without_hops_has_no_nodes() -> None:
    tree = tree_of(TraceBuilder().trace())
    assert len(tree.nodes) == len(tree.node_of) == 0
