"""What a recording cost, by op, key, line and thread, and how its hops ended."""

from __future__ import annotations

import polars as pl
from frames import TraceBuilder, hop

from tracer.analysis import surveys
from tracer.analysis.flat import flat_table, ranked
from tracer.analysis.groups import GROUPS
from tracer.analysis.trees import Forest


def training_step() -> TraceBuilder:
    """A forward mm at line 1 (hops 0 and 1), its backward on another thread, an add at line 2."""
    builder = TraceBuilder()
    inner = hop("aten::mm", "CPU", self_ns=4000)
    builder.calls(hop("aten::mm", "AutogradCPU", inner, source="a.py:1", called_from="a.py:1"))
    builder.calls(hop("aten::add.Tensor", "CPU", source="a.py:2", called_from="a.py:2"), times=2)
    node = {"backward_node": "MmBackward0", "forward_hop": 0, "source": "a.py:1", "called_from": "a.py:3"}
    builder.calls(hop("aten::t", "CPU", **node), hop("aten::mm", "CPU", self_ns=9000, **node), thread=101)
    builder.calls(hop("aten::add_.Tensor", "CPU", backward_node="AccumulateGrad"), thread=101)
    return builder


def test_the_table_of_ops_counts_calls_apart_from_hops() -> None:
    ops = ranked(flat_table(training_step().trace(), by="op"))
    columns = ("op", "calls", "hops", "total_ns", "self_ns", "median_ns", "p95_ns", "longest_ns")
    assert ops.select(columns).row(0) == ("aten::mm", 2, 3, 14_000, 14_000, 7000, 9000, 9000)


def test_self_times_add_up_to_the_outermost_times() -> None:
    hops = training_step().hops()
    outermost = hops.filter(pl.col("parent").is_null())
    whole = (outermost["end_ns"] - outermost["start_ns"]).sum()
    assert flat_table(training_step().trace(), by="op")["self_ns"].sum() == whole
    assert surveys.per_key(hops)["self_ns"].sum() == whole


def test_per_key() -> None:
    keys = surveys.per_key(training_step().hops())
    assert keys.rows() == [("CPU", 4, 6, 17_000, 1000), ("AutogradCPU", 1, 1, 1000, 1000)]


def test_the_table_of_lines_puts_backward_beside_the_forward_line() -> None:
    trace = training_step().trace()
    lines = ranked(flat_table(trace, by="source"), "total")
    columns = ("source", "calls", "hops", "total_ns", "forward_ns", "backward_ns", "optimizer_ns", "rest_ns")
    assert lines.select(columns).rows() == [
        ("a.py:1", 3, 4, 15_000, 5000, 10_000, 0, 0),
        ("a.py:2", 2, 2, 2000, 0, 0, 0, 2000),
        (None, 1, 1, 1000, 0, 1000, 0, 0),
    ]


def test_lines_of_a_python_kernel_have_its_time_and_no_moment_counts_twice() -> None:
    inner = hop("aten::mm", "CPU", hop("aten::t", "CPU", source="k.py:7"), self_ns=4000, source="k.py:7")
    call = hop(
        "mine::op", "AutogradCPU", hop("mine::op", "CPU", inner, inner, source="a.py:1"), source="a.py:1"
    )
    trace = TraceBuilder().calls(call, hop("aten::neg", "CPU", source="k.py:7")).trace()
    lines = flat_table(trace, by="source")
    assert lines.select("source", "calls", "hops", "self_ns", "total_ns").rows() == [
        ("a.py:1", 1, 2, 2000, 12_000),
        ("k.py:7", 5, 5, 11_000, 11_000),
    ]
    outermost = trace.hops.filter(pl.col("parent").is_null())
    assert lines["self_ns"].sum() == (outermost["end_ns"] - outermost["start_ns"]).sum()


def test_per_backward_node_names_the_forward_op() -> None:
    nodes = surveys.per_backward_node(Forest.of(training_step().hops()))
    assert nodes.rows() == [
        ("a.py:1", "aten::mm", "MmBackward0", "a.py:3", ["aten::t", "aten::mm"], 2, 2, 10_000),
        (None, None, "AccumulateGrad", None, ["aten::add_.Tensor"], 1, 1, 1000),
    ]


def test_per_thread() -> None:
    threads = surveys.per_thread(Forest.of(training_step().hops()))
    assert threads.rows() == [(0, 100, 3, 4, 7000, 0, 7200), (0, 101, 3, 3, 11_000, 0, 11_200)]


def test_open_hops_stand_outermost_first() -> None:
    builder = TraceBuilder().calls(hop("aten::neg", "CPU"))
    builder.calls(hop("my::op", "CPU", hop("aten::neg", "CPU"), hop("aten::mm", "CPU", open=True), open=True))
    left = surveys.open_hops(Forest.of(builder.hops()))
    assert left.select("op", "depth", "open_ns").rows() == [("my::op", 0, 3000), ("aten::mm", 1, 1000)]


def test_an_exception_is_counted_once_where_it_came_from() -> None:
    through = hop("aten::mm", "AutogradCPU", hop("aten::mm", "CPU", raised=True), raised=True)
    raised = surveys.exceptions(Forest.of(TraceBuilder().calls(through, times=3).hops()))
    assert raised.select("op", "key", "left", "caught_in", "count").rows() == [
        ("aten::mm", "CPU", "aten::mm", None, 3)
    ]


def test_an_exception_that_a_hop_catches_ends_there() -> None:
    catching = hop("my::try", "CPU", hop("aten::mm", "CPU", raised=True), hop("aten::neg", "CPU"))
    raised = surveys.exceptions(Forest.of(TraceBuilder().calls(catching).hops()))
    assert raised.select("op", "left", "caught_in").rows() == [("aten::mm", "aten::mm", "my::try")]


def test_a_hop_that_caught_one_exception_and_raised_another_made_two() -> None:
    own = hop("my::try", "CPU", hop("aten::mm", "CPU", raised=True), hop("aten::neg", "CPU"), raised=True)
    raised = surveys.exceptions(Forest.of(TraceBuilder().calls(own).hops()))
    assert set(raised.select("op", "caught_in").rows()) == {("my::try", None), ("aten::mm", "my::try")}


def test_no_hops() -> None:
    hops = TraceBuilder().hops()
    forest = Forest.of(hops)
    assert surveys.per_key(hops).is_empty()
    for by in GROUPS:
        assert flat_table(TraceBuilder().trace(), by=by).is_empty()
    for survey in (
        surveys.per_backward_node,
        surveys.per_thread,
        surveys.open_hops,
        surveys.exceptions,
    ):
        assert survey(forest).is_empty()
