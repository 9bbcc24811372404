"""What the recorded runs of a script say of one side: times of whole runs, and of each operator's calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from tracer.compare.chains import Chain, ChainTables
from tracer.trace import Trace

Key = tuple[str, str]
"""An operator, and the tensors that it was given as text"""
MOST_CHAINS = 10


@dataclass
class OfCalls:
    """The calls with one key in all runs. Lists have an element a run.

    median    ns of a call
    total     ns of all calls
    gpu       ns on the GPU of all calls
    count     of the last run
    chains    the most frequent chain, and how many calls became another one; of few keys
    """

    median: list[float] = field(default_factory=list)
    total: list[float] = field(default_factory=list)
    gpu: list[float] = field(default_factory=list)
    count: int = 0
    chains: list[tuple[Chain, int]] = field(default_factory=list)

    def usual(self) -> tuple[Chain, int]:
        """The chain of the last run, with each line's median over the runs that had the same one."""
        last, others = self.chains[-1]
        links = last.links
        same = [chain.nodes["median_ns"].to_numpy() for chain, _ in self.chains if chain.links == links]
        times = pl.Series(np.median(np.array(same, float), axis=0)).round().cast(pl.Int64)
        return replace(last, nodes=last.nodes.with_columns(median_ns=times)), others


@dataclass
class Side:
    """The runs of one side, in ns, in order; `trace` is that of the last one.

    `calls` is the usual time of the overrides' operators: number of calls x median of a call, over all keys.
    """

    trace: Trace | None = None
    elapsed: list[float] = field(default_factory=list)
    in_ops: list[float] = field(default_factory=list)
    gpu: list[float] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)
    calls_gpu: list[float] = field(default_factory=list)
    by_key: dict[Key, OfCalls] = field(default_factory=dict)

    @property
    def longest(self) -> list[Key]:
        """The keys whose calls took the most time in the last run."""
        return sorted(self.by_key, key=lambda key: -self.by_key[key].total[-1])[:MOST_CHAINS]


def side_of(traces: Iterable[Trace], operators: Sequence[str], chosen: list[Key] | None = None) -> Side:
    """`traces`: of the runs, in order; one is kept at a time.

    `chosen`: the keys whose chains are kept; None: those with the most time in the first run."""
    side = Side()
    for run, trace in enumerate(traces, 1):
        side.trace = trace
        hops, activities = trace.hops, trace.gpu_activities
        outermost = hops.filter(pl.col("parent").is_null())
        elapsed = int(hops["end_ns"].max() or 0) - int(hops["start_ns"].min() or 0)  # type: ignore[arg-type]
        side.elapsed.append(float(elapsed))
        side.in_ops.append(float((outermost["end_ns"] - outermost["start_ns"]).sum()))
        side.gpu.append(float((activities["end_ns"] - activities["start_ns"]).sum()))
        tables = ChainTables(trace)
        calls = tables.calls(operators).partition_by("op", "inputs", as_dict=True)
        keys = {(str(op), str(inputs)): of_key for (op, inputs), of_key in calls.items()}
        _add(side, keys, run)
        chosen = side.longest if chosen is None else chosen
        for key in set(chosen) & keys.keys():
            side.by_key[key].chains.append(_usual(tables, keys[key]))
    return side


def _add(side: Side, keys: dict[Key, pl.DataFrame], run: int) -> None:
    usual, on_gpu = 0.0, 0.0
    for key, calls in keys.items():
        of = side.by_key.setdefault(key, OfCalls())
        of.count = len(calls)
        of.median.append(float(calls["duration_ns"].median()))  # type: ignore[arg-type]
        of.total.append(float(calls["duration_ns"].sum()))
        of.gpu.append(float(calls["gpu_ns"].sum()))
        usual += of.count * of.median[-1]
        on_gpu += of.gpu[-1]
    for key in side.by_key.keys() - keys.keys():
        del side.by_key[key]  # not in each run
    for key in [key for key, of in side.by_key.items() if len(of.total) < run]:
        del side.by_key[key]
    side.calls.append(usual)
    side.calls_gpu.append(on_gpu)


def _usual(tables: ChainTables, calls: pl.DataFrame) -> tuple[Chain, int]:
    """The most frequent chain, with times of all calls that became it, and how many became another one."""
    structures = calls.group_by("structure", maintain_order=True).agg("place")
    places = structures.sort(pl.col("place").list.len(), descending=True, maintain_order=True)["place"][0]
    return tables.of_calls(places.to_list()), len(calls) - len(places)
