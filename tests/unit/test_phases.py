"""Which phase an op call is of is decided in one place."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from frames import FakeTrace, TraceBuilder, hop

import tracer.analysis
from tracer.analysis.phases import (
    BACKWARD,
    COMMUNICATION,
    COMPILE,
    DATA,
    FORWARD,
    OPTIMIZER,
    OTHER,
    ProcessPhases,
    calling_line,
    of_compiled_backward,
    ops_of,
    phase_of_hops,
)
from tracer.analysis.step_times import step_times
from tracer.trace.tables import schema

PRODUCT = Path(tracer.analysis.__file__).parents[1]
DECIDES = re.compile(
    r'"backward_node"\)\s*\.is_not_null|Optimizer\.["|(]'
    r'|\(("direction"|\.String)\)+ == (BACKWARD|"backward")'
)
STEP = "Optimizer.step#SGD.step"
NODE = {"backward_node": "MmBackward0"}


def row(name: str, at: int, end: int, **columns: Any) -> dict[str, Any]:
    name = name if "::" in name else f"aten::{name}"
    return (
        dict.fromkeys(schema.HOPS)
        | {
            "op": name,
            "process": 0,
            "thread": 1,
            "start_ns": at,
            "end_ns": end,
            "kind": "call",
        }
        | columns
    )


def table(rows: list[dict[str, Any]], of: schema.Schema) -> pl.DataFrame:
    strings = {name: pl.String if kind == schema.STRING else kind for name, kind in of.items()}
    full = [dict.fromkeys(of) | each | {"id": number} for number, each in enumerate(rows)]
    return pl.DataFrame(full, strings).cast(dict(of))


def made(
    ops: list[dict[str, Any]], ranges: list[tuple[str, int, int]] = (), **tables: pl.DataFrame
) -> FakeTrace:
    """Ops of one process, and ranges of its thread 1: name, start, end."""
    rows = [
        {"name": name, "process": 0, "thread": 1, "start_ns": start, "end_ns": end}
        for name, start, end in ranges
    ]
    empty = TraceBuilder().calls(hop("aten::a", "CPU")).trace()
    return replace(empty, hops=table(ops, schema.HOPS), ranges=table(rows, schema.RANGES), **tables)


def phases(trace: FakeTrace) -> list[str]:
    return ops_of(trace, 0)["phase"].to_list()


# A closure: forward and backward within the step of the optimizer, and its own work after them.
CLOSURE = [
    row("zero_", 100, 110, range="Optimizer.zero_grad#SGD.zero_grad"),
    row("linear", 200, 300, module="0"),
    row("sub", 310, 320),
    row("mean", 330, 340),
    row("rand", 350, 360),  # of no node, and before the backward pass
    row("ones_like", 400, 405),
    row("mean_backward", 410, 420, forward_hop=3, **NODE),
    row("linear_backward", 500, 600, forward_hop=1, **NODE),
    row("add_", 700, 800),
]
STEP_OF_CLOSURE = [(STEP, 50, 900), ("Optimizer.zero_grad#SGD.zero_grad", 90, 120)]


def test_a_closure_is_forward_and_backward_within_an_optimizer() -> None:
    assert phases(made(CLOSURE, STEP_OF_CLOSURE)) == [
        *(OPTIMIZER, FORWARD, FORWARD, FORWARD, FORWARD),
        *(BACKWARD, BACKWARD, BACKWARD, OPTIMIZER),
    ]


def test_each_phase_of_a_closure_has_what_lies_between_its_ops() -> None:
    trace = made(
        CLOSURE,
        STEP_OF_CLOSURE,
        steps=pl.DataFrame([(0, 0, None, 0, 1000, None, None, None)], schema.STEPS, orient="row"),
    )
    (step,) = step_times(trace).to_dicts()
    assert (step["forward_ns"], step["forward_outside_ns"]) == (150, 20)
    assert (step["backward_ns"], step["backward_outside_ns"]) == (240, 125)
    assert (step["optimizer_ns"], step["outside_ns"]) == (850 - 150 - 240, 150)
    assert step["outside_ops_ns"] == 1000 - (10 + 130 + 115 + 100)


def test_two_closures_of_one_step_are_apart() -> None:
    """As LBFGS has them; what it computes between them is the optimizer's."""
    ops = [
        row("linear", 100, 200, module="0"),
        row("linear_backward", 200, 300, forward_hop=0, **NODE),
        row("dot", 400, 500),
        row("linear", 600, 700, module="0"),
        row("linear_backward", 700, 800, forward_hop=3, **NODE),
        row("add_", 900, 950),
    ]
    found = phases(made(ops, [("Optimizer.step#LBFGS.step", 0, 1000)]))
    assert found == [FORWARD, BACKWARD, OPTIMIZER, FORWARD, BACKWARD, OPTIMIZER]


def test_the_parts_that_an_optimizer_marks_are_the_optimizer() -> None:
    ops = [row("eigh", 100, 200, range="precondition"), row("add_", 250, 300, range=STEP)]
    assert phases(made(ops, [(STEP, 50, 400), ("precondition", 90, 220)])) == [OPTIMIZER, OPTIMIZER]


def test_an_optimizer_that_a_hook_of_backward_steps_is_the_optimizer() -> None:
    ops = [
        row("linear", 0, 10, module="0"),
        row("sub_backward", 20, 30, forward_hop=0, **NODE),
        row("profiler::_record_function_enter_new", 40, 50, **NODE),
        row("add_", 60, 70, range=STEP, **NODE),
        row("mm", 100, 110, forward_hop=0, **NODE),
    ]
    trace = made(ops, [(STEP, 45, 80)])
    assert phases(trace) == [FORWARD, BACKWARD, OPTIMIZER, BACKWARD]
    backward = next(cover for phase, cover in ProcessPhases.of(trace, 0).enclosed() if phase == BACKWARD)
    assert (backward.starts.tolist(), backward.ends.tolist()) == ([20], [110])


def test_what_comes_between_backward_and_the_optimizer_is_neither() -> None:
    """Clipping of gradients; and the data of the next step, of which no node came."""
    ops = [
        row("linear", 0, 10, module="0"),
        row("linear_backward", 20, 30, forward_hop=0, **NODE),
        row("linalg_vector_norm", 40, 50),
        row("add_", 60, 70, range=STEP),
        row("randn", 80, 90),
    ]
    assert phases(made(ops)) == [FORWARD, BACKWARD, OTHER, OPTIMIZER, OTHER]


def test_a_loss_without_modules_is_forward_up_to_its_last_linked_op() -> None:
    ops = [
        row("randn", 0, 10),
        row("mm", 20, 30),
        row("size", 35, 36),
        row("mean", 40, 50),
        row("mean_backward", 60, 70, forward_hop=3, **NODE),
        row("mm", 80, 90, forward_hop=1, **NODE),
    ]
    assert phases(made(ops)) == [OTHER, FORWARD, FORWARD, FORWARD, BACKWARD, BACKWARD]


def test_gradients_set_to_zero_between_two_losses_are_the_optimizer() -> None:
    zero = "Optimizer.zero_grad#SGD.zero_grad"
    ops = [
        row("mm", 0, 10),
        row("zero_", 20, 30, range=zero),
        row("mean", 40, 50),
        row("mean_backward", 60, 70, forward_hop=2, **NODE),
        row("mm_backward", 80, 90, forward_hop=0, **NODE),
    ]
    assert phases(made(ops, [(zero, 15, 35)]))[1] == OPTIMIZER


def test_where_nothing_tells_them_apart_all_is_forward() -> None:
    assert phases(made([row("mm", 0, 10), row("mm", 20, 30)])) == [FORWARD, FORWARD]


@pytest.mark.parametrize("op", ["c10d::allreduce_", "_c10d_functional::all_gather_into_tensor"])
def test_ops_of_torch_distributed_are_communication(op: str) -> None:
    assert phases(made([row(op, 0, 10), row("linear", 20, 30, module="0")])) == [COMMUNICATION, FORWARD]


def test_what_a_data_loader_does_is_data_waiting_too() -> None:
    ops = [row("stack", 100, 200), row("linear", 500, 600, module="0")]
    steps = pl.DataFrame([(0, 0, None, 0, 700, None, None, None)], schema.STEPS, orient="row")
    trace = made(ops, [("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 50, 400)], steps=steps)
    assert phases(trace) == [DATA, FORWARD]
    (step,) = step_times(trace).to_dicts()
    assert (step["data_ns"], step["data_outside_ns"], step["forward_ns"]) == (350, 250, 100)


def test_what_runs_while_torch_compiles_is_compiling() -> None:
    compiling = table(
        [{"name": "dynamo", "process": 0, "thread": 1, "start_ns": 50, "end_ns": 300}], schema.COMPILE_PHASES
    )
    steps = pl.DataFrame([(0, 0, None, 0, 700, None, None, None)], schema.STEPS, orient="row")
    trace = made([row("mm", 100, 200), row("mm", 400, 500)], compile_phases=compiling, steps=steps)
    assert phases(trace)[0] == COMPILE
    assert step_times(trace)["compile_ns"].to_list() == [250]


def test_communication_is_what_nothing_else_hides() -> None:
    """A back end works on a thread of its own while ops run, and when none does."""
    transfer = {"name": "gloo:all_reduce", "process": 0, "thread": 2, "start_ns": 150, "end_ns": 450}
    steps = pl.DataFrame([(0, 0, None, 0, 500, None, None, None)], schema.STEPS, orient="row")
    trace = replace(
        made([row("linear", 100, 300, module="0")], steps=steps), ranges=table([transfer], schema.RANGES)
    )
    assert step_times(trace)["communication_ns"].to_list() == [150]


def test_the_parts_of_a_step_add_up_whatever_overlaps() -> None:
    ranges = [(STEP, 50, 900), ("enumerate(DataLoader)#x", 30, 210), ("gloo:broadcast", 0, 950)]
    steps = pl.DataFrame([(0, 0, None, 0, 1000, None, None, None)], schema.STEPS, orient="row")
    (step,) = step_times(made(CLOSURE, ranges, steps=steps)).to_dicts()
    parts = ("waiting", "data", "compile", "communication", "optimizer", "backward", "forward")
    assert sum(step[f"{part}_ns"] for part in (*parts, "outside")) == step["wall_ns"] == 1000


def test_ops_of_no_phase_are_outside_of_them() -> None:
    ops = [row("linear", 0, 10, module="0"), row("randn", 50, 80)]
    steps = pl.DataFrame([(0, 0, None, 0, 100, None, None, None)], schema.STEPS, orient="row")
    (step,) = step_times(made(ops, steps=steps)).to_dicts()
    assert (step["forward_ns"], step["outside_ns"], step["other_ns"]) == (10, 90, 30)
    assert step["outside_ops_ns"] == 60


def test_hops_below_an_op_have_its_phase() -> None:
    ops = [
        row("linear", 0, 10, module="0"),
        row("linear_backward", 20, 30, forward_hop=0, **NODE),
        row("add_", 40, 60, range=STEP),
        row("add_", 45, 55, parent=2, range=STEP),
        row("profiler::_record_function_exit", 70, 80),
    ]
    assert phase_of_hops(made(ops)).to_list() == [FORWARD, BACKWARD, OPTIMIZER, OPTIMIZER, OTHER]


def test_what_a_thread_of_autograd_calls_has_no_line() -> None:
    hops = pl.DataFrame(
        [
            ("a.py:1", None, None),
            ("a.py:1", None, "MmBackward0"),
            ("a.py:1", "a.py:2", "MmBackward0"),  # the script's own node called it
            (None, "a.py:3", None),
        ],
        {"source": pl.String, "called_from": pl.String, "backward_node": pl.String},
        orient="row",
    )
    assert hops.select(calling_line()).to_series().to_list() == ["a.py:1", BACKWARD, "a.py:2", "a.py:3"]


def test_compiled_code_is_of_backward_if_it_says_so() -> None:
    calls = pl.DataFrame({"direction": ["forward", "backward", None, "inference"]})
    assert calls.select(of_compiled_backward()).to_series().to_list() == [False, True, False, False]


def test_no_other_place_decides() -> None:
    files = [each for each in PRODUCT.rglob("*.py") if each.name != "phases.py"]
    assert len(files) > 300
    assert [
        str(each) for each in files if DECIDES.search(each.read_text()) and "recording" not in each.parts
    ] == []
