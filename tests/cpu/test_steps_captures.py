"""`--steps`: what a CUDA graph captures outside of the recorded steps is recorded, and is of no step."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from compiler_cache import use_cache
from launching import Launcher

import tracer
from tracer.trace.tables.steps import StepEnds

# Without a GPU nothing can be captured: the functions that a recording wraps do nothing here.
SCRIPT = """
import sys, torch, tracer
from torch.cuda.graphs import CUDAGraph
CUDAGraph.capture_begin = lambda self, *arguments: None
def capture_end(self):
    torch.ones(2).exp()  # as the instantiation of a graph
CUDAGraph.capture_end = capture_end
original = CUDAGraph.capture_begin
captures_in = eval(sys.argv[2])
with tracer.record("run.trace", steps=sys.argv[1], cuda="off"):
    for step in range(8):
        torch.ones(2).neg()
        if step in captures_in:
            CUDAGraph.capture_begin(None)
            torch.ones(2).abs()
            CUDAGraph.capture_end(None)
            torch.ones(2).sin()
        tracer.step()
assert CUDAGraph.capture_begin is original
"""


def recorded(launcher: Launcher, steps: str, captures_in: list[int]) -> tracer.Trace:
    launcher.write(SCRIPT)
    run = launcher.python("script.py", steps, str(captures_in))
    assert run.status == 0, run.err
    return tracer.load(launcher.folder / "run.trace")


def steps_of(trace: tracer.Trace, op: str) -> list[int | None]:
    calls = trace.hops.filter((pl.col("op") == op) & (pl.col("kind") == "call"))
    return calls["step"].to_list()


def test_a_capture_before_the_window_is_recorded(launcher: Launcher) -> None:
    trace = recorded(launcher, "4:7", [1, 2])
    assert steps_of(trace, "aten::abs") == [None, None]
    assert steps_of(trace, "aten::exp") == [None, None]
    assert steps_of(trace, "aten::sin") == []
    assert steps_of(trace, "aten::neg") == [4, 5, 6]
    assert trace.steps["step"].to_list() == [4, 5, 6]
    begins = trace.steps["start_ns"].to_list()
    captured = trace.hops.filter(pl.col("step").is_null())["end_ns"].max()
    assert begins[0] > captured  # type: ignore[operator]
    assert trace.certificate["complete"]
    tree = launcher.run([str(launcher.tracer), "tree", "run.trace", "--step", "4"])
    assert "aten::neg" in tree.out
    assert "aten::abs" not in tree.out


def test_a_capture_in_the_window_is_of_its_step(launcher: Launcher) -> None:
    trace = recorded(launcher, "2:5", [3])
    assert steps_of(trace, "aten::abs") == [3]
    assert steps_of(trace, "aten::sin") == [3]
    assert steps_of(trace, "aten::neg") == [2, 3, 4]


def test_a_capture_after_the_window_is_of_no_step(launcher: Launcher) -> None:
    trace = recorded(launcher, "1:3", [5])
    assert steps_of(trace, "aten::abs") == [None]
    assert steps_of(trace, "aten::sin") == []
    assert steps_of(trace, "aten::neg") == [1, 2]


@pytest.mark.compiler
def test_a_capture_in_a_call_of_compiled_code_is_of_that_call(launcher: Launcher) -> None:
    use_cache(launcher, launcher.folder / "inductor")
    launcher.write(
        """
import torch, tracer
from torch.cuda.graphs import CUDAGraph
CUDAGraph.capture_begin = CUDAGraph.capture_end = lambda self: None

@torch.library.custom_op("test::captured", mutates_args=())
def captured(x: torch.Tensor) -> torch.Tensor:
    CUDAGraph.capture_begin(None)
    out = x.neg()
    CUDAGraph.capture_end(None)
    return out

captured.register_fake(lambda x: torch.empty_like(x))
model = torch.compile(lambda x: captured(x + 1) * 2)
with tracer.record("run.trace", steps="2:3", cuda="off"):
    for step in range(4):
        model(torch.ones(8))
        tracer.step()
"""
    )
    run = launcher.python("script.py")
    assert run.status == 0, run.err
    trace = tracer.load(launcher.folder / "run.trace")
    calls = trace.compiled_calls
    assert calls["step"].to_list() == [None, None, 2, None]
    assert calls["region"].n_unique() == 1
    assert calls["function"].null_count() == 0
    captured = trace.hops.filter((pl.col("op") == "aten::neg") & (pl.col("kind") == "call"))
    assert captured["step"].to_list() == [None, None, 2, None]
    spans = calls.select("start_ns", "end_ns").rows()
    for start, (begin, end) in zip(captured["start_ns"], spans, strict=True):
        assert begin <= start < end


def test_a_count_that_begins_after_something_else() -> None:
    ends = StepEnds.of_counted([StepEnds(np.array([50, 10, 70, 60]), np.array([0, 1, 6, 5]))])
    assert (ends.times.tolist(), ends.numbers.tolist(), ends.since) == ([60, 70], [5, 6], 50)
    assert ends.span(4) == (50, 60)
    assert ends.span(5) == (60, 70)
