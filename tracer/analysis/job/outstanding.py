"""The collectives that some ranks wait for when their traces are dumped, as others did not reach them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from tracer.analysis.job.lateness import NOISE_NS
from tracer.analysis.job.part import RankPart
from tracer.analysis.last_ops import COLLECTIVES, last_ops

ALL_RANKS = "0"
"""torch's name of the group of all ranks"""
MOMENT: dict[str, pl.DataType | type[pl.DataType]] = {
    "dumped_ns": pl.Int64,
    "is_in": pl.Boolean,
    "op": pl.String,
    "op_ns": pl.Int64,
    "op_line": pl.String,
}
"""Where a rank was when its trace was dumped: see `moment`"""


@dataclass(frozen=True)
class Place:
    """A rank that did not reach the collective, and where it was instead.

    It was in `op`, which `line` called, for `since_ns`; or, if not `is_in`, had left that op and called no
    other one. `op` is None if it had called none.
    """

    rank: int
    is_in: bool
    op: str | None
    line: str | None
    since_ns: int


@dataclass(frozen=True)
class Outstanding:
    """A collective: the ranks `waiting` called it, those in `missing` had not when they were dumped.

    The first rank waits for `longest_ns`, the last one that came for `shortest_ns`, most of them at `line`.
    """

    group: str
    number: int
    op: str
    line: str | None
    waiting: tuple[int, ...]
    missing: tuple[Place, ...]
    longest_ns: int
    shortest_ns: int


def moment(part: RankPart) -> dict[str, Any]:
    """MOMENT: when the trace was dumped (null: it is no dump), and the op that the rank was in, or left last.

    Of its threads that call collectives, and the main thread: the one that did something last.
    """
    dumped = part.trace.certificate.get("dumped_ns")
    row: dict[str, Any] = {**dict.fromkeys(MOMENT), "dumped_ns": dumped}
    if dumped is None:
        return row
    hops = part.trace.hops.filter(pl.col("process") == part.process)
    main = part.trace.processes.filter(pl.col("process") == part.process)["pid"].to_list()
    calls = hops.filter(pl.col("op").cast(pl.String).str.contains(COLLECTIVES))["thread"].unique().to_list()
    threads = last_ops(hops.filter(pl.col("thread").is_in([*main, *calls])), dumped)
    if len(threads):
        last = threads.sort("is_in", "since_ns", descending=[True, False]).row(0, named=True)
        row |= {name: last[name] for name in ("is_in", "op")}
        row |= {"op_ns": dumped - last["since_ns"], "op_line": last["source"]}
    return row


def unreached(counts: pl.DataFrame, dumped: Iterable[int]) -> pl.DataFrame:
    """group, number and rank: the first collective of a group that these ranks had not called.

    `counts` is how many calls each rank has in a group: rank, group, calls. Only ranks of `dumped` may be
    missing: what another trace lacks says nothing about where its rank is.
    """
    ranks = sorted(dumped)
    members = pl.concat(
        [
            counts.drop_nulls("group").select("rank", "group", "calls"),
            pl.DataFrame(
                {"rank": ranks, "group": ALL_RANKS, "calls": 0},
                {"rank": pl.Int64, "group": pl.String, "calls": pl.Int64},
            ),
        ]
    )
    most = members.group_by("rank", "group").agg(pl.col("calls").max())
    last = most.group_by("group").agg(most=pl.col("calls").max())
    own = most.filter(pl.col("rank").is_in(ranks))
    return (
        own.filter(pl.col("calls") == pl.col("calls").min().over("group"))
        .join(last, on="group")
        .filter(pl.col("calls") < pl.col("most"))
        .select("group", number="calls", rank="rank")
        .sort("group", "rank")
    )


def outstanding(missing: pl.DataFrame, calls: pl.DataFrame, moments: pl.DataFrame) -> tuple[Outstanding, ...]:
    """Those that ranks wait for, in the order in which they explain each other.

    `missing` is of `unreached`; `calls` has its collectives (rank, group, number, op, source, start_ns);
    `moments` has rank, offset_ns (to the one clock) and MOMENT. A rank is missing only if it was dumped
    after another one called: without a common clock that is not known, and nothing is said.
    """
    at = {row["rank"]: row for row in moments.drop_nulls(["dumped_ns", "offset_ns"]).iter_rows(named=True)}
    found = []
    for (group, number), own in missing.partition_by("group", "number", as_dict=True).items():
        of_group = calls.filter((pl.col("group") == group) & (pl.col("number") == number)).sort("rank")
        waiting = [row for row in of_group.iter_rows(named=True) if row["rank"] in at]
        if not waiting or of_group["op"].n_unique() > 1:
            continue
        first = min(row["start_ns"] + at[row["rank"]]["offset_ns"] for row in waiting)
        places = [
            _place(at[rank])
            for rank in own["rank"]
            if rank in at and at[rank]["dumped_ns"] + at[rank]["offset_ns"] - first > NOISE_NS
        ]
        waits = [at[row["rank"]]["dumped_ns"] - row["start_ns"] for row in waiting]
        if places:
            lines = of_group["source"].drop_nulls().mode().sort()
            found.append(
                Outstanding(
                    group=str(group),
                    number=int(number),
                    op=waiting[0]["op"],
                    line=lines[0] if len(lines) else None,
                    waiting=tuple(row["rank"] for row in waiting),
                    missing=tuple(places),
                    longest_ns=max(waits),
                    shortest_ns=max(0, min(waits)),
                )
            )
    return tuple(sorted(found, key=lambda of: (_waits_itself(of, found), -of.longest_ns, of.group)))


def counts(calls: pl.DataFrame) -> pl.DataFrame:
    """How many numbered calls each rank has in each group that it called: rank, group, calls."""
    return calls.group_by("rank", "group").agg(calls=(pl.col("number").max() + 1).fill_null(0).cast(pl.Int64))


def to_match(counts: pl.DataFrame, found: Sequence[Outstanding], whole: bool) -> pl.DataFrame:
    """rank, calls: how many of them other ranks must have called too, so not those that are outstanding.

    If the job is `whole`, as no rank's trace is missing, a group that one rank called alone has no other one.
    """
    for of in found:
        reached = pl.when(pl.col("group") == of.group).then(of.number)
        counts = counts.with_columns(calls=pl.min_horizontal("calls", reached))
    if whole:
        alone = pl.col("group").is_not_null() & (pl.col("rank").n_unique().over("group") == 1)
        counts = counts.filter(~alone)
    return counts.group_by("rank").agg(pl.col("calls").sum()).sort("rank")


def without(collectives: pl.DataFrame, found: Sequence[Outstanding]) -> pl.DataFrame:
    """`collectives` (group, number) that all ranks reached: of the others nobody has come last."""
    for of in found:
        collectives = collectives.filter((pl.col("group") != of.group) | (pl.col("number") < of.number))
    return collectives


def _place(row: dict[str, Any]) -> Place:
    since = row["dumped_ns"] - row["op_ns"] if row["op_ns"] is not None else row["dumped_ns"]
    return Place(row["rank"], bool(row["is_in"]), row["op"], row["op_line"], since)


def _waits_itself(of: Outstanding, others: Sequence[Outstanding]) -> bool:
    """Whether each rank that is missing here waits in another collective: then that one is the reason."""
    return all(
        any(place.rank in other.waiting for other in others if other is not of) for place in of.missing
    )
