"""A GPU that waits for the host to launch its kernels."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from tracer.advice.finding import Finding
from tracer.advice.lines import costliest
from tracer.advice.steady import Steady

looks_for = "steps in which the GPU is busy for at most 70 % of the time, with 50 short kernels or more"
threshold = (
    "30 % of a step, without tracer's own cost: recording makes the host slower, and so the GPU more idle"
)
needs: tuple[str, ...] = ("cuda", "sources")

BUSY, KERNELS, SHORT_NS = 0.7, 50, 10_000


def find(steady: Steady) -> Iterator[Finding]:
    kernels = steady.gpu.filter((pl.col("kind").cast(pl.String) == "kernel") & pl.col("graph").is_null())
    number = steady.a_step(len(kernels))
    if number < KERNELS:
        return
    busy = steady.parts["gpu_busy_ns"]
    median = float((kernels["end_ns"] - kernels["start_ns"]).median() or 0)  # type: ignore[arg-type]
    idle = steady.step_ns - busy
    if busy > BUSY * steady.step_ns or median >= SHORT_NS:
        return
    yield Finding(
        line=costliest(steady.roots),
        do='torch.compile(..., mode="reduce-overhead"), or a CUDA graph: all launches of a step at once',
        evidence=(
            f"the GPU is busy for {busy / steady.step_ns:.0%} of a step; it runs {number:,.0f} kernels, "
            f"of {median / 1000:.1f} us in the median"
        ),
        cost_ns=idle,
        most_ns=idle,
    )
