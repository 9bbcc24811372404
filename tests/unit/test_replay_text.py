"""What a replay says before it runs: the call, and its arguments."""

from __future__ import annotations

from types import SimpleNamespace

from tracer.analysis.recorded_call import RecordedCall
from tracer.replay.arguments import Argument, TensorPlan
from tracer.replay.call import Call
from tracer.replay.run import Side, _no_error
from tracer.replay.text import _error_rows, heading


def plan(dtype: str, *shape: int) -> TensorPlan:
    strides = tuple(range(len(shape), 0, -1))
    return TensorPlan(
        shape, strides, dtype, "cpu", requires_grad=False, conjugate=False, negative=False, written=False
    )


def lines(*values: object, hop: int = 0, here: str = "2.13.0") -> list[str]:
    recorded = RecordedCall(
        hop, 0, "aten::embedding", "CPU", "CPU", "train.py:7", "x = table[words]", "2.13.0", {}, {}
    )
    arguments = [Argument(f"a{n}", value, "recorded", keyword=False) for n, value in enumerate(values)]
    return list(heading(recorded, Call(None, arguments, "CPU"), here))


def test_random_integers_are_below_the_smallest_size() -> None:
    """An index of embedding must be in its table: of 5 rows they are 0 to 4."""
    *_, last = lines(plan("float32", 5, 8), plan("int64", 3))
    assert last == "  integers in tensors are random, from 0 to 4"
    assert lines(plan("int64", 3))[-1] == "  integers in tensors are random, from 0 to 1"


def test_of_other_tensors_nothing_is_said() -> None:
    assert not any("integers" in line for line in lines(plan("float32", 5, 8), plan("bool", 3), 7))


def test_the_call_and_what_differs_from_the_recording() -> None:
    assert lines(7, hop=2, here="2.14.0") == [
        "hop 0: aten::embedding [CPU]  train.py:7  x = table[words]",
        "  (hop 2 is a redispatch in this op call)",
        "  recorded with torch 2.13.0, replayed with torch 2.14.0",
        "  a0 = 7",
    ]


def test_an_unknown_error_has_its_reason() -> None:
    why = _no_error(True, "the operator does not compute in float64 on the CPU: RuntimeError: not float32")
    rows = list(_error_rows(SimpleNamespace(ran=[Side("stock", errors=[None], no_error=why)]), 10))
    assert rows[-1] == f"error from float64 is unknown: {why}"
    assert _no_error(False, []) == "two runs of the call returned different values"
    assert _no_error(True, []) == ""
