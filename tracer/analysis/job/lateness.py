"""Why a rank came last: the line in which it lost the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from tracer.analysis.gaps import gaps_within
from tracer.analysis.job.collectives import NAMESPACE
from tracer.analysis.job.part import RankPart
from tracer.analysis.phases import ops_of

NOISE_NS = 20_000
LEAST, MOST = 0.25, 3.0  # of what a rank was late


@dataclass(frozen=True)
class Lateness:
    """A rank that others waited for, in the steady steps; in all of them where none is steady.

    `times` is how many collectives it came last in by more than 20 us, of `collectives`; `median_ns` and
    `total_ns` are by how much, `at` is the line of most of them. `before` and `after` are the lines of the
    gap between two ops that took longer than on the other ranks, by `excess_ns` in all of its `times`; `op`
    is set instead where an op of line `before` did. They are None where nothing on the host explains it: what
    took longer is less than a quarter of `total_ns`, or more than three times as much.
    """

    rank: int
    times: int
    collectives: int
    median_ns: int
    total_ns: int
    at: str | None
    before: str | None
    after: str | None
    op: str | None
    excess_ns: int


def lateness(
    parts: Sequence[RankPart], calls: pl.DataFrame, collectives: pl.DataFrame, clocks: pl.DataFrame
) -> tuple[Lateness, ...]:
    """Of each rank that came last by more than 20 us, the longest wait of the others first."""
    steady = collectives.filter("steady")
    # The first one of a group ends what the ranks did before they knew each other: starting, importing.
    looked_at = steady if len(steady) else collectives.filter(pl.col("number") > 0)
    late = looked_at.filter(pl.col("late_ns") > NOISE_NS)
    found = []
    for (rank,), of_rank in late.partition_by("last", as_dict=True, maintain_order=True).items():
        total = int(of_rank["late_ns"].sum())
        cause = _cause(parts, windows_of(calls), of_rank, int(rank), total)
        if cause is None:  # on the others the same gap may be the wait for this rank, and so be as long
            cause = _cause(parts, windows_after_waits(calls, collectives, clocks), of_rank, int(rank), total)
        cause = cause or {"before": None, "after": None, "op": None, "excess_ns": 0}
        modes = of_rank["source"].drop_nulls().mode(maintain_order=True)
        found.append(
            Lateness(
                rank=int(rank),
                times=len(of_rank),
                collectives=len(looked_at),
                median_ns=int(of_rank["late_ns"].median() or 0),  # type: ignore[arg-type]
                total_ns=total,
                at=modes[0] if len(modes) else None,
                **cause,
            )
        )
    return tuple(sorted(found, key=lambda of: -of.total_ns))


def _cause(
    parts: Sequence[RankPart], windows: pl.DataFrame, late: pl.DataFrame, rank: int, total_ns: int
) -> dict[str, Any] | None:
    """What took longest on `rank` in the windows before these collectives, if that explains `total_ns`."""
    causes = _excesses(parts, windows, late, rank)
    cause = causes.row(0, named=True) if len(causes) else None
    if cause is None or not LEAST * total_ns <= cause["excess_ns"] <= MOST * total_ns:
        return None
    return cause


def _excesses(
    parts: Sequence[RankPart], windows: pl.DataFrame, late: pl.DataFrame, rank: int
) -> pl.DataFrame:
    """What took longer on `rank` than on the others before these collectives, most first.

    before, after, op, excess_ns. The time before a collective is its window.
    """
    keys = ["before", "after", "op"]
    windows = windows.join(late.select("group", "number"), on=["group", "number"], how="semi")
    found = []
    for part in parts:
        of_rank = windows.filter(pl.col("rank") == part.rank).select("start_ns", "end_ns")
        if len(of_rank):
            found.append(spent(part, of_rank).with_columns(rank=pl.lit(part.rank, pl.Int64)))
    if not found:
        return pl.DataFrame(schema={**dict.fromkeys(keys, pl.String), "excess_ns": pl.Int64})
    table = pl.concat(found)
    own = table.filter(pl.col("rank") == rank)
    ranks = table.filter(pl.col("rank") != rank)["rank"].n_unique()
    if not ranks:
        return own.clear().select(*keys, excess_ns="total_ns")
    others = (
        table.filter(pl.col("rank") != rank).group_by(keys).agg(others_ns=pl.col("total_ns").sum() // ranks)
    )
    return (
        own.join(others, on=keys, how="left", nulls_equal=True)
        .select(*keys, excess_ns=pl.col("total_ns") - pl.col("others_ns").fill_null(0))
        .sort("excess_ns", descending=True)
    )


def windows_of(calls: pl.DataFrame) -> pl.DataFrame:
    """Of each rank's call: rank, group, number, and the time since its call before, of any group."""
    return calls.sort("rank", "start_ns").select(
        "rank",
        "group",
        "number",
        start_ns=pl.col("start_ns").shift(1).over("rank").fill_null(0),
        end_ns="start_ns",
    )


def windows_after_waits(calls: pl.DataFrame, collectives: pl.DataFrame, clocks: pl.DataFrame) -> pl.DataFrame:
    """As `windows_of`, from the moment on when the last rank had come to the call before.

    Only of collectives before which every rank certainly waited for that: each one's call before blocks its
    caller until all have come. An asynchronous one does not: what runs beside it is no wait.
    """
    came = collectives.select("group", "number", "came_ns")
    before = ("group", "number", "blocks")
    windows = (
        calls.sort("rank", "start_ns")
        .select(
            *("rank", "group", "number"),
            *(pl.col(name).shift(1).over("rank").alias(f"{name}_before") for name in before),
            end_ns="start_ns",
        )
        .join(clocks.select("rank", "offset_ns"), on="rank")
        .join(came, left_on=["group_before", "number_before"], right_on=["group", "number"], how="left")
        .with_columns(start_ns=pl.col("came_ns") - pl.col("offset_ns"))
    )
    certain = (pl.col("blocks_before") & pl.col("start_ns").is_not_null()).fill_null(False)
    return windows.filter(certain.all().over("group", "number")).select(
        "rank", "group", "number", "start_ns", "end_ns"
    )


def spent(part: RankPart, windows: pl.DataFrame) -> pl.DataFrame:
    """Time of a rank in these windows: gaps by the lines around them, and ops by their line."""
    found = _of_python(ops_of(part.trace, part.process))
    gaps = gaps_within(part.trace, part.process, windows, found)
    of_gaps = gaps.group_by("before", "after").agg(total_ns=pl.col("length").sum())
    # A collective that waits is not what made a rank late.
    ops = found.filter(~pl.col("op").str.starts_with(NAMESPACE)).sort("start_ns")
    inside = ops.join_asof(
        windows.sort("start_ns").rename({"start_ns": "from_ns", "end_ns": "until_ns"}),
        left_on="start_ns",
        right_on="from_ns",
    ).filter(pl.col("start_ns") < pl.col("until_ns"))
    of_ops = inside.group_by(before="line", op="op").agg(
        total_ns=(pl.col("end_ns") - pl.col("start_ns")).sum()
    )
    columns = ("before", "after", "op", "total_ns")
    return pl.concat(
        [
            of_gaps.with_columns(op=pl.lit(None, pl.String)).select(columns),
            of_ops.with_columns(after=pl.lit(None, pl.String)).select(columns),
        ]
    )


def _of_python(ops: pl.DataFrame) -> pl.DataFrame:
    """Without the ops of threads that run no Python, such as gloo's: they are no place in the script."""
    has_line = (pl.col("line").is_not_null().any().over("thread")) | pl.col("thread").is_null()
    found = ops.filter(has_line)
    return found if len(found) else ops  # recorded without lines
