"""What the ranks of a job did on one clock, for a picture: steps, collectives, messages, and reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from tracer.analysis.fleet.merge import messages_of
from tracer.analysis.fleet.numbered import Numbered
from tracer.analysis.fleet.rank_tables import RankTables
from tracer.analysis.job.collectives import arrivals
from tracer.analysis.job.lateness import NOISE_NS, causes_of_each
from tracer.analysis.job.numbering import NEVER

MOST_RANKS = 16
MOST_STEPS = 20
MOST_CALLS = 30_000
"""Calls of collectives, and as many receives"""
MOST_CAUSES = 400
_ONE = ["group", "number"]


@dataclass(frozen=True)
class SideBySide:
    """Ranks, in order, and what they did from begin_ns to end_ns on the one clock.

    offsets         rank -> what is added to times of its trace
    ..._left_out    how many ranks, calls and receives more there are
    without_clock   the ranks that are not here, as their clock is not known
    all_steps       how many steps the job has; the picture has MOST_STEPS that follow each other
    steps           rank, step, phase, start_ns, end_ns
    meetings        a row for each collective: job.collectives.matched and why the last rank was late
                    (job.late_cause.CAUSE, its op as cause_op), if it is_late: by more than 20 us, and of
                    many one of the MOST_CAUSES latest. `last` is null if the calls are not matched;
                    `missing` are the ranks that had not reached it when they were dumped
    calls           rank, meeting (its row), start_ns (when the rank came), wait_ns, end_ns
    messages        rank (of the receiver) and the columns of job.messages.received
    """

    offsets: dict[int, int]
    begin_ns: int
    end_ns: int
    ranks_left_out: int
    without_clock: list[int]
    calls_left_out: int
    all_steps: int
    steps: pl.DataFrame
    meetings: pl.DataFrame
    calls: pl.DataFrame
    messages: pl.DataFrame


def side_by_side(parts: Sequence[RankTables], tables: Mapping[str, pl.DataFrame]) -> SideBySide:
    """`parts` are of one job, `tables` its merged ones."""
    known = tables["ranks"].drop_nulls(["rank", "offset_ns"])
    clocks = known.select("rank", "offset_ns")
    ranked = [part for part in parts if part.rank is not None]
    numbered = Numbered(ranked)
    chosen = _chosen(known)
    offsets = {rank: offset for rank, offset in clocks.iter_rows() if rank in chosen}
    messages = pl.concat(
        [
            pl.DataFrame(schema=_MESSAGES),
            *(
                found.with_columns(rank=pl.lit(part.rank, pl.Int64)).select(*_MESSAGES)
                for part, _, found in messages_of(ranked, numbered.as_written, clocks)
                if part.rank in chosen
            ),
        ]
    )
    steps = _steps([part for part in ranked if part.rank in chosen], offsets)
    first, last = _window(steps, tables["collectives"], messages)
    shown = steps.filter(pl.col("step").is_between(first, last)) if first is not None else steps
    calls = _calls(numbered, [place for place, part in enumerate(ranked) if part.rank in chosen], clocks)
    begin, end = _extent(shown, calls, messages, tables, offsets)
    calls = _within(_with_waits(calls, tables, end), "start_ns", begin, end)
    whole = pl.col("wait_ns").sum().over(_ONE)
    few = calls.sort(whole, *_ONE, descending=[True, False, False], maintain_order=True).head(MOST_CALLS)
    meetings = _meetings(few, tables, numbered, len(ranked), clocks)
    messages = _within(messages, "begin_ns", begin, end)
    length = pl.col("end_ns") - pl.col("begin_ns")
    few_messages = messages.sort(length, descending=True, maintain_order=True).head(MOST_CALLS)
    return SideBySide(
        offsets={rank: offsets[rank] for rank in sorted(offsets)},
        begin_ns=begin,
        end_ns=end,
        ranks_left_out=len(known) - len(offsets),
        without_clock=sorted({part.rank or 0 for part in ranked} - set(known["rank"])),
        calls_left_out=len(calls) - len(few) + len(messages) - len(few_messages),
        all_steps=steps["step"].n_unique(),
        steps=shown.sort("rank", "start_ns"),
        meetings=meetings,
        calls=few.join(meetings.select(*_ONE, "meeting"), on=_ONE)
        .select("rank", "meeting", "start_ns", "wait_ns", "end_ns")
        .sort("rank", "start_ns"),
        messages=few_messages.sort("rank", "begin_ns"),
    )


_NUMBERS = ("rank", "sender", "begin_ns", "end_ns", "sent_ns", "bytes", "step", "did_ns")
_TEXTS = ("received_at", "sent_at", "before", "after", "op", "text")
_MESSAGES: dict[str, pl.DataType | type[pl.DataType]] = {
    **dict.fromkeys(_NUMBERS, pl.Int64),
    **dict.fromkeys(_TEXTS, pl.String),
}
_STEPS = {"rank": pl.Int64, "step": pl.Int64, "phase": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}


def _chosen(ranks: pl.DataFrame) -> set[int]:
    """All ranks, or of many those for which others waited, and those that waited longest."""
    order = ["others_waited_ns", "waited_ns", "rank"]
    few = ranks.sort(order, descending=[True, True, False], nulls_last=True).head(MOST_RANKS)
    return set(few["rank"])


def _steps(parts: Sequence[RankTables], offsets: dict[int, int]) -> pl.DataFrame:
    rows = [part.placed("steps").select(*_STEPS) for part in parts]
    steps = pl.concat([pl.DataFrame(schema=_STEPS), *rows])
    shift = pl.col("rank").replace_strict(offsets, default=None, return_dtype=pl.Int64)
    return steps.with_columns(pl.col("start_ns", "end_ns") + shift).drop_nulls(["step", "start_ns", "end_ns"])


def _window(
    steps: pl.DataFrame, collectives: pl.DataFrame, messages: pl.DataFrame
) -> tuple[int | None, int | None]:
    """The first and last of at most MOST_STEPS steps: all, or those in which ranks waited longest."""
    numbers = steps["step"].unique().sort()
    if len(numbers) <= MOST_STEPS:
        return None, None
    steady = steps.filter(pl.col("phase") == "steady")["step"].unique().sort()
    numbers = steady if len(steady) >= MOST_STEPS else numbers
    length = pl.col("end_ns") - pl.col("begin_ns")
    waits = [collectives.select("step", "wait_ns"), messages.select("step", wait_ns=length)]
    by = pl.concat(waits).group_by("step").agg(pl.col("wait_ns").sum())
    sums = numbers.to_frame("step").join(by, on="step", how="left").sort("step")
    at = sums["wait_ns"].fill_null(0).rolling_sum(MOST_STEPS).arg_max()
    last = MOST_STEPS - 1 if at is None else at
    return sums["step"][last - MOST_STEPS + 1], sums["step"][last]


def _calls(numbered: Numbered, places: list[int], clocks: pl.DataFrame) -> pl.DataFrame:
    """Each collective call that has a group: came_ns, done_ns and left_ns (of the call) on the one clock."""
    of_ranks = [arrivals(numbered.calls(place, 0, NEVER), clocks) for place in places]
    return (
        pl.concat(of_ranks)
        .drop_nulls([*_ONE, "came_ns"])
        .with_columns(left_ns=pl.col("end_ns") + pl.col("offset_ns"))
    )


def _with_waits(calls: pl.DataFrame, tables: Mapping[str, pl.DataFrame], end: int) -> pl.DataFrame:
    """`calls` with start_ns, wait_ns (until `end`, if ranks were missing at a dump) and end_ns."""
    last = tables["collectives"].select(*_ONE, last_ns="came_ns")
    calls = calls.join(last, on=_ONE, how="left").join(_missing(tables), on=_ONE, how="left")
    until = pl.min_horizontal("last_ns", pl.col("done_ns").fill_null(pl.col("last_ns")))
    until = pl.when(pl.col("missing").is_not_null()).then(end).otherwise(until)
    wait = (until - pl.col("came_ns")).fill_null(0).clip(0)
    calls = calls.with_columns(start_ns="came_ns", wait_ns=wait)
    ends = pl.max_horizontal("done_ns", "left_ns", pl.col("start_ns") + pl.col("wait_ns"))
    return calls.with_columns(end_ns=ends.fill_null(end))


def _extent(
    steps: pl.DataFrame,
    calls: pl.DataFrame,
    messages: pl.DataFrame,
    tables: Mapping[str, pl.DataFrame],
    offsets: dict[int, int],
) -> tuple[int, int]:
    """From the first step to the last, and to the dump if ranks wait then; without steps, of all calls."""
    begins, ends = [steps["start_ns"]], [steps["end_ns"]]
    if steps.is_empty():
        begins = [calls["came_ns"], messages["begin_ns"]]
        ends = [*begins, calls["left_ns"], calls["done_ns"], messages["end_ns"]]
    if len(tables["outstanding"]):
        ends += [
            pl.Series([dumped + offsets[rank]])
            for rank, dumped in tables["ranks"].select("rank", "dumped_ns").drop_nulls().iter_rows()
            if rank in offsets
        ]
    return pl.concat(begins).min() or 0, pl.concat(ends).max() or 0  # type: ignore[return-value]


def _within(rows: pl.DataFrame, name: str, begin: int, end: int) -> pl.DataFrame:
    """Those that began in this time; ends beyond it are cut."""
    inside = rows.filter(pl.col(name).is_between(begin, end))
    return inside.with_columns(pl.col("end_ns").clip(upper_bound=end))


def _missing(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """group, number, missing: the ranks that did not reach it."""
    return tables["outstanding"].group_by(_ONE).agg(missing=pl.col("rank").unique().sort())


def _meetings(
    calls: pl.DataFrame,
    tables: Mapping[str, pl.DataFrame],
    numbered: Numbered,
    ranks: int,
    clocks: pl.DataFrame,
) -> pl.DataFrame:
    own = calls.group_by(_ONE).agg(
        pl.col("op", "source", "step", "bytes").first(), first_ns=pl.col("came_ns").min()
    )
    matched = tables["collectives"].drop("job")
    facts = ["ranks", "last", "came_ns", "late_ns", "wait_ns"]
    found = matched.join(own.select(_ONE), on=_ONE)
    late = found.filter(pl.col("late_ns") > NOISE_NS).sort("late_ns", descending=True).head(MOST_CAUSES)
    lines = (numbered.lines(place) for place in range(ranks))
    causes = (
        causes_of_each(late, matched, lines, clocks).rename({"op": "cause_op"}).with_columns(is_late=True)
    )
    names = ["op", "source", "step", "bytes"]
    last = found.select(*_ONE, *facts, *(pl.col(name).alias(f"last_{name}") for name in names))
    return (
        own.join(last, on=_ONE, how="left")
        .with_columns(pl.coalesce(f"last_{name}", name).alias(name) for name in names)
        .drop(f"last_{name}" for name in names)
        .join(causes, on=_ONE, how="left")
        .join(_missing(tables), on=_ONE, how="left")
        .sort("first_ns", *_ONE)
        .with_row_index("meeting")
        .with_columns(pl.col("meeting").cast(pl.Int64))
    )
