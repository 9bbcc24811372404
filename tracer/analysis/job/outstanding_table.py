"""Collectives that ranks wait for as a table, a row for each rank that is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from tracer.analysis.job.outstanding import Caller, Outstanding, Place

CALLER: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int64,
    "called_ns": pl.Int64,
    "waits": pl.String,
    "is_in": pl.Boolean,
    "op": pl.String,
    "line": pl.String,
    "since_ns": pl.Int64,
    "op_waits": pl.String,
    "op_group": pl.String,
    "op_range": pl.String,
    "op_next": pl.String,
}
"""A rank that called the collective: whether it waits there, and where it is"""
OUTSTANDING: dict[str, pl.DataType | type[pl.DataType]] = {
    "group": pl.String,
    "number": pl.Int64,
    "since_step": pl.Int64,
    "op": pl.String,
    "source": pl.String,
    "waiting": pl.List(pl.Int64),
    "longest_ns": pl.Int64,
    "shortest_ns": pl.Int64,
    "before": pl.Int64,
    "median_ns": pl.Int64,
    "most_ns": pl.Int64,
    "rank": pl.Int64,
    "is_in": pl.Boolean,
    "rank_op": pl.String,
    "rank_line": pl.String,
    "rank_since_ns": pl.Int64,
    "rank_waits": pl.String,
    "rank_group": pl.String,
    "rank_range": pl.String,
    "rank_next": pl.String,
    "callers": pl.List(pl.Struct(CALLER)),
}

_SAME = ("group", "number", "op", "longest_ns", "shortest_ns", "before", "median_ns", "most_ns")
_PLACE = (
    *("rank", "is_in", "rank_op", "rank_line", "rank_since_ns", "rank_waits", "rank_group"),
    *("rank_range", "rank_next"),
)


def outstanding_rows(found: Sequence[Outstanding], step: int | None) -> pl.DataFrame:
    """OUTSTANDING: a row for each rank that is missing in a collective."""
    rows = [
        {
            "group": of.group,
            "number": of.number,
            "since_step": step,
            "op": of.op,
            "source": of.line,
            "waiting": list(of.waiting),
            "longest_ns": of.longest_ns,
            "shortest_ns": of.shortest_ns,
            "before": of.before,
            "median_ns": of.median_ns,
            "most_ns": of.most_ns,
            "rank": place.rank,
            "is_in": place.is_in,
            "rank_op": place.op,
            "rank_line": place.line,
            "rank_since_ns": place.since_ns,
            "rank_waits": place.waits,
            "rank_group": place.group,
            "rank_range": place.within,
            "rank_next": place.next_line,
            "callers": [_row(caller) for caller in of.callers],
        }
        for of in found
        for place in of.missing
    ]
    return pl.DataFrame(rows, OUTSTANDING)


def outstanding_of(rows: pl.DataFrame) -> list[tuple[Outstanding, int | None]]:
    """Out of OUTSTANDING of a job, each with the step that calls are counted from."""
    found = []
    for own in rows.partition_by("group", "number", maintain_order=True):
        first = own.row(0, named=True)
        of = Outstanding(
            **{name: first[name] for name in _SAME},
            line=first["source"],
            waiting=tuple(first["waiting"]),
            missing=tuple(Place(*(row[name] for name in _PLACE)) for row in own.iter_rows(named=True)),
            callers=tuple(map(_caller, first["callers"])),
        )
        found.append((of, first["since_step"]))
    return found


def _row(caller: Caller) -> dict[str, Any]:
    place = caller.place
    return {
        "rank": caller.rank,
        "called_ns": caller.called_ns,
        "waits": caller.waits,
        "is_in": place.is_in,
        "op": place.op,
        "line": place.line,
        "since_ns": place.since_ns,
        "op_waits": place.waits,
        "op_group": place.group,
        "op_range": place.within,
        "op_next": place.next_line,
    }


def _caller(row: dict[str, Any]) -> Caller:
    names = ("rank", "is_in", "op", "line", "since_ns", "op_waits", "op_group", "op_range", "op_next")
    return Caller(row["rank"], row["called_ns"], row["waits"], Place(*(row[name] for name in names)))
