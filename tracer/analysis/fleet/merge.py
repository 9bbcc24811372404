"""Merges the parts of all ranks: some of them in memory at a time, in an order that is always the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from tracer.analysis.fleet.across import across
from tracer.analysis.fleet.fold import KERNELS, OPS, STEPS, folded
from tracer.analysis.fleet.numbered import Numbered
from tracer.analysis.fleet.partial import unread_tables
from tracer.analysis.fleet.rank_tables import UNKNOWN, InMemory, RankTables
from tracer.analysis.job.collectives import CALLS, matched, waits
from tracer.analysis.job.lateness import LATE, counted, late_ranks
from tracer.analysis.job.messages import MESSAGES, STAGES, by_lines, received, stage
from tracer.analysis.job.numbering import NEVER
from tracer.analysis.job.outstanding import to_match, without
from tracer.analysis.job.outstanding_table import OUTSTANDING, outstanding_rows
from tracer.analysis.job.ranks import of_earlier_start
from tracer.analysis.job.stuck import stuck
from tracer.analysis.job.stuck_tables import MISMATCHED, UNANSWERED, mismatched_rows, unanswered_rows

_AT_ONCE = 64
"""Ranks whose tables are in memory together"""
_AS_THEY_ARE = ("groups", "memory", "overlap", "certificates")
_CLOCK = {"offset_ns": pl.Int64, "clock_error_ns": pl.Int64, "clock": pl.String}
_LATE = dict.fromkeys(("times_last", "others_waited_ns", "waited_ns", "calls_to_match"), pl.Int64)


@dataclass(frozen=True)
class _Rank:
    rank: int
    boot: str
    began_ns: int


def merge(parts: Sequence[RankTables], at_once: int = _AT_ONCE) -> dict[str, pl.DataFrame]:
    """The tables of all ranks; `parts`, at least one, by job, rank (unknown ones last), host and trace.

    ranks         a row for each rank, with its clock, in how many collectives it came last, how long the
                  others waited for it, how long it waited there, and how many of its collective calls have to
                  match (null: they cannot be counted): see analysis.job.outstanding.to_match
    ops, kernels, steps  a row for each op and key, device kernel, or step of a job: see analysis.fleet.fold
    groups, memory, overlap, certificates  the partial tables of all ranks
    collectives   a row for each collective of a job: see analysis.job.collectives.matched
    late          a row for each rank that others waited for: see analysis.job.lateness.late_ranks
    messages      a row for each pair of lines that sends and receives: see analysis.job.messages.MESSAGES
    stages        a row for each rank that sends or receives: see analysis.job.messages.STAGES
    outstanding   a row for each rank that had not reached a collective when it was dumped, and for which
                  others wait there: see analysis.job.outstanding.Outstanding
    mismatched    a row for each op, of ranks that wait in different collectives of one group
    unanswered    a row for each call in which dumped ranks probably wait for ranks that have no trace here
    """
    parts = _of_last_starts(parts)
    ranks = pl.concat([part.placed("ranks") for part in parts])
    jobs = [_job(job, own, at_once) for job, own in _by_job(parts).items()]
    merged = {name: pl.concat([job[name] for job in jobs]) for name in jobs[0]}
    of_ranks = merged.pop("of_ranks")
    ranks = ranks.join(of_ranks, on=["job", "rank"], how="left", maintain_order="left")
    return {
        "ranks": ranks,
        "ops": folded(_batches(parts, "ops", at_once), OPS),
        "kernels": folded(_batches(parts, "kernels", at_once), KERNELS),
        "steps": folded(map(_step_lengths, _batches(parts, "steps", at_once)), STEPS),
        **{name: pl.concat([part.placed(name) for part in parts]) for name in _AS_THEY_ARE},
        **merged,
    }


def _of_last_starts(parts: Sequence[RankTables]) -> list[RankTables]:
    """Of a job that was started again, a rank that its last start has no more counts as not read."""
    facts = [part.table("ranks").row(0, named=True) for part in parts]
    last: dict[str, int] = {}
    for part, fact in zip(parts, facts, strict=True):
        last[part.job] = max(last.get(part.job, 0), fact["restarts"] or 0)

    def kept(part: RankTables, fact: dict[str, Any]) -> RankTables:
        restarts = fact["restarts"]
        if part.rank is None or (restarts or 0) == last[part.job]:
            return part
        why = of_earlier_start(restarts or 0, last[part.job])
        return InMemory(part.job, UNKNOWN, None, unread_tables(fact["trace"], why))

    return [kept(part, fact) for part, fact in zip(parts, facts, strict=True)]


def _by_job(parts: Sequence[RankTables]) -> dict[str, list[RankTables]]:
    jobs: dict[str, list[RankTables]] = {}
    for part in parts:
        jobs.setdefault(part.job, []).append(part)
    return jobs


def _batches(parts: Sequence[RankTables], name: str, at_once: int) -> Iterator[pl.DataFrame]:
    for first in range(0, len(parts), at_once):
        yield pl.concat([part.placed(name) for part in parts[first : first + at_once]])


def _step_lengths(steps: pl.DataFrame) -> pl.DataFrame:
    return steps.with_columns(total_ns=pl.col("end_ns") - pl.col("start_ns"))


def _job(job: str, parts: list[RankTables], at_once: int) -> dict[str, pl.DataFrame]:
    """What is known of all ranks of a job together, and `of_ranks`: _CLOCK and _LATE of each."""
    ranked = [part for part in parts if part.rank is not None]
    tables = _of_ranks(ranked, at_once) if ranked else _of_no_rank()
    return {
        name: table.select(pl.lit(job, pl.String).alias("job"), pl.all()) for name, table in tables.items()
    }


def _of_no_rank() -> dict[str, pl.DataFrame]:
    nobody = pl.DataFrame(schema={"rank": pl.Int64, "offset_ns": pl.Int64})
    return {
        "messages": pl.DataFrame(schema=MESSAGES),
        "stages": pl.DataFrame(schema=STAGES),
        "collectives": matched(pl.DataFrame(schema=CALLS), nobody),
        "late": pl.DataFrame(schema=LATE),
        "outstanding": pl.DataFrame(schema=OUTSTANDING),
        "mismatched": pl.DataFrame(schema=MISMATCHED),
        "unanswered": pl.DataFrame(schema=UNANSWERED),
        "of_ranks": pl.DataFrame(schema={"rank": pl.Int64, **_CLOCK, **_LATE}),
    }


def _of_ranks(ranked: list[RankTables], at_once: int) -> dict[str, pl.DataFrame]:
    numbered = Numbered(ranked)
    ranks = [
        _Rank(part.rank or 0, fact["boot"], fact["began_ns"])
        for part, fact in zip(ranked, numbered.facts, strict=True)
    ]
    found = across(ranks, *_extent(ranked), numbered.calls)
    counts = numbered.counts()
    is_whole = len(ranked) >= max(*(fact["ranks"] or 0 for fact in numbered.facts), ranks[-1].rank + 1)
    waits_in = stuck(numbered.calls, numbered.moments(), counts, found.clocks, found.collectives, is_whole)
    waiting = waits_in.outstanding
    step = numbered.numbering.step
    calls = to_match(counts, waiting, is_whole).rename({"calls": "calls_to_match"})
    collectives = without(found.collectives, waiting)
    lines = (numbered.lines(place) for place in range(len(ranks)))
    late = late_ranks(collectives, lines, found.clocks)
    clocks = found.clocks.select("rank", "offset_ns", clock_error_ns="error_ns", clock="how")
    waited_ns: dict[int, int] = {}
    for place in range(len(ranks)):  # the calls of one rank are in memory at a time
        waited_ns |= waits(numbered.calls(place, 0, NEVER), found.clocks, counted(collectives))
    waited = pl.DataFrame(list(waited_ns.items()), {"rank": pl.Int64, "waited_ns": pl.Int64}, orient="row")
    times = late.select("rank", times_last="times", others_waited_ns="total_ns")
    of_ranks = (
        clocks.join(times, on="rank", how="left", maintain_order="left")
        .join(waited, on="rank", how="left", maintain_order="left")
        .join(calls, on="rank", how="left", maintain_order="left")
        .with_columns(
            pl.col("times_last", "others_waited_ns").fill_null(0),
            pl.when(pl.col("rank").is_in(list(numbered.numbering.begins))).then(
                pl.col("calls_to_match").fill_null(0)
            ),
        )
        .select("rank", *_CLOCK, *_LATE)
    )
    return {
        **_messages(ranked, numbered, found.clocks),
        "collectives": collectives,
        "late": late,
        "outstanding": outstanding_rows(waiting, step),
        "mismatched": mismatched_rows(waits_in.mismatched, step),
        "unanswered": unanswered_rows(waits_in.unanswered, step),
        "of_ranks": of_ranks,
    }


def _messages(ranked: list[RankTables], numbered: Numbered, clocks: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """`messages` and `stages`."""
    messages, stages = [pl.DataFrame(schema=MESSAGES)], [pl.DataFrame(schema=STAGES)]
    for part, calls, found in messages_of(ranked, numbered.as_written, clocks):
        rank = part.rank or 0
        messages.append(by_lines(rank, found))
        stages.append(stage(rank, calls, found, part.table("steps")))
    order = ["total_ns", "receiver", "sender", "received_at", "sent_at", "bytes"]
    return {
        "messages": pl.concat(messages).sort(order, descending=[True, *[False] * 5]),
        "stages": pl.concat(stages),
    }


def messages_of(
    ranked: Sequence[RankTables], as_written: bool, clocks: pl.DataFrame
) -> Iterator[tuple[RankTables, pl.DataFrame, pl.DataFrame]]:
    """Each rank that sends or receives, its calls, and what it received: see job.messages.

    Those of a rank and its peers are in memory at a time. `as_written`: see Numbered.
    """
    of_rank = {part.rank or 0: part for part in ranked}
    for part in ranked:
        calls = part.table("messages")
        if calls.is_empty():
            continue
        rank = part.rank or 0
        peers = sorted(of_rank.keys() & set(calls.filter(~pl.col("sends"))["peer"].drop_nulls()))
        # Where the first calls were overwritten, numbers are not those of the other rank.
        sends = (
            of_rank[peer].table("messages").with_columns(rank=pl.lit(peer, pl.Int64))
            for peer in peers
            if as_written
        )
        yield part, calls, received(rank, calls, sends, clocks)


def _extent(parts: list[RankTables]) -> tuple[int, int]:
    """The most calls of a group in a rank, and the most groups of a rank."""
    numbers = groups = 0
    for part in parts:
        sums = part.table("groups").drop_nulls("group").group_by("group").agg(pl.col("calls").sum())
        numbers, groups = max(numbers, int(sums["calls"].max() or 0)), max(groups, len(sums))  # type: ignore[arg-type]
    return numbers, groups
