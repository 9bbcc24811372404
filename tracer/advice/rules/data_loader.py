"""A step that waits for its batch."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from tracer.advice.experiments import Sized, WorkerBatch
from tracer.advice.finding import Finding
from tracer.advice.lines import commonest
from tracer.advice.steady import Steady
from tracer.analysis.phases import OF_LOADERS

looks_for = "time in the data loader, between asking for a batch and having it"
threshold = (
    "5 % of a step; below 5 ms a batch with --measure only: a batch from a worker costs time too (3 ms where "
    "making it took 1.4 ms), so that workers made such a program slower"
)
needs: tuple[str, ...] = ("sources",)

LEAST = 0.05
CHEAP_NS = 5_000_000


def find(steady: Steady) -> Iterator[Finding]:
    ranges = steady.window(steady.trace.ranges)
    ranges = ranges.filter(pl.col("name").cast(pl.String).str.starts_with(OF_LOADERS))
    of_loader = pl.col("range").str.starts_with(OF_LOADERS)
    cost = steady.without_own(steady.parts["data_ns"], steady.hops.filter(of_loader))
    if ranges.is_empty() or cost < LEAST * steady.step_ns:
        return
    inside = steady.roots.filter(of_loader)
    line = commonest(inside["source"])
    calls = steady.a_step(len(inside))
    loaders = steady.trace.loaders.filter(pl.col("process") == steady.process)
    alone = ranges["name"].cast(pl.String).str.contains("SingleProcess").all()
    loaders = loaders.filter((pl.col("num_workers") == 0) == alone)
    settings = _settings(loaders)
    if alone:
        batch = _batch(steady, inside)
        yield Finding(
            line=line,
            do="DataLoader(..., num_workers=N): other processes make the batches while the step runs",
            evidence=f"the step waits for each batch, made by {calls:,.0f} op calls of the same process"
            f"{settings}",
            cost_ns=cost,
            most_ns=0.0 if steady.cores == 1 else cost,  # a worker can do nothing beside the step then
            hops=frozenset(inside["id"].to_list()),
            experiment=WorkerBatch(batch, steady.step_ns - cost) if batch else None,
            caveat="each worker wants a core",
            needs_experiment=cost < CHEAP_NS,
        )
    else:
        yield Finding(
            line=line,
            do=f"more workers{_than(loaders)}, or less work a row: DataLoader(..., num_workers=N, "
            "prefetch_factor=M)",
            evidence=f"the step waits for its workers{settings}",
            cost_ns=cost,
            most_ns=cost,
            hops=frozenset(inside["id"].to_list()),
        )


def _batch(steady: Steady, inside: pl.DataFrame) -> tuple[Sized, ...]:
    """The tensors of a batch: what the last stacks of a step make, which are the widest."""
    stacks = inside.filter((pl.col("step") == steady.steps[-1]) & (pl.col("op") == "aten::stack"))
    found: list[Sized] = []
    for inputs in stacks["inputs"].to_list():
        tensors = steady.tensors(inputs)
        if tensors:
            found.append(((len(tensors), *tensors[0].shape), tensors[0].dtype))
    rows = max((shape[0] for shape, _ in found), default=0)
    return tuple([one for one in found if one[0][0] == rows][-4:])


def _settings(loaders: pl.DataFrame) -> str:
    """`; it is DataLoader(num_workers=0, batch_size=32)`; "" for several, or if not recorded."""
    if len(loaders) != 1:
        return ""
    row = loaders.row(0, named=True)
    said = [f"{name}={row[name]}" for name in _SAID if row[name] is not None]
    return f"; it is DataLoader({', '.join(said)})"


_SAID = ("num_workers", "batch_size", "pin_memory", "prefetch_factor", "persistent_workers")


def _than(loaders: pl.DataFrame) -> str:
    """` than 2`: those that the loader with most of them has; "" if not recorded."""
    most = loaders["num_workers"].max()
    return f" than {most}" if isinstance(most, int) else ""
