"""The ops of steps of optimizers, and how these were set up."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import polars as pl

from tracer.advice.steady import Steady
from tracer.analysis.phases import OF_STEPS


def of_steps(steady: Steady) -> pl.DataFrame:
    """Outermost op calls in steps of optimizers, with `optimizer`: the name of its class."""
    inside = steady.roots.filter(pl.col("range").str.starts_with(OF_STEPS))
    return inside.with_columns(optimizer=pl.col("range").str.extract(r"#(\w+)\.step$"))


def last_step(steady: Steady, ops: pl.DataFrame) -> tuple[str, ...]:
    """The names of those of these ops that the last step has, in order."""
    return tuple(ops.filter(pl.col("step") == steady.steps[-1])["op"].to_list())


def option_of(ops: pl.DataFrame) -> str:
    """The option with which its step runs so: `foreach=False`, `foreach=True` or `fused=True`."""
    if ops["op"].str.contains("_fused_").any():
        return "fused=True"
    return f"foreach={bool(ops['op'].str.contains('_foreach_').any())}"


@dataclass(frozen=True)
class Group:
    """Groups of parameters with the same options, of optimizers of one class; `kind`: its module and name."""

    kind: str
    parameters: int
    options: dict[str, Any]


def groups_of(steady: Steady, name: str) -> list[Group]:
    """The groups of optimizers of this class, those of most parameters first; none: not recorded."""
    found = steady.trace.optimizers.filter(
        (pl.col("process") == steady.process) & pl.col("class").str.ends_with(f".{name}")
    )
    rows = found.sort("parameters", descending=True, maintain_order=True)
    return [
        Group(kind, parameters or 0, json.loads(options))
        for kind, parameters, options in rows.select("class", "parameters", "options").iter_rows()
    ]
