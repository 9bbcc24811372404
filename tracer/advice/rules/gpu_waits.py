"""Lines that make the host wait for the GPU, after which the GPU has nothing to do."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from tracer.advice.finding import LEAST, Finding
from tracer.advice.steady import Steady
from tracer.analysis.cover import Cover
from tracer.analysis.step_times import waits

looks_for = "calls that wait for the GPU, and after which it is idle until the host has given it new work"
threshold = (
    "1 % of a step; the gain is at most the wait or the idle time until the next wait, whichever is shorter: "
    "a GPU that idles because the host is slow gains nothing from not being waited for"
)
needs: tuple[str, ...] = ("cuda", "sources")


def find(steady: Steady) -> Iterator[Finding]:
    if not steady.on_gpu:
        return
    begin, end = int(steady.hops["start_ns"].min()), int(steady.hops["end_ns"].max())  # type: ignore[arg-type]
    found = waits(steady.trace, steady.process).filter(pl.col("start_ns").is_between(begin, end))
    found = found.sort("start_ns")
    if found.is_empty():
        return
    gpu = steady.gpu
    busy = Cover.of(gpu["start_ns"].to_numpy(), gpu["end_ns"].to_numpy())
    after = found["end_ns"].to_numpy()
    until = np.append(found["start_ns"].to_numpy()[1:], end)
    idle = np.maximum(until - after - busy.within(after, np.maximum(until, after)), 0)
    waited = after - found["start_ns"].to_numpy()
    rows = found.with_columns(most=pl.Series(np.minimum(idle, waited)), waited=pl.Series(waited))
    for (line,), of in rows.group_by("line", maintain_order=True):
        most = steady.a_step(int(of["most"].sum()))
        if most < LEAST * steady.step_ns:
            continue
        names = ", ".join(sorted(set(of["name"].drop_nulls().to_list())))
        waited_us = steady.a_step(int(of["waited"].sum())) / 1000
        yield Finding(
            line=None if line is None else str(line),
            do="do not read the GPU here: keep the value there, or read it once the next step has begun",
            evidence=f"{steady.a_step(len(of)):,.1f} waits a step ({names}), of {waited_us:,.0f} us in all",
            cost_ns=most,
            most_ns=most,
            hops=frozenset(of["hop"].drop_nulls().to_list()),
        )
