"""Ranks that wait in different collectives, or for ranks whose traces are not here, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import polars as pl

from tracer.analysis.job.mismatch import Mismatch
from tracer.analysis.job.outstanding import Place, Unanswered

_CALL: dict[str, pl.DataType | type[pl.DataType]] = {
    "group": pl.String,
    "number": pl.Int64,
    "since_step": pl.Int64,
    "op": pl.String,
    "source": pl.String,
    "ranks": pl.List(pl.Int64),
    "longest_ns": pl.Int64,
    "shortest_ns": pl.Int64,
}
_PLACE: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int64,
    "is_in": pl.Boolean,
    "op": pl.String,
    "line": pl.String,
    "since_ns": pl.Int64,
    "waits": pl.String,
    "group": pl.String,
    "within": pl.String,
    "next_line": pl.String,
}
MISMATCHED = _CALL | {"absent": pl.List(pl.Struct(_PLACE))}
"""A row for each op that ranks wait in at one call of a group; the times, and the ranks that called nothing
there, are those of the whole call"""
UNANSWERED = _CALL
"""A row for each call after which ranks called no op; group is null for send and recv"""


def mismatched_rows(found: Sequence[Mismatch], step: int | None) -> pl.DataFrame:
    """MISMATCHED; `step` is the one that calls are counted from."""
    rows = [
        (
            *(of.group, of.number, step, op, line, list(ranks), of.longest_ns, of.shortest_ns),
            [asdict(place) for place in of.absent],
        )
        for of in found
        for op, line, ranks in of.ops
    ]
    return pl.DataFrame(rows, MISMATCHED, orient="row")


def mismatched_of(rows: pl.DataFrame) -> list[tuple[Mismatch, int | None]]:
    """Out of MISMATCHED of a job, each with the step that calls are counted from."""
    found = []
    for own in rows.partition_by("group", "number", maintain_order=True):
        first = own.row(0, named=True)
        ops = tuple((op, line, tuple(ranks)) for op, line, ranks in own["op", "source", "ranks"].iter_rows())
        absent = tuple(Place(**place) for place in first["absent"])
        times = first["longest_ns"], first["shortest_ns"]
        of = Mismatch(first["group"], first["number"], ops, *times, absent)
        found.append((of, first["since_step"]))
    return found


def unanswered_rows(found: Sequence[Unanswered], step: int | None) -> pl.DataFrame:
    """UNANSWERED; `step` is the one that calls are counted from."""
    rows = [
        (of.group, of.number, step, of.op, of.line, list(of.ranks), of.longest_ns, of.shortest_ns)
        for of in found
    ]
    return pl.DataFrame(rows, UNANSWERED, orient="row")


def unanswered_of(rows: pl.DataFrame) -> list[tuple[Unanswered, int | None]]:
    """Out of UNANSWERED of a job, each with the step that calls are counted from."""
    return [
        (Unanswered(tuple(ranks), op, line, group, number, longest, shortest), step)
        for group, number, step, op, line, ranks, longest, shortest in rows.select(
            list(UNANSWERED)
        ).iter_rows()
    ]
