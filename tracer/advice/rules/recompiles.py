"""Functions that torch.compile compiles again and again."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from tracer.advice.finding import LEAST, Finding
from tracer.advice.steady import Steady

looks_for = "recompilations after the first step, and the guards that asked for them"
threshold = "1 % of a step, spread over the steps of the run without the first one"
needs: tuple[str, ...] = ("compile",)


def find(steady: Steady) -> Iterator[Finding]:
    calls = steady.trace.compiled_calls.filter(pl.col("process") == steady.process)
    again = calls.filter(pl.col("recompiled").fill_null("") != "")
    steps = steady.trace.steps.filter(pl.col("process") == steady.process)
    if again.is_empty() or len(steps) < 2:
        return
    after = int(steps.sort("start_ns")["end_ns"][0])
    phases = steady.trace.compile_phases.filter(
        (pl.col("process") == steady.process) & pl.col("parent").is_null() & (pl.col("start_ns") >= after)
    )
    for (function,), of in again.group_by("function", maintain_order=True):
        ids = of["compile_id"].cast(pl.String).unique()
        mine = phases.filter(pl.col("compile_id").cast(pl.String).is_in(ids.implode()))
        cost = float((mine["end_ns"] - mine["start_ns"]).sum()) / (len(steps) - 1)
        if cost < LEAST * steady.step_ns:
            continue
        guard = str(of["recompiled"].drop_nulls()[0])
        yield Finding(
            line=_line(of),
            do="torch.compile(..., dynamic=True), or torch._dynamo.mark_dynamic for the size that changes",
            evidence=f"{function} was compiled {len(ids):,} times more; the guard that failed: {guard[:80]}",
            cost_ns=cost,
            most_ns=cost,
        )


def _line(calls: pl.DataFrame) -> str | None:
    for name in ("called_from", "defined_at"):
        known = calls[name].drop_nulls().cast(pl.String)
        if len(known):
            return str(known[0])
    return None
