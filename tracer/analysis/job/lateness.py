"""Why a rank came last: the line in which it lost the time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracer.analysis.gaps import gaps_within
from tracer.analysis.job.collectives import NAMESPACE
from tracer.analysis.job.part import RankPart
from tracer.analysis.phases import ops_of
from tracer.analysis.source_lines import SourceLines

NOISE_NS = 20_000
_LEAST, _MOST = 0.25, 3.0  # of what a rank was late
_SHORT_NS = 1_000  # lines that took less in all of a window explain no lateness
_KEYS = ("before", "after", "op")
LINES: dict[str, pl.DataType | type[pl.DataType]] = {
    "group": pl.String,
    "number": pl.Int64,
    **dict.fromkeys((*_KEYS, "text"), pl.String),
    "total_ns": pl.Int64,
    "behind_group": pl.String,
    "behind_number": pl.Int64,
    "start_ns": pl.Int64,
}
LATE = {
    **dict.fromkeys(("rank", "times", "collectives", "median_ns", "total_ns"), pl.Int64),
    **dict.fromkeys(("at", *_KEYS), pl.String),
    "excess_ns": pl.Int64,
    "text": pl.String,
}


@dataclass(frozen=True)
class Lateness:
    """A rank that others waited for, in the steady steps; in all of them where none is steady.

    `times` is how many collectives it came last in by more than 20 us, of `collectives`; `median_ns` and
    `total_ns` are by how much, `at` is the line of most of them. `before` and `after` are the lines of the
    gap between two ops that took longer than on the other ranks, by `excess_ns` in all of its `times`, and
    `text` is the line `after`; `op` is set instead where an op of line `before` did. They are None where
    nothing on the host explains it: what took longer is less than a quarter of `total_ns`, or more than
    three times as much.
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
    excess_ns: int | None
    text: str | None


def late_ranks(
    collectives: pl.DataFrame, lines: Iterable[pl.DataFrame], clocks: pl.DataFrame
) -> pl.DataFrame:
    """LATE: a row for each rank that came last by more than 20 us, the longest wait first; see Lateness.

    `collectives` are those of collectives.matched; `lines` are LINES and a column rank, a table for each rank
    of the job, looked at one after the other.
    """
    steady = collectives.filter("steady")
    # The first one of a group ends what the ranks did before they knew each other: starting, importing.
    counted = steady if len(steady) else collectives.filter(pl.col("number") > 0)
    late = counted.filter(pl.col("late_ns") > NOISE_NS)
    rows = late.group_by(rank="last").agg(
        times=pl.len().cast(pl.Int64),
        collectives=pl.lit(len(counted), pl.Int64),
        median_ns=pl.col("late_ns").median().cast(pl.Int64),
        total_ns=pl.col("late_ns").sum(),
        at=pl.col("source").drop_nulls().mode().sort().first(),
    )
    rows = rows.join(_causes(late, _taken(late, collectives, lines, clocks)), on="rank", how="left")
    explains = pl.col("excess_ns").is_between(_LEAST * pl.col("total_ns"), _MOST * pl.col("total_ns"))
    causes = (*_KEYS, "excess_ns", "text")
    return (
        rows.with_columns(pl.when(explains).then(pl.col(name)) for name in causes)
        .select(pl.col(name).cast(kind) for name, kind in LATE.items())
        .sort("total_ns", "rank", descending=[True, False])
    )


def _taken(
    late: pl.DataFrame, collectives: pl.DataFrame, lines: Iterable[pl.DataFrame], clocks: pl.DataFrame
) -> pl.DataFrame:
    """What each rank's lines took before the collectives in which `last` was late.

    rank, last, before, after, op, text, taken_ns. Without the waits that are certain: behind a call that
    blocks, a gap begins with the wait until the last rank has come.
    """
    of_late = late.select("group", "number", "last")
    came = collectives.select(behind_group="group", behind_number="number", came_ns="came_ns")
    waited = (pl.col("came_ns") - pl.col("offset_ns") - pl.col("start_ns")).clip(0, pl.col("total_ns"))
    found = [pl.DataFrame(schema={"rank": pl.Int64, "last": pl.Int64, **LINES, "taken_ns": pl.Int64})]
    for of_rank in lines:
        rows = (
            of_rank.join(of_late, on=["group", "number"])
            .join(came, on=["behind_group", "behind_number"], how="left")
            .join(clocks.select("rank", "offset_ns"), on="rank", how="left")
            .with_columns(taken_ns=pl.col("total_ns") - waited.fill_null(0))
        )
        found.append(
            rows.group_by("rank", "last", *_KEYS).agg(pl.col("text").max(), pl.col("taken_ns").sum())
        )
    return pl.concat(found, how="diagonal").select("rank", "last", *_KEYS, "text", "taken_ns")


def _causes(late: pl.DataFrame, taken: pl.DataFrame) -> pl.DataFrame:
    """Of each late rank what took longest, over the mean of the others: rank, *_KEYS, text, excess_ns."""
    says = ~pl.all_horizontal(pl.col(*_KEYS).is_null())
    own = taken.filter((pl.col("rank") == pl.col("last")) & says)
    others = taken.filter(pl.col("rank") != pl.col("last"))
    ranks = late.group_by("last").agg(ranks=pl.col("ranks").max() - 1)
    sums = others.group_by("last", *_KEYS).agg(others_ns=pl.col("taken_ns").sum())
    return (
        own.join(ranks, on="last")
        .join(sums, on=["last", *_KEYS], how="left", nulls_equal=True)
        .with_columns(excess_ns=pl.col("taken_ns") - pl.col("others_ns").fill_null(0) // pl.col("ranks"))
        .sort("rank", "excess_ns", *_KEYS, descending=[False, True, False, False, False], nulls_last=True)
        .unique("rank", keep="first", maintain_order=True)
        .select("rank", *_KEYS, "text", "excess_ns")
    )


def lines_before(part: RankPart, calls: pl.DataFrame) -> pl.DataFrame:
    """LINES: what took a rank's time on the host since its call before, of any group, for each of its calls.

    `calls` are those of collectives.collectives_of. `before` and `after` are the lines of a gap between two
    ops; of an op they are its line and null. Times are in ns; `start_ns` is when a gap began behind a call in
    which its caller waits for all ranks, and `behind_group` and `behind_number` are of that call.
    """
    windows = _windows(calls)
    if windows.is_empty():
        return pl.DataFrame(schema=LINES)
    ops = _of_python(ops_of(part.trace, part.process))
    rows = pl.concat([_gaps(part, windows, ops), _ops(windows, ops)], how="diagonal")
    known = windows.select("window", "group", "number", "behind_group", "behind_number", "behind_end_ns")
    waits = pl.col("start_ns") == pl.col("behind_end_ns")
    behind = ("behind_group", "behind_number", "start_ns")
    table = (
        rows.join(known, on="window")
        .drop_nulls(["group", "number"])
        .with_columns(pl.when(waits).then(pl.col(name)) for name in behind)
        .group_by("group", "number", *_KEYS, *behind)
        .agg(pl.col("total_ns").sum())
        .filter(pl.col("total_ns") >= _SHORT_NS)
        .sort("group", "number", *_KEYS, *behind)
    )
    sources = SourceLines.of(part.trace)
    texts = {line: sources.text(line) or None for line in table["after"].unique().drop_nulls()}
    text = pl.col("after").replace_strict(texts, default=None, return_dtype=pl.String)
    return table.with_columns(text=text).select(pl.col(name).cast(kind) for name, kind in LINES.items())


def _windows(calls: pl.DataFrame) -> pl.DataFrame:
    """Of each call of a rank: group, number, and the time since its call before, in the order of time.

    behind_group, behind_number, behind_end_ns: of that call, if its caller waits in it; else null.
    """
    ordered = calls.sort("start_ns")
    blocked = pl.col("blocks").shift(1)
    return ordered.select(
        *("group", "number"),
        window=pl.int_range(pl.len(), dtype=pl.Int64),
        from_ns=pl.col("start_ns").shift(1).fill_null(0),
        until_ns="start_ns",
        behind_group=pl.when(blocked).then(pl.col("group").shift(1)),
        behind_number=pl.when(blocked).then(pl.col("number").shift(1)),
        behind_end_ns=pl.when(blocked).then(pl.col("end_ns").shift(1)),
    )


def _gaps(part: RankPart, windows: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """window, before, after, start_ns, total_ns: each gap, cut where a window ends.

    Calls of threads that run no Python are in gaps, too.
    """
    starts, ends = windows["from_ns"].to_numpy(), windows["until_ns"].to_numpy()
    whole = pl.DataFrame({"start_ns": [int(starts[0])], "end_ns": [int(ends[-1])]})
    gaps = gaps_within(part.trace, part.process, whole, ops)
    until = np.minimum(gaps["end_ns"].to_numpy(), ends[-1])
    begin = until - gaps["length"].to_numpy()
    first, behind = np.searchsorted(ends, begin, "right"), np.searchsorted(starts, until, "left")
    pieces = np.maximum(behind - first, 0)
    gap = np.repeat(np.arange(len(gaps)), pieces)
    window = np.arange(len(gap)) - np.repeat(np.cumsum(pieces) - pieces, pieces) + first[gap]
    piece_begin = np.maximum(begin[gap], starts[window])
    return gaps.select("before", "after")[gap].with_columns(
        window=pl.Series(window, dtype=pl.Int64),
        start_ns=pl.Series(piece_begin, dtype=pl.Int64),
        total_ns=pl.Series(np.minimum(until[gap], ends[window]) - piece_begin, dtype=pl.Int64),
    )


def _ops(windows: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """window, before, op, total_ns: each op that began in a window, but collectives, which wait."""
    return (
        ops.filter(~pl.col("op").str.starts_with(NAMESPACE))
        .sort("start_ns")
        .join_asof(windows.select("window", "from_ns", "until_ns"), left_on="start_ns", right_on="from_ns")
        .filter(pl.col("start_ns") < pl.col("until_ns"))
        .select("window", "op", before="line", total_ns=pl.col("end_ns") - pl.col("start_ns"))
    )


def _of_python(ops: pl.DataFrame) -> pl.DataFrame:
    """Without the ops of threads that run no Python, such as gloo's: they are no place in the script."""
    has_line = (pl.col("line").is_not_null().any().over("thread")) | pl.col("thread").is_null()
    found = ops.filter(has_line)
    return found if len(found) else ops  # recorded without lines
