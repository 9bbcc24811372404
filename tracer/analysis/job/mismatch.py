"""Ranks that wait in different collectives of one group when their traces are dumped."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracer.analysis.job.lateness import NOISE_NS
from tracer.analysis.job.outstanding import ALL_RANKS, Place, places_of


@dataclass(frozen=True)
class Mismatch:
    """Call `number` of `group` is another op on some ranks, and all these ranks have called no op since.

    `ops` has each op, the line that called it, and its ranks. The first of them called `longest_ns` ago.
    `absent` has the ranks of the group that were dumped later and had not made this call, and where they are.
    """

    group: str
    number: int
    ops: tuple[tuple[str, str | None, tuple[int, ...]], ...]
    longest_ns: int
    shortest_ns: int
    absent: tuple[Place, ...] = ()


def waiting_calls(calls: pl.DataFrame, moments: pl.DataFrame) -> pl.DataFrame:
    """rank, group, number, op, source and ago_ns of each collective call after which its thread called no op.

    `calls` have their numbers; `moments` has rank and MOMENT.
    """
    ended = moments.drop_nulls("dumped_ns").select("rank", "dumped_ns", start_ns="waits_ns")
    ended = ended.explode("start_ns").drop_nulls("start_ns").unique()
    ago = (pl.col("dumped_ns") - pl.col("start_ns")).clip(lower_bound=0)
    return (
        calls.drop_nulls(["group", "number"])
        .join(ended, on=["rank", "start_ns"])
        .select("rank", "group", "number", "op", "source", ago_ns=ago)
    )


def mismatches(
    waiting: pl.DataFrame, counts: pl.DataFrame, moments: pl.DataFrame, whole: bool
) -> tuple[Mismatch, ...]:
    """The longest wait first. `waiting` is of `waiting_calls`; the rest as in job.outstanding.outstanding.

    A call that one rank has left is no mismatch: that rank did not wait for the other ones.
    """
    at = {row["rank"]: row for row in moments.drop_nulls(["dumped_ns", "offset_ns"]).iter_rows(named=True)}
    places = places_of(at, {}, counts, whole)
    dumped = {rank: row["dumped_ns"] + row["offset_ns"] for rank, row in at.items()}
    called = counts.drop_nulls("group").partition_by("group", as_dict=True)
    found = []
    for (group, number), rows in waiting.sort("rank").partition_by("group", "number", as_dict=True).items():
        of_group = called.get((group,), counts.clear())
        ranks = of_group.filter(pl.col("calls") > number)
        if rows["op"].n_unique() < 2 or len(rows) < len(ranks):
            continue
        ops = rows.group_by("op", "source", maintain_order=True).agg("rank")
        members = set(dumped if group == ALL_RANKS else of_group["rank"]) - set(ranks["rank"])
        times = [
            dumped[rank] - ago for rank, ago in rows.select("rank", "ago_ns").iter_rows() if rank in dumped
        ]
        absent = [
            places[rank]
            for rank in sorted(members & dumped.keys())
            if times and dumped[rank] - min(times) > NOISE_NS
        ]
        found.append(
            Mismatch(
                group=str(group),
                number=int(number),
                ops=tuple((op, line, tuple(own)) for op, line, own in ops.iter_rows()),
                longest_ns=int(rows["ago_ns"].max()),  # type: ignore[arg-type]
                shortest_ns=int(rows["ago_ns"].min()),  # type: ignore[arg-type]
                absent=tuple(absent),
            )
        )
    return tuple(sorted(found, key=lambda of: (-of.longest_ns, of.group)))
