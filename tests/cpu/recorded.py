"""Recording a function in a test, and looking at its hops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl

import tracer


def hops_of(folder: Path, run: Callable[[], object], **options: bool) -> pl.DataFrame:
    """The hops of one recorded call of `run`."""
    path = folder / "recorded.trace"
    with tracer.record(path, force=True, **options):
        run()
    return tracer.load(path).hops


def chain(hops: pl.DataFrame) -> list[tuple[str, str, str]]:
    """(op, key, kind) of each hop, in the order they were entered."""
    return list(hops.select(pl.col("op", "key", "kind").cast(pl.String)).iter_rows())


def keys_of(hops: pl.DataFrame) -> set[str]:
    return set(hops["key"].cast(pl.String))


def recorded_values(folder: Path, run: Callable[[], object], op: str) -> pl.DataFrame:
    """Hash, nan and infinite of the results of each call of `op`, in the order of the calls."""
    path = folder / "recorded.trace"
    with tracer.record(path, force=True, values="hash"):
        run()
    trace = tracer.load(path)
    calls = trace.hops.filter(pl.col("op").cast(pl.String) == op, pl.col("kind").cast(pl.String) == "call")
    return calls.select("id").join(trace.values, left_on="id", right_on="hop", maintain_order="left")
