"""Distinct dispatch paths and what is said of the hottest."""

from __future__ import annotations

import re

import pytest
from frames import Hop, TraceBuilder, hop

from tracer.analysis.paths import calls_and_time, hottest_paths, survey_paths
from tracer.analysis.trees import Forest
from tracer.report.chain import chain_nodes
from tracer.report.hot_paths import hottest_of
from tracer.report.reading import Reading
from tracer.report.report import render
from tracer.report.sections import summary


def mm(source: str | None = None, self_ns: int = 1000, **columns: object):
    inner = hop("aten::mm", "CPU", self_ns=self_ns)
    return hop("aten::mm", "AutogradCPU", inner, source=source, **columns)


def test_paths_are_ordered_by_total_time_and_counted() -> None:
    builder = TraceBuilder()
    builder.calls(hop("aten::empty", "CPU", self_ns=700), times=4)
    builder.calls(mm("a.py:1"), mm("a.py:2", self_ns=5000), mm("a.py:2"))
    survey = survey_paths(Forest.of(builder.hops()))
    assert survey.select("op", "key", "hops", "calls", "total_ns", "median_ns").rows() == [
        ("aten::mm", "AutogradCPU", 2, 3, 10_000, 2000),
        ("aten::empty", "CPU", 1, 4, 2800, 700),
    ]


def test_one_slow_call_does_not_make_a_path_the_hottest() -> None:
    builder = TraceBuilder()
    builder.calls(hop("aten::add", "CPU", self_ns=50), times=9)
    builder.calls(hop("aten::add", "CPU", self_ns=9_000_000))  # preempted
    builder.calls(hop("aten::mm", "CPU", self_ns=40_000), times=10)
    survey = survey_paths(Forest.of(builder.hops()))
    assert survey["op"].to_list() == ["aten::mm", "aten::add"]
    assert survey["longest_ns"].to_list() == [40_000, 9_000_000]


def test_a_large_input_is_not_hidden_by_many_small_ones() -> None:
    builder = TraceBuilder()
    small, large = builder.signature(([4], "torch.float32")), builder.signature(([4000], "torch.float32"))
    builder.calls(*(hop("aten::sqrt", "CPU", inputs=small, self_ns=10) for _ in range(20)))
    builder.calls(*(hop("aten::sqrt", "CPU", inputs=large, self_ns=9000) for _ in range(4)))
    builder.calls(*(hop("aten::mm", "CPU", inputs=small, self_ns=500) for _ in range(20)))
    survey = survey_paths(Forest.of(builder.hops()))
    assert survey.select("op", "cost_ns").rows() == [("aten::sqrt", 36_200), ("aten::mm", 10_000)]


def test_the_steady_steps_decide_which_path_is_the_hottest() -> None:
    builder = TraceBuilder()
    builder.calls(*(hop("aten::randn", "CPU", self_ns=90_000, phase="warmup") for _ in range(9)))
    builder.calls(hop("aten::mm", "CPU", self_ns=10, phase="warmup"))
    builder.calls(*(hop("aten::mm", "CPU", self_ns=100, phase="steady") for _ in range(3)))
    builder.calls(*(hop("aten::add", "CPU", self_ns=200, phase="steady") for _ in range(3)))
    survey = survey_paths(Forest.of(builder.hops()))
    assert survey.select("op", "cost_ns", "calls").rows() == [
        ("aten::add", 600, 3),
        ("aten::mm", 300, 4),
        ("aten::randn", 0, 9),
    ]


def test_a_first_call_that_loads_code_is_told_apart() -> None:
    builder = TraceBuilder()
    builder.calls(*(hop("aten::mm", "CPU", self_ns=ns) for ns in (7_000_000, 100, 100, 900_000)))
    builder.calls(*(hop("aten::add", "CPU", self_ns=ns) for ns in (100, 100, 7_000_000)))
    builder.calls(hop("aten::randn", "CPU", self_ns=5_000_000))
    survey = survey_paths(Forest.of(builder.hops())).sort("op")
    assert survey.select("op", "once_ns").rows() == [
        ("aten::add", 0),
        ("aten::mm", 7_000_000),
        ("aten::randn", 0),
    ]


def test_in_one_look_has_the_line_and_the_gpu_time_of_the_inputs_that_it_shows() -> None:
    """Many small calls come from another line."""
    builder = TraceBuilder()
    small, large = builder.signature(([4], "torch.float32")), builder.signature(([4000], "torch.float32"))
    builder.calls(*(hop("aten::mm", "CPU", inputs=small, source="a.py:1", self_ns=10) for _ in range(20)))
    builder.calls(*(hop("aten::mm", "CPU", inputs=large, source="a.py:2", self_ns=9000) for _ in range(4)))
    (row,) = summary.data(Reading(builder.trace(), "x.trace")).rows
    assert (row.source, row.more_lines, row.inputs) == ("a.py:2", 0, "4000 f32")
    assert (row.calls, row.total_ns, row.median_ns) == (4, 36_000, 9000)
    hops = builder.hops()
    forest = Forest.of(hops.with_columns(gpu_ns=(hops["inputs"] == large).cast(int) * 500))
    inputs = hottest_paths(forest, survey_paths(forest), 1).inputs
    assert inputs.select("signature", "gpu_ns").rows() == [(small, 0), (large, 2000)]


def test_an_input_of_warm_up_is_not_what_a_path_costs() -> None:
    builder = TraceBuilder()
    large, usual = builder.signature(([4000], "torch.float32")), builder.signature(([4], "torch.float32"))
    builder.calls(hop("aten::mm", "CPU", inputs=large, self_ns=90_000, phase="warmup"))
    builder.calls(*(hop("aten::mm", "CPU", inputs=usual, self_ns=10, phase="steady") for _ in range(3)))
    (row,) = summary.data(Reading(builder.trace(), "x.trace")).rows
    assert (row.inputs, row.total_ns) == ("4 f32", 30)


def test_the_chain_follows_the_usual_time() -> None:
    def linear(slow: int) -> Hop:
        below = (hop("aten::t", "CPU", self_ns=slow), hop("aten::addmm", "CPU", self_ns=4000))
        return hop("aten::linear", "CPU", *below, self_ns=300)

    builder = TraceBuilder().calls(*(linear(100) for _ in range(5)), linear(256_000_000))
    forest = Forest.of(builder.hops())
    nodes = hottest_paths(forest, survey_paths(forest), 1).nodes
    assert [node["op"] for node in chain_nodes(nodes)] == ["aten::linear", "aten::addmm"]


def test_the_chain_is_that_of_the_inputs_that_cost_most() -> None:
    """Most calls of an optimizer are small: the row of the large ones had the kernel that makes a scalar."""
    builder = TraceBuilder()
    large, small = builder.signature(([4000], "torch.float32")), builder.signature(([4], "torch.float32"))

    def add(inputs: int, own: int) -> Hop:
        return hop(
            "aten::add_", "CPU", hop("aten::empty_strided", "CPU", self_ns=800), inputs=inputs, self_ns=own
        )

    builder.calls(*(add(small, 300) for _ in range(9)), *(add(large, 90_000) for _ in range(2)))
    forest = Forest.of(builder.hops())
    nodes = hottest_paths(forest, survey_paths(forest), 1).nodes
    assert [node["op"] for node in chain_nodes(nodes)] == ["aten::add_"]


def test_a_call_that_raised_is_another_path() -> None:
    builder = TraceBuilder().calls(mm(), mm(raised=True))
    assert len(survey_paths(Forest.of(builder.hops()))) == 2


def test_hottest_paths_have_nodes_sources_and_inputs_of_their_own_calls_only() -> None:
    builder = TraceBuilder()
    shape = builder.signature(([4, 4], "torch.float32"))
    builder.calls(hop("aten::empty", "CPU", source="a.py:9"), thread=7)
    builder.calls(mm("a.py:1"), mm("a.py:2", inputs=shape), mm("a.py:2", inputs=shape))
    builder.calls(mm("a.py:1", backward_node="MmBackward0", called_from="a.py:5"), thread=101)
    forest = Forest.of(builder.hops())
    top = hottest_paths(forest, survey_paths(forest), 1)
    assert top.paths["calls"].to_list() == [4]
    assert top.nodes.select("path", "level", "op", "key", "kind", "members", "count").rows() == [
        (0, 0, "aten::mm", "AutogradCPU", "call", 4, 4),
        (0, 1, "aten::mm", "CPU", "redispatch", 4, 1),
    ]
    assert top.sources.rows() == [
        (0, "a.py:2", None, None, 2),
        (0, "a.py:1", None, None, 1),
        (0, "a.py:1", "a.py:5", "MmBackward0", 1),
    ]
    assert top.inputs.sort("calls", "signature").rows() == [
        (0, None, 2, 4000, 2000, 4000, "a.py:1", None, 1),
        (0, shape, 2, 4000, 2000, 4000, "a.py:2", None, 1),
    ]


def test_nodes_of_several_paths_stay_with_their_path() -> None:
    builder = TraceBuilder()
    builder.calls(hop("aten::empty", "CPU"), mm(), hop("aten::empty", "CPU"))
    forest = Forest.of(builder.hops())
    top = hottest_paths(forest, survey_paths(forest), 5)
    for path in top.paths.to_dicts():
        nodes = top.nodes.filter(path=path["path"])
        assert nodes["op"][0] == path["op"]
        assert nodes["members"][0] == path["calls"]
        assert (nodes["members"] // path["calls"]).sum() == path["hops"]


def test_no_hops() -> None:
    forest = Forest.of(TraceBuilder().hops())
    survey = survey_paths(forest)
    assert survey.is_empty()
    assert hottest_paths(forest, survey, 10).nodes.is_empty()


def test_a_first_call_that_loads_code_is_in_no_other_number_of_its_path() -> None:
    builder = TraceBuilder()
    small, large = builder.signature(([4], "torch.float32")), builder.signature(([4000], "torch.float32"))
    for process in (0, 1):
        times = (9000, 100, 300)
        builder.calls(*(hop("aten::mm", "CPU", inputs=small, self_ns=ns) for ns in times), process=process)
    builder.calls(*(hop("aten::sqrt", "CPU", inputs=large, self_ns=5000) for _ in range(2)))
    builder.calls(*(hop("aten::sqrt", "CPU", inputs=small, self_ns=10) for _ in range(6)))
    builder.calls(hop("aten::neg", "CPU", self_ns=9100))
    forest = Forest.of(builder.hops())
    survey = survey_paths(forest).sort("op")
    columns = ("op", "calls", "total_ns", "median_ns", "longest_ns", "once_calls", "once_ns")
    assert survey.select(columns).rows() == [
        ("aten::mm", 4, 800, 200, 300, 2, 18_000),
        ("aten::neg", 1, 9100, 9100, 9100, 0, 0),
        ("aten::sqrt", 8, 10_060, 10, 5000, 0, 0),
    ]
    assert calls_and_time(survey) == (15, 37_960)
    found = hottest_of(Reading(builder.trace(), "x.trace"))
    (mm,) = (path for path in found.paths if path.op == "aten::mm")
    assert mm.share == pytest.approx(800 / 37_960)
    assert [(one.calls, one.total_ns, one.median_ns) for one in mm.inputs] == [(4, 800, 200)]
    assert sum(one.calls for one in mm.sources) == 4
    (row,) = (row for row in summary.data(Reading(builder.trace(), "x.trace")).rows if row.op == "aten::mm")
    assert (row.calls, row.total_ns, row.median_ns) == (4, 800, 200)
    text = render(Reading(builder.trace(), "x.trace", sections=["summary", "paths"]))
    assert "First calls that loaded code or compiled are left out" in text
    assert "| 18.00 us | 0.20 us | 2 | `aten::mm` | 3 |" in re.sub(r" +", " ", text)


def test_path_numbers_that_repeat_are_explained_and_others_say_nothing() -> None:
    builder = TraceBuilder().calls(mm(), mm(), hop("aten::neg", "CPU"))
    assert "same number" not in render(Reading(builder.trace(), "x.trace", sections=["paths"]))
    builder.calls(mm(raised=True))
    assert "with the same number" in " ".join(
        render(Reading(builder.trace(), "x.trace", sections=["paths"])).split()
    )
