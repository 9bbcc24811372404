"""Collectives of many ranks: matched in blocks of their numbers, so never all calls are in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tracer.analysis.fleet.partial import RANK_CALLS
from tracer.analysis.job.clocks import Clocked, offsets
from tracer.analysis.job.collectives import CALLS, matched
from tracer.analysis.job.lateness import LEAST, MOST, NOISE_NS
from tracer.analysis.job.stuck import CallsOf

LATE = {
    "rank": pl.Int64,
    "times": pl.Int64,
    "collectives": pl.Int64,
    "median_ns": pl.Int64,
    "total_ns": pl.Int64,
    "at": pl.String,
    "before": pl.String,
    "after": pl.String,
    "op": pl.String,
    "excess_ns": pl.Int64,
}
_AT_ONCE = 1_000_000
"""Calls; each takes about 200 bytes while it is matched"""


@dataclass(frozen=True)
class Across:
    """Collectives of a job: see job.collectives.matched and job.clocks.offsets."""

    collectives: pl.DataFrame
    clocks: pl.DataFrame


def across(
    ranks: Sequence[Clocked], numbers: int, groups: int, calls_of: CallsOf, at_once: int = _AT_ONCE
) -> Across:
    """Matches the calls of these ranks.

    `numbers` is how many calls a group has at most, `groups` how many groups a rank is in at most, `at_once`
    how many calls may be in memory. The result does not depend on `at_once`, but for clocks of several
    hosts: they are compared by the first calls of each group, as many as fit.
    """
    block = max(1, at_once // max(1, len(ranks) * groups))

    def calls(first: int, end: int) -> pl.DataFrame:
        tables = [
            calls_of(place, first, end).select(
                pl.lit(of.rank, pl.Int64).alias("rank"), pl.lit(None, pl.UInt32).alias("hop"), *RANK_CALLS
            )
            for place, of in enumerate(ranks)
        ]
        return pl.concat(tables).select(list(CALLS))

    clocks = offsets(ranks, calls(0, min(block, numbers)))
    found = [matched(calls(first, first + block), clocks) for first in range(0, max(1, numbers), block)]
    return Across(pl.concat(found).sort("came_ns", "group", "number"), clocks)


def late_ranks(collectives: pl.DataFrame, lines: pl.DataFrame, all_lines: pl.DataFrame) -> pl.DataFrame:
    """LATE: a row for each rank that came last by more than 20 us, the longest wait first.

    `collectives` are those of `across`; `lines` are the partial tables `lines` of these ranks at least, with
    a column rank, `all_lines` their sum over all ranks: see fold.LINES, without other jobs. What a rank took
    longer for than the mean of the others (before, after, op, excess_ns) is over all collectives that count,
    and null where it does not explain the lateness: see job.lateness.Lateness.
    """
    steady = collectives.filter("steady")
    # The first one of a group ends what the ranks did before they knew each other: starting, importing.
    counted = steady if len(steady) else collectives.filter(pl.col("number") > 0)
    late = (
        counted.filter(pl.col("late_ns") > NOISE_NS)
        .group_by(rank="last")
        .agg(
            times=pl.len().cast(pl.Int64),
            collectives=pl.lit(len(counted), pl.Int64),
            median_ns=pl.col("late_ns").median().cast(pl.Int64),
            total_ns=pl.col("late_ns").sum(),
            at=pl.col("source").drop_nulls().mode().sort().first(),
        )
    )
    rows = late.join(_causes(lines, all_lines), on="rank", how="left")
    explained = pl.col("excess_ns").is_between(LEAST * pl.col("total_ns"), MOST * pl.col("total_ns"))
    return (
        rows.with_columns(
            pl.when(explained).then(pl.col(name)).otherwise(None)
            for name in ("before", "after", "op", "excess_ns")
        )
        .select(pl.col(name).cast(kind) for name, kind in LATE.items())
        .sort("total_ns", "rank", descending=[True, False])
    )


def _causes(lines: pl.DataFrame, all_lines: pl.DataFrame) -> pl.DataFrame:
    """Of each rank what took longest, over the mean of the others: rank, before, after, op, excess_ns."""
    keys = ["before", "after", "op"]
    others = pl.col("ranks_of_job") - 1
    mean = pl.when(others > 0).then((pl.col("sum_ns") - pl.col("total_ns")) // others).otherwise(None)
    return (
        lines.join(
            all_lines.select(*keys, "ranks_of_job", sum_ns="total_ns"), on=keys, how="left", nulls_equal=True
        )
        .select("rank", *keys, excess_ns=pl.col("total_ns") - mean)
        .sort("rank", "excess_ns", *keys, descending=[False, True, False, False, False], nulls_last=True)
        .unique("rank", keep="first", maintain_order=True)
    )
