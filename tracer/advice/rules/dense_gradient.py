"""Tables with a gradient for all rows, where a step uses few."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import polars as pl

from tracer.advice.experiments import SparseTable
from tracer.advice.finding import Finding
from tracer.advice.lines import commonest
from tracer.advice.optimizers import last_step, of_steps, option_of
from tracer.advice.steady import Steady, Tensor

looks_for = "embeddings whose backward makes a gradient of the whole table for at most a tenth of its rows"
threshold = "5 % of a step, with the optimizer's ops on tables of that size"
needs: tuple[str, ...] = ("shapes", "sources")

LEAST = 0.05
DENSE = ("Adam", "AdamW", "SGD", "RMSprop", "Adagrad")
"""Optimizers of dense gradients that an experiment can run"""
TOUCHED = 10
"""A table has at least this many times the rows that a step asks for"""
_BACKWARD = ("aten::embedding_dense_backward", "aten::_embedding_bag_dense_backward")


@dataclass(frozen=True)
class _Table:
    rows: int
    width: int
    indices: int
    dtype: str
    device: str


def find(steady: Steady) -> Iterator[Finding]:
    backward = steady.calls.filter(pl.col("op").is_in(_BACKWARD))
    inside = of_steps(steady)
    for (line,), calls in backward.group_by("source", maintain_order=True):
        tables = [found for row in calls.to_dicts() if (found := _table(steady, row))]
        if not tables or any(one.indices * TOUCHED > one.rows for one in tables):
            continue
        one = max(tables, key=lambda table: table.rows * table.width)
        sizes = {(table.rows, table.width) for table in tables}
        on_tables = steady.with_inputs(lambda of, sizes=sizes: bool(of) and of[0].shape in sizes)
        updates = inside.filter(pl.col("inputs").is_in(on_tables))
        cost = steady.usual_ns(calls) + steady.usual_ns(updates)
        if cost < LEAST * steady.step_ns:
            continue
        number = round(steady.a_step(len(tables)))
        yield Finding(
            line=line if line is None else str(line),
            do="Embedding(..., sparse=True) with SparseAdam, or SGD: gradients of the rows in use",
            evidence=(
                f"tables a step: {number}; {one.indices:,} of {one.rows:,} rows are in use, and the gradient "
                f"and the optimizer's ops are of all"
            ),
            cost_ns=cost,
            most_ns=cost,
            hops=frozenset([*calls["id"].to_list(), *updates["id"].to_list()]),
            experiment=_experiment(steady, tables, one, inside, updates),
            caveat="other results: moments of rows that were not used stay as they are",
        )


def _experiment(
    steady: Steady, tables: list[_Table], one: _Table, inside: pl.DataFrame, updates: pl.DataFrame
) -> SparseTable | None:
    """A step of the largest table, with the optimizer that updates most of them; None if none is known."""
    name = commonest(updates["optimizer"])
    if name not in DENSE:
        return None
    ops = inside.filter(pl.col("optimizer") == name)
    times = steady.a_step(sum(each.rows * each.width for each in tables) / (one.rows * one.width))
    return SparseTable(
        name=name,
        ops=last_step(steady, ops),
        now=option_of(ops),
        times=times,
        **asdict(one),
    )


def _table(steady: Steady, row: dict[str, object]) -> _Table | None:
    """Of a backward call, whose table is the weight of the forward call that it belongs to."""
    tensors = steady.tensors(row["inputs"])  # type: ignore[arg-type]
    if len(tensors) < 2 or not tensors[0].shape:
        return None
    gradient, indices = tensors[:2]
    width = gradient.shape[-1]
    weight = _weight(steady, row["forward_hop"], width)
    if weight is None:
        return None
    return _Table(weight.shape[0], width, math.prod(indices.shape), weight.dtype, weight.device)


def _weight(steady: Steady, hop: object, width: int) -> Tensor | None:
    """The table of a forward hop or of one around it."""
    by_id = steady.forward_inputs
    for _ in range(4):
        if not isinstance(hop, int) or hop not in by_id:
            return None
        inputs, hop = by_id[hop]
        for tensor in steady.tensors(inputs):
            if len(tensor.shape) == 2 and tensor.shape[1] == width and tensor.requires_grad:
                return tensor
    return None
