"""Programs that run alone and recorded, and the ways that their ops took through the dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from op_samples import digest

import tracer
from tracer.trace.certificate.counts import in_words


def recorded(folder: Path, program: Callable[[], object]) -> pl.DataFrame:
    """The hops of `program`, which gives the same bytes alone, recorded, and alone again."""
    path = folder / "program.trace"
    alone = digest(program())
    with tracer.record(path, force=True):
        results = program()
    assert digest(results) == alone
    assert digest(program()) == alone
    return whole(tracer.load(path)).hops


def whole(trace: tracer.Trace, lacks: str = "") -> tracer.Trace:
    """The trace, of which nothing but what `lacks` names is missing, and no hop was left open or unnamed."""
    certificate = trace.certificate
    hops = f"{len(trace.hops):,} hops"
    expected = f"incomplete: {hops}; {lacks}" if lacks else f"complete: {hops}, nothing dropped"
    hidden = certificate["python_dispatched"]
    below = f"; {in_words(hidden, 'kernel')} below the Python dispatcher without a hop" if hidden else ""
    assert certificate["verdict"] == expected + below
    assert all(certificate["closed_in_order"].values()), certificate["closed_in_order"]
    assert certificate["unmatched_exits"] == 0
    assert certificate["unresolved_kernels"] == 0
    assert trace.hops["open"].sum() == 0
    return trace


def at(hops: pl.DataFrame, op: str, key: str | None = None) -> pl.DataFrame:
    """The hops of one operator, of one key or of all, in the order they were entered."""
    rows = pl.col("op").cast(pl.String) == op
    return hops.filter(rows if key is None else rows & (pl.col("key").cast(pl.String) == key))


def ways(hops: pl.DataFrame, op: str, key: str) -> list[list[str]]:
    """For each hop of `op` at `key` the hops from the outermost to it: `op [key]`, `-> ` if redispatched."""
    table = hops.select(pl.col("op", "key", "kind").cast(pl.String), "parent").rows()
    return [_way(table, row) for row in at(hops, op, key)["id"]]


def way(hops: pl.DataFrame, op: str, key: str) -> list[str]:
    """The only way that was taken to hops of `op` at `key`, however often."""
    taken = ways(hops, op, key)
    assert taken, f"no {op} [{key}]"
    assert all(each == taken[0] for each in taken), taken
    return taken[0]


def values(hops: pl.DataFrame, column: str) -> list[Any]:
    """A column as Python values, categories as text, without repetition."""
    texts = hops[column].cast(pl.String) if hops[column].dtype == pl.Categorical else hops[column]
    return texts.unique(maintain_order=True).to_list()


def _way(table: list[tuple[str, str, str, int | None]], row: int | None) -> list[str]:
    steps = []
    while row is not None:
        op, key, kind, row = table[row]
        steps.append(f"{'-> ' if kind == 'redispatch' else ''}{op} [{key}]")
    return steps[::-1]
