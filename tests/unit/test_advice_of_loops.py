"""Loops whose calls need each other's results have no single call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from test_ledger import row, trace

from tracer.advice.dependence import Dependence, Flow
from tracer.advice.finding import Finding
from tracer.advice.rules import python_loop
from tracer.advice.steady import Steady
from tracer.trace.tables import schema

TIMES = 20
STEP = 100_000
WEIGHT, INPUT = 1, 2
Call = tuple[str, list[int], list[int]]
"""Op, storages that it got, storages of what it returned"""


def steady(calls: list[Call], *, known: bool = True) -> Steady:
    """Three steps that make these calls, on one line."""
    ops: list[dict[str, Any]] = []
    tensors: list[tuple[int, bool, int, int]] = []
    for step in range(3):
        for place, (op, got, returned) in enumerate(calls):
            hop, start = len(ops), STEP * step + 2000 * place
            more = {"step": step, "kind": "call", "inputs": 0 if op == "mm" else 1}
            ops.append(row(hop, f"aten::{op}", "CPU", start, start + 1000, **more))
            for result, storages in ((False, got), (True, returned)):
                tensors += [(hop, result, number, storage) for number, storage in enumerate(storages)]
    columns = pl.DataFrame(tensors, ["hop", "result", "number", "storage"], orient="row")
    table = columns.with_columns(signature=0, version=0).select(*schema.TENSORS).cast(dict(schema.TENSORS))
    made = trace(
        ops,
        (STEP, 2 * STEP, 3 * STEP),
        certificate={},
        tensors=table if known else pl.DataFrame(schema=schema.TENSORS),
    )
    return Steady.of(made)  # type: ignore[arg-type]


def found(calls: list[Call], *, known: bool = True) -> list[Finding]:
    return list(python_loop.find(steady(calls, known=known)))


def each_needs_the_last() -> Iterator[Call]:
    """h = relu(h @ w)"""
    state = INPUT
    for number in range(TIMES):
        product, state, last = 100 + number, 200 + number, state
        yield "mm", [last, WEIGHT], [product]
        yield "relu", [product], [state]


def each_row_alone() -> Iterator[Call]:
    """out[i] = relu(x[i] @ w)"""
    for number in range(TIMES):
        yield "mm", [INPUT, WEIGHT], [100 + number]
        yield "relu", [100 + number], [200 + number]
        yield "copy_", [3, 200 + number], [3]


def rows_of_a_batch() -> Iterator[Call]:
    """For each of five rows: four times h = h @ w."""
    for number in range(TIMES):
        yield "mm", [INPUT if number % 4 == 0 else 100 + number - 1, WEIGHT], [100 + number]


def in_place() -> Iterator[Call]:
    """x[i].mul_(2): which part of the storage each writes is not known"""
    for _ in range(TIMES):
        yield "mul_", [INPUT], [INPUT]


def a_sum() -> Iterator[Call]:
    """total = total + x[i]"""
    for number in range(TIMES):
        yield "add", [100 + number, INPUT], [100 + number + 1]


def a_sum_of_products() -> Iterator[Call]:
    """total = total + x[i] @ w"""
    for number in range(TIMES):
        yield "mm", [INPUT, WEIGHT], [200 + number]
        yield "add", [100 + number, 200 + number], [100 + number + 1]


def a_moving_average() -> Iterator[Call]:
    """h = h * 0.9 + x[i]"""
    for number in range(TIMES):
        yield "mul", [100 + number], [200 + number]
        yield "add", [200 + number, INPUT], [100 + number + 1]


def projections() -> Iterator[Call]:
    """h = relu(x[i] @ w + h)"""
    for number in range(TIMES):
        yield "mm", [INPUT, WEIGHT], [200 + number]
        yield "add", [200 + number, 100 + number], [300 + number]
        yield "relu", [300 + number], [100 + number + 1]


def a_cell() -> Iterator[Call]:
    """h = cell(x[i], h), which nn.GRU does in one call"""
    for number in range(TIMES):
        yield "gru_cell", [INPUT, 100 + number, WEIGHT], [100 + number + 1]


@pytest.mark.parametrize("loop", [each_needs_the_last, a_moving_average])
def test_a_loop_of_calls_that_need_each_other_is_no_advice(loop: Any) -> None:
    assert not found(list(loop()))


@pytest.mark.parametrize(
    ("loop", "caveat"),
    [
        (each_row_alone, ""),
        (rows_of_a_batch, "only for calls that do not need the result of the one before"),
        (in_place, "if no call needs the result of the one before"),
        (a_sum, ""),
        (a_sum_of_products, ""),
        (projections, "only for calls that do not need the result of the one before"),
        (a_cell, ""),
    ],
)
def test_other_loops_are(loop: Any, caveat: str) -> None:
    (one,) = found(list(loop()))
    assert one.caveat == caveat


@pytest.mark.parametrize("loop", [each_needs_the_last, each_row_alone])
def test_without_the_option_the_row_says_what_it_does_not_know(loop: Any) -> None:
    (one,) = found(list(loop()), known=False)
    assert one.caveat == (
        "if no call needs the result of the one before: the recording has no --values scalars"
    )


def test_the_longest_row_of_calls() -> None:
    def chain(loop: Any, op: str = "aten::mm") -> Dependence:
        of = steady(list(loop()))
        roots = of.roots.filter(pl.col("step") == 2)
        return Flow(roots, of.trace.tensors).dependence(roots.filter(pl.col("op") == op)["id"])

    assert chain(each_needs_the_last) == Dependence(TIMES, longest=TIMES, direct=0, made=True)
    assert chain(each_row_alone) == Dependence(TIMES, longest=1, direct=0, made=True)
    assert chain(rows_of_a_batch) == Dependence(TIMES, longest=4, direct=15, made=True)
    assert chain(a_sum, "aten::add") == Dependence(TIMES, longest=TIMES, direct=TIMES - 1, made=True)
    assert chain(in_place, "aten::mul_") == Dependence(TIMES, longest=1, direct=0, made=False)
