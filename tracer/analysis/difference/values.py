"""Where two recordings with hashes of values part, and the first NaN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracer.analysis.source_lines import SourceLines

if TYPE_CHECKING:
    from tracer.trace import Trace

_UNSET = r"^aten::(new_)?empty|^aten::resize|^aten::set_"
"""Ops whose results have values that nobody has written yet; views of such are left out too"""


@dataclass(frozen=True)
class Place:
    """An op call: its id, and where it was made."""

    hop: int
    op: str
    line: str
    text: str
    step: int | None
    module: str | None


@dataclass(frozen=True)
class ValueDifference:
    """Of the op calls that both traces made in the same order.

    compared   how many of them returned values that were read in both
    first      the first one whose values differ, in each trace; None: none
    parted     where the order of op calls parts, in each trace (None: it ended); None: it never does
    nans       the first op call in each trace that returned a NaN
    """

    compared: int
    first: tuple[Place, Place] | None
    parted: tuple[Place | None, Place | None] | None
    nans: tuple[Place | None, Place | None]


def value_difference(before: Trace, after: Trace) -> ValueDifference | None:
    """None where one of them has no hashes."""
    if before.values.is_empty() or after.values.is_empty():
        return None
    calls = [_calls(trace) for trace in (before, after)]
    compared = 0
    differing: list[tuple[int, int, int]] = []
    parted: list[tuple[int | None, int | None]] = []
    for one, other in zip(*(_by_thread(side) for side in calls), strict=False):
        both = min(len(one), len(other))
        same = one["op"].head(both) == other["op"].head(both)
        until = both if same.all() else int(np.argmin(same.to_numpy()))
        if until < max(len(one), len(other)):
            parted.append((_row(one, until), _row(other, until)))
        left, right = one.head(until), other.head(until)
        known = (left["hash"].is_not_null() & right["hash"].is_not_null()).to_numpy()
        compared += int(known.sum())
        other_values = known & (left["hash"] != right["hash"]).fill_null(False).to_numpy()
        differing += [
            (int(left["end_ns"][place]), int(left["id"][place]), int(right["id"][place]))
            for place in np.flatnonzero(other_values).tolist()
        ]
    first = None
    if differing:  # the one that returned first: what is around it differs because of it
        _, one_id, other_id = min(differing)
        first = _place(before, one_id), _place(after, other_id)
    return ValueDifference(
        compared=compared,
        first=first,
        parted=_parted(before, after, parted),
        nans=(_first_nan(before), _first_nan(after)),
    )


def _calls(trace: Trace) -> pl.DataFrame:
    """The op calls of the first process that returned values which they wrote themselves."""
    hops = trace.hops.select(
        "id", "process", "thread", "kind", "end_ns", "start_ns", pl.col("op").cast(pl.String)
    )
    called = trace.values.join(hops, left_on="hop", right_on="id", how="inner", maintain_order="left")
    first = called["process"].min()
    return called.rename({"hop": "id"}).filter(
        (pl.col("process") == first)
        & (pl.col("kind").cast(pl.String) == "call")
        & ~pl.col("op").str.contains(_UNSET)
        & ~pl.col("view")
    )


def _by_thread(calls: pl.DataFrame) -> list[pl.DataFrame]:
    """One table a thread, in the order in which they began."""
    return calls.sort("start_ns").partition_by("thread", maintain_order=True)


def _row(calls: pl.DataFrame, place: int) -> int | None:
    return int(calls["id"][place]) if place < len(calls) else None


def _parted(
    before: Trace, after: Trace, parted: list[tuple[int | None, int | None]]
) -> tuple[Place | None, Place | None] | None:
    if not parted:
        return None
    one, other = parted[0]
    return (
        None if one is None else _place(before, one),
        None if other is None else _place(after, other),
    )


def _first_nan(trace: Trace) -> Place | None:
    """The op call that returned first with a NaN: those around it have it from there."""
    found = _calls(trace).filter(pl.col("nan").fill_null(False)).sort("end_ns").head(1)
    return _place(trace, int(found["id"][0])) if len(found) else None


def _place(trace: Trace, hop: int) -> Place:
    row = trace.hops.row(hop, named=True)
    sources = SourceLines.of(trace)
    source = row["source"]
    return Place(
        hop=hop,
        op=str(row["op"]),
        line=sources.name(source) if source else "",
        text=sources.text(source) if source else "",
        step=row["step"],
        module=row["module"],
    )
