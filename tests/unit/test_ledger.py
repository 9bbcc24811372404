"""Ledgers of small traces, against sums worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from frames import FakeTrace, TraceBuilder, hop

from tracer.analysis.host_nodes import Layer
from tracer.analysis.ledger import Ledger, Scope, ledger, median_step
from tracer.trace.tables import schema

LINE = "/home/user/train.py"


def row(
    place: int, op: str, key: str, start: int, end: int, parent: int | None = None, **more: Any
) -> dict[str, Any]:
    source = f"{LINE}:{more.pop('line', 7)}"
    known = {"id": place, "process": 0, "thread": 1, "op": op, "key": key, "parent": parent}
    times = {"start_ns": start, "end_ns": end, "source": source, "called_from": source}
    return dict.fromkeys(schema.HOPS) | known | times | more


def table(rows: list[dict[str, Any]], kinds: schema.Schema) -> pl.DataFrame:
    plain = {name: pl.String if kind == schema.STRING else kind for name, kind in kinds.items()}
    return pl.DataFrame(rows, plain).cast(dict(kinds))


def trace(rows: list[dict[str, Any]], ends: tuple[int, ...] = (10_000,), **tables: Any) -> FakeTrace:
    steps = [
        (0, number, "steady", ([0, *ends])[number], end, None, None, None) for number, end in enumerate(ends)
    ]
    empty = TraceBuilder().calls(hop("aten::a", "CPU")).trace()
    made = replace(
        empty, hops=table(rows, schema.HOPS), steps=pl.DataFrame(steps, schema.STEPS, orient="row")
    )
    return replace(made, **tables)


def events(number: int, before: float, after: float) -> dict[str, Any]:
    return {"events": number, "slow": 0, "before_ns": before, "after_ns": after}


TIMED = {"outermost": events(99, 100, 10), "inner": events(99, 20, 10), "exit": events(99, 10, 10)}
COST = {
    "own_cost": {
        0: {"program": TIMED, "loop": {"outermost": TIMED | {"ns": 150}, "inner": TIMED | {"ns": 60}}}
    }
}
"""An outermost hop costs 20 ns inside and 130 around it, another hop 20 and 40."""


def training() -> list[dict[str, Any]]:
    """A step of 10,000 ns: an op with its hops, then a backward op, then an op of another line."""
    return [
        row(0, "aten::linear", "AutogradCPU", 1000, 5000, rule="math kernel"),
        row(1, "aten::mm", "AutogradCPU", 1500, 4500, 0, rule="kernel"),
        row(2, "aten::mm", "CPU", 2000, 4000, 1, rule="kernel"),
        row(3, "aten::mm", "CPU", 6000, 7000, backward_node="MmBackward0", rule="kernel"),
        row(4, "aten::mm", "CPU", 7200, 8000, backward_node="MmBackward0", rule="kernel"),
        row(5, "aten::add", "CPU", 9000, 9500, line=8, rule="kernel"),
    ]


def times(found: Ledger) -> dict[tuple[str, str], float | None]:
    return {(row.layer.kind, row.layer.name): row.ns for row in found.rows}


def test_each_layer_has_its_own_time_and_all_add_up() -> None:
    found = ledger(trace(training(), certificate={}), 0, 0, 0)
    assert times(found) == {
        ("python", ""): 1000 + 500,
        ("bindings", ""): None,
        ("border", ""): 1000 + 1000,
        ("engine", ""): 200,
        ("composite", "AutogradCPU"): 1000,
        ("key", "AutogradCPU"): 1000,
        ("kernel", "CPU"): 2000 + 1000 + 800 + 500,
        ("tracer", ""): None,
        ("rest", ""): 0,
    }
    assert found.wall_ns == 10_000 == sum(row.ns or 0 for row in found.rows)
    assert (found.own_ns, found.bare_ns, found.hops) == (None, None, 6)
    assert "was not measured" in found.unknown[0]


def test_what_tracer_costs_is_taken_out_of_the_time_that_it_is_in() -> None:
    found = ledger(trace(training(), certificate=COST), 0, 0, 0)
    assert times(found) == {
        ("python", ""): 1500 - 130,  # before the first op; the one before the last op follows a backward op
        ("bindings", ""): None,
        ("border", ""): 2000 - 2 * 130,
        ("engine", ""): 200 - 130,
        ("composite", "AutogradCPU"): 1000 - 20 - 40,
        ("key", "AutogradCPU"): 1000 - 20 - 40,
        ("kernel", "CPU"): 4300 - 4 * 20,
        ("tracer", ""): 4 * 150 + 2 * 60,
        ("rest", ""): 0,
    }
    assert (found.own_ns, found.bare_ns, found.unknown) == (720, 9280, ())


@pytest.mark.parametrize(
    ("values", "boxed", "why"),
    [
        ("none", False, []),
        ("scalars", True, []),
        ("scalars", False, ["the cost of --values scalars was not measured (old trace)"]),
        ("hash", False, ["the cost of hashing results (--values hash) is not measured"]),
        ("all", True, ["the cost of hashing results (--values hash) is not measured"]),
    ],
)
def test_the_cost_of_values_is_known_of_scalars(values: str, boxed: bool, why: list[str]) -> None:
    certificate = {"own_cost": {0: COST["own_cost"][0] | {"boxed": boxed}}}
    made = trace(training(), certificate=certificate, environment={"options": {"values": values}})
    assert list(ledger(made, 0, 0, 0).unknown) == why


def test_a_cost_larger_than_its_layer_makes_the_rest_negative() -> None:
    rows = [row(0, "aten::a", "CPU", 0, 5, rule="kernel"), row(1, "aten::b", "CPU", 5, 10_000, rule="kernel")]
    found = ledger(trace(rows, certificate=COST), 0, 0, 0)
    assert times(found)["kernel", "CPU"] == 10_000 - 40
    assert found.rest_ns == -260  # two outermost hops, and no time between ops
    assert found.wall_ns == 10_000 == sum(row.ns or 0 for row in found.rows)


def test_a_line_has_what_it_called_and_the_time_between() -> None:
    scope = Scope(lambda _, line: line == f"{LINE}:7", gap=True)
    found = ledger(trace(training(), certificate={}), 0, 0, 0, scope)
    assert found.wall_ns == 4000 + 1000 + 800 + 1000 + 200
    assert times(found)["border", ""] == 1000
    assert ("python", "") not in times(found)


def test_an_op_has_the_hops_inside_it_and_no_time_between() -> None:
    found = ledger(trace(training(), certificate=COST), 0, 0, 0, Scope(lambda op, _: op == "aten::linear"))
    assert found.wall_ns == 4000
    assert (found.hops, found.own_ns) == (3, 20 + 2 * 60)
    assert {kind for kind, _ in times(found)} == {"composite", "key", "kernel", "tracer", "rest"}


def test_several_steps_are_a_mean() -> None:
    rows = [*training(), row(6, "aten::mm", "CPU", 12000, 14000, rule="kernel")]
    found = ledger(trace(rows, (10_000, 20_000), certificate={}), 0, 0, 1)
    assert (found.steps, found.wall_ns, found.hops) == ((0, 1), 10_000, 3.5)
    assert times(found)["kernel", "CPU"] == (4300 + 2000) / 2


def test_calls_and_waits_are_layers_below_the_hop() -> None:
    calls = table(
        [
            dict.fromkeys(schema.API_CALLS)
            | {
                "id": place,
                "process": 0,
                "thread": 1,
                "name": name,
                "role": role,
                "start_ns": start,
                "end_ns": end,
            }
            for place, (name, role, start, end) in enumerate(
                [
                    ("cudaLaunchKernel", "launch", 2100, 2400),
                    ("cudaStreamSynchronize", "synchronisation", 3000, 3900),
                ]
            )
        ],
        schema.API_CALLS,
    )
    work = table(
        [
            dict.fromkeys(schema.GPU_ACTIVITIES)
            | {"id": 0, "process": 0, "api_call": 0, "start_ns": 2900, "end_ns": 3800, "kind": "kernel"}
        ],
        schema.GPU_ACTIVITIES,
    )
    certificate = COST | {"cuda": {"api_calls": 2}}
    made = trace(training(), api_calls=calls, gpu_activities=work, certificate=certificate)
    found = ledger(made, 0, 0, 0)
    assert (times(found)["api", ""], times(found)["waiting", ""]) == (300, 900)
    assert found.gpu is not None
    assert (found.gpu.activities, found.gpu.busy_ns, found.gpu.queueing_ns) == (1, 900, 500)
    assert (found.own_ns, found.bare_ns) == (720, None)
    assert found.unknown == ("the cost of CUPTI is not measured",)


def test_other_threads_count_while_the_main_thread_waits() -> None:
    rows = [
        row(0, "aten::a", "CPU", 1000, 4000, rule="kernel"),
        row(1, "aten::b", "CPU", 3000, 6000, thread=2, backward_node="B", rule="kernel"),
        row(2, "aten::c", "CPU", 6500, 7000, thread=2, backward_node="B", rule="kernel"),
        row(3, "aten::d", "CPU", 9000, 9500, rule="kernel"),
    ]
    found = ledger(trace(rows, certificate={}), 0, 0, 0)
    assert times(found)["kernel", "CPU"] == 3000 + 2000 + 500 + 500
    assert times(found)["engine", ""] == 500
    assert found.other_threads_ns == 2500
    assert sum(row.ns or 0 for row in found.rows) == 10_000


def test_a_call_outside_ops_belongs_to_what_ran_before() -> None:
    rows = [
        row(0, "aten::a", "CPU", 1000, 2000, rule="kernel", backward_node="A"),
        row(1, "aten::b", "CPU", 6000, 7000, rule="kernel", backward_node="B"),
    ]
    call = dict.fromkeys(schema.API_CALLS) | {"id": 0, "process": 0, "thread": 1, "name": "cudaGetDevice"}
    calls = table([call | {"start_ns": 3000, "end_ns": 3500}], schema.API_CALLS)
    found = ledger(trace(rows, certificate={}, api_calls=calls), 0, 0, 0)
    assert times(found)["engine", ""] == 10_000 - 2000 - 500
    assert ("border", "") not in times(found)


def test_paths_are_a_tree_in_the_order_in_which_they_ran() -> None:
    rows = [
        row(0, "aten::a", "CPU", 0, 1000, rule="kernel"),
        row(1, "aten::b", "CPU", 100, 300, 0, rule="kernel"),
        row(2, "aten::c", "CPU", 300, 400, 0, rule="kernel"),
        row(3, "aten::d", "CPU", 150, 160, 1, rule="kernel"),
        row(4, "aten::a", "CPU", 2000, 2500, rule="kernel"),
        row(5, "aten::b", "CPU", 2100, 2200, 4, rule="kernel"),
    ]
    found = ledger(trace(rows, certificate={}), 0, 0, 0, Scope(lambda op, _: op == "aten::a", path=True))
    assert [(row.layer.path, row.ns, row.times) for row in found.rows[:-2]] == [
        (("aten::a [CPU]",), 700 + 400, 2),
        (("aten::a [CPU]", "aten::b [CPU]"), 190 + 100, 2),
        (("aten::a [CPU]", "aten::b [CPU]", "aten::d [CPU]"), 10, 1),
        (("aten::a [CPU]", "aten::c [CPU]"), 100, 1),
    ]


def test_a_hop_without_a_key_is_not_explained() -> None:
    rows = [row(0, "aten::a", "CPU", 0, 10_000, rule="kernel") | {"key": None}]
    assert ledger(trace(rows, certificate={}), 0, 0, 0).rest_ns == 10_000


def test_the_median_step_is_one_of_the_steady_ones() -> None:
    steps = pl.DataFrame(
        [
            (0, 0, "warmup", 0, 90, None, None, None),
            (0, 1, "steady", 90, 100, None, None, None),
            (0, 2, "steady", 100, 130, None, None, None),
            (0, 3, "steady", 130, 150, None, None, None),
        ],
        schema.STEPS,
        orient="row",
    )
    assert median_step(steps) == (0, 3)
    with pytest.raises(ValueError, match="no step"):
        median_step(steps.clear())


def test_a_step_that_did_not_end_is_an_error() -> None:
    with pytest.raises(ValueError, match="no step from 7 to 9"):
        ledger(trace(training(), certificate={}), 0, 7, 9)


def test_keys_that_wrap_others_are_no_kernels() -> None:
    rows = [
        row(0, "aten::a", "AutocastCPU", 0, 9000, rule="kernel"),
        row(1, "aten::a", "SparseCPU", 1000, 2000, 0),
    ]
    found = ledger(trace(rows, certificate={}), 0, 0, 0)
    assert {row.layer for row in found.rows} >= {Layer("key", "AutocastCPU"), Layer("kernel", "SparseCPU")}
