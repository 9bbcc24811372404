"""Convolutions of tensors whose channels are not the innermost dimension."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from tracer.advice.experiments import Recorded
from tracer.advice.finding import LEAST, Finding
from tracer.advice.lines import costliest
from tracer.advice.steady import Steady, Tensor

looks_for = "convolutions in NCHW; on a GPU, cuDNN's kernels that bring tensors from one order into the other"
threshold = (
    "10 % of a step in such convolutions on a CPU, where only an experiment tells (so it is said with "
    "--measure only); 1 % in the kernels that reorder on a GPU"
)
needs: tuple[str, ...] = ("shapes", "sources", "scalars")

LEAST_ON_CPU = 0.1
MOST_CALLS = 4
_OPS = ("aten::convolution", "aten::convolution_backward")
_DO = "model.to(memory_format=torch.channels_last), and the input too"


def find(steady: Steady) -> Iterator[Finding]:
    calls = steady.calls.filter(pl.col("op").is_in(_OPS))
    calls = calls.filter(pl.col("inputs").is_in(steady.with_inputs(_is_nchw)))
    if steady.on_gpu:
        yield from _on_gpu(steady, calls)
    elif not calls.is_empty() and (cost := steady.usual_ns(calls)) >= LEAST_ON_CPU * steady.step_ns:
        hottest = steady.hottest(calls, MOST_CALLS)
        yield Finding(
            line=costliest(calls),
            do=_DO,
            evidence=f"{steady.a_step(len(calls)):,.0f} convolutions and their backward a step, all in NCHW",
            cost_ns=cost,
            most_ns=cost,
            hops=frozenset(calls["id"].to_list()),
            experiment=Recorded(*hottest, change="channels_last", to=""),
            needs_experiment=True,
        )


def _is_nchw(tensors: list[Tensor]) -> bool:
    images = [one for one in tensors[:2] if len(one.shape) == 4]
    return len(images) == 2 and all(one.stride is not None and one.stride[1] != 1 for one in images)


def _on_gpu(steady: Steady, calls: pl.DataFrame) -> Iterator[Finding]:
    reordering = steady.gpu.filter(
        pl.col("name").cast(pl.String).str.contains("(?i)nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw")
    )
    cost = steady.a_step(int((reordering["end_ns"] - reordering["start_ns"]).sum()))
    if reordering.is_empty() or cost < LEAST * steady.step_ns:
        return
    hops = reordering["hop"].drop_nulls().unique()
    yield Finding(
        line=costliest(steady.hops.filter(pl.col("id").is_in(hops.implode()))),
        do=_DO,
        evidence=f"{steady.a_step(len(reordering)):,.0f} kernels a step that only reorder tensors for cuDNN",
        cost_ns=cost,
        most_ns=max(cost, steady.gpu_ns_below(calls)),  # cuDNN has other kernels for that order
        hops=frozenset(hops.to_list()),
    )
