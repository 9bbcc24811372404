"""A number of CPU threads that is not that of the cores."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from tracer.advice.experiments import Recorded
from tracer.advice.finding import Finding
from tracer.advice.lines import costliest
from tracer.advice.steady import Steady

looks_for = "a run with more or fewer CPU threads than cores"
threshold = (
    "5 % of a step in products and convolutions; with fewer threads than cores only with --measure: 11 of 12 "
    "programs gained nothing from more of them"
)
needs: tuple[str, ...] = ("shapes", "sources")

LEAST = 0.05
MOST_CALLS = 3
_OPS = tuple(f"aten::{name}" for name in ("linear", "matmul", "conv2d", "mm", "addmm", "bmm", "_softmax"))


def find(steady: Steady) -> Iterator[Finding]:
    threads, cores = steady.settings.get("threads"), steady.cores
    if steady.on_gpu or not isinstance(threads, int) or cores is None or threads == cores:
        return
    calls = steady.roots.filter(pl.col("op").is_in(_OPS))
    cost = steady.usual_ns(calls)
    if cost < LEAST * steady.step_ns:
        return
    yield Finding(
        line=costliest(calls),
        do=f"torch.set_num_threads({cores}): one thread a core",
        evidence=f"the run had {threads} thread{'' if threads == 1 else 's'} on {cores} cores",
        cost_ns=cost,
        most_ns=cost * (1 - threads / cores) if threads < cores else cost,
        hops=frozenset(calls["id"].to_list()),
        experiment=Recorded(*steady.hottest(calls, MOST_CALLS), change="threads", to=str(cores)),
        needs_experiment=threads < cores,
    )
