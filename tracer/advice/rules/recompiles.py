"""Functions that torch.compile compiles again and again."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from tracer.advice.finding import LEAST, Finding
from tracer.advice.steady import Steady

looks_for = "recompilations after the first step, and the guards that asked for them"
threshold = "1 % of a step, spread over the steps of the run without the first one"
needs: tuple[str, ...] = ("sources",)


def find(steady: Steady) -> Iterator[Finding]:
    steps = steady.trace.steps.filter(pl.col("process") == steady.process)
    if len(steps) < 2:
        return
    again = _again(steady, int(steps["end_ns"].min()))  # type: ignore[arg-type]
    for (frame,), phases in again.group_by("frame", maintain_order=True):
        cost = float((phases["end_ns"] - phases["start_ns"]).sum()) / (len(steps) - 1)
        if cost < LEAST * steady.step_ns:
            continue
        line, why = _known(steady, f"{frame}/")
        yield Finding(
            line=line,
            do="torch.compile(..., dynamic=True), or torch._dynamo.mark_dynamic for the size that changes",
            evidence=f"compiled {len(phases):,} times more after the first step{why}",
            cost_ns=cost,
            most_ns=cost,
        )


def _again(steady: Steady, after: int) -> pl.DataFrame:
    """Outermost phases of recompilations: compile ids count from 0 for each frame, `1/0`, `1/1`, ..."""
    phases = steady.trace.compile_phases.filter(
        (pl.col("process") == steady.process) & pl.col("parent").is_null() & (pl.col("start_ns") >= after)
    )
    parts = pl.col("compile_id").cast(pl.String).str.extract_groups(r"^(?<frame>\d+)/(?<times>\d+)")
    return phases.with_columns(parts.alias("parts")).unnest("parts").filter(pl.col("times") != "0")


def _known(steady: Steady, frame: str) -> tuple[str | None, str]:
    """The line of the function, and which guard failed, if a call of its code was recorded."""
    of_frame = pl.col("compile_id").cast(pl.String).str.starts_with(frame)
    calls = steady.trace.compiled_calls.filter((pl.col("process") == steady.process) & of_frame)
    lines = [calls[name].drop_nulls().cast(pl.String) for name in ("called_from", "defined_at")]
    guards = calls["recompiled"].drop_nulls().filter(calls["recompiled"].drop_nulls() != "")
    why = f"; the guard that failed: {guards[0][:80]}" if len(guards) else ""
    known = [found[0] for found in lines if len(found)]
    return (known[0] if known else None), why
