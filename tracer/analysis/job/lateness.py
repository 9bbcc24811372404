"""Which ranks came last, by how much, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import polars as pl

from tracer.analysis.job.late_cause import CAUSE, SUMS, Cause, cause_of
from tracer.analysis.job.lines_before import LINES

NOISE_NS = 20_000
LATE: dict[str, pl.DataType | type[pl.DataType]] = {
    **dict.fromkeys(("rank", "times", "collectives", "median_ns", "total_ns"), pl.Int64),
    "at": pl.String,
    **CAUSE,
}
_KEYS = ("rank", "last", "at", "before", "after", "op", "inputs", "kernel")


@dataclass(frozen=True, kw_only=True)
class Lateness(Cause):
    """A rank that others waited for, in the steady steps; in all of them where none is steady.

    `times` is how many collectives it came last in by more than 20 us, of `collectives`; `median_ns` and
    `total_ns` are by how much, `at` is the line of most of them.
    """

    rank: int
    times: int
    collectives: int
    median_ns: int
    total_ns: int
    at: str | None


def counted(collectives: pl.DataFrame) -> pl.DataFrame:
    """Those in which waiting counts: of the steady steps. Where none is steady, all but the first of a group:
    it ends what the ranks did before they knew each other: starting, importing.
    """
    steady = collectives.filter("steady")
    return steady if len(steady) else collectives.filter(pl.col("number") > 0)


def late_ranks(
    collectives: pl.DataFrame, lines: Iterable[pl.DataFrame], clocks: pl.DataFrame
) -> pl.DataFrame:
    """LATE: a row for each rank that came last by more than 20 us, the longest wait first; see Lateness.

    `collectives` are those of collectives.matched; `lines` are lines_before.LINES and a column rank, a table
    for each rank of the job, looked at one after the other.
    """
    of_these = counted(collectives)
    late = of_these.filter(pl.col("late_ns") > NOISE_NS)
    rows = late.group_by(rank="last").agg(
        times=pl.len().cast(pl.Int64),
        collectives=pl.lit(len(of_these), pl.Int64),
        median_ns=pl.col("late_ns").median().cast(pl.Int64),
        total_ns=pl.col("late_ns").sum(),
        at=pl.col("source").drop_nulls().mode().sort().first(),
        others=pl.col("ranks").max() - 1,
    )
    taken = _taken(late, collectives, lines, clocks).partition_by("last", as_dict=True)
    found = [row | asdict(_cause(taken.get((row["rank"],)), row)) for row in rows.iter_rows(named=True)]
    return pl.DataFrame(found, LATE, orient="row").sort("total_ns", "rank", descending=[True, False])


def causes_of_each(
    late: pl.DataFrame, collectives: pl.DataFrame, lines: Iterable[pl.DataFrame], clocks: pl.DataFrame
) -> pl.DataFrame:
    """group, number and CAUSE of each of the collectives `late`: as `late_ranks`, but each for itself."""
    keys = ("group", "number")
    taken = _taken(late, collectives, lines, clocks, keys).partition_by(keys, as_dict=True)
    rows = late.select(*keys, rank="last", total_ns="late_ns", others=pl.col("ranks") - 1)
    found = [
        {name: row[name] for name in keys} | asdict(_cause(taken.get((row["group"], row["number"])), row))
        for row in rows.iter_rows(named=True)
    ]
    return pl.DataFrame(found, {"group": pl.String, "number": pl.Int64, **CAUSE}, orient="row")


def _cause(taken: pl.DataFrame | None, row: dict[str, int]) -> Cause:
    if taken is None:
        return Cause()
    is_own = pl.col("rank") == row["rank"]
    return cause_of(taken.filter(is_own), taken.filter(~is_own), row["others"], row["total_ns"])


def _taken(
    late: pl.DataFrame,
    collectives: pl.DataFrame,
    lines: Iterable[pl.DataFrame],
    clocks: pl.DataFrame,
    each: tuple[str, ...] = (),
) -> pl.DataFrame:
    """What each rank did before the collectives in which `last` was late: `each`, _KEYS, text and SUMS.

    Without the waits that are certain: behind a call that blocks, a gap begins with the wait until the last
    rank has come.
    """
    of_late = late.select("group", "number", "last")
    came = collectives.select(behind_group="group", behind_number="number", came_ns="came_ns")
    waited = (pl.col("came_ns") - pl.col("offset_ns") - pl.col("start_ns")).clip(0, pl.col("total_ns"))
    keys = [*each, *_KEYS]
    found = [pl.DataFrame(schema={"rank": pl.Int64, "last": pl.Int64, **LINES, "taken_ns": pl.Int64})]
    for of_rank in lines:
        rows = (
            of_rank.join(of_late, on=["group", "number"])
            .join(came, on=["behind_group", "behind_number"], how="left")
            .join(clocks.select("rank", "offset_ns"), on="rank", how="left")
            .with_columns(taken_ns=pl.col("total_ns") - waited.fill_null(0))
        )
        found.append(rows.group_by(keys).agg(pl.col("text").max(), pl.col(SUMS).sum()))
    return pl.concat(found, how="diagonal").select(*keys, "text", *SUMS)
