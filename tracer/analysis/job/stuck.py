"""What dumped ranks wait for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from tracer.analysis.job.mismatch import Mismatch, mismatches, waiting_calls
from tracer.analysis.job.numbering import NEVER
from tracer.analysis.job.outstanding import Outstanding, Unanswered, outstanding, unanswered, unreached

CallsOf = Callable[[int, int, int], pl.DataFrame]
"""The collective calls of a rank, those with numbers from a first one up to a last one, without it"""


@dataclass(frozen=True)
class Stuck:
    """As the properties of job.Job with these names."""

    outstanding: tuple[Outstanding, ...]
    mismatched: tuple[Mismatch, ...]
    unanswered: tuple[Unanswered, ...]


def stuck(
    calls_of: CallsOf,
    moments: pl.DataFrame,
    counts: pl.DataFrame,
    clocks: pl.DataFrame,
    collectives: pl.DataFrame,
    whole: bool,
) -> Stuck:
    """`moments` has rank and MOMENT, in the order of `calls_of`; the rest as in job.outstanding.outstanding.

    Of each rank only the calls that others lack are in memory, or the calls of one rank at a time.
    """
    ranks = list(enumerate(moments["rank"]))
    dumped = moments.drop_nulls("dumped_ns")["rank"].to_list()
    placed = moments.join(clocks, on="rank")
    missing = unreached(counts, dumped)
    numbers = missing["number"].unique().to_list()
    called = [calls_of(place, number, number + 1) for place, _ in ranks for number in numbers]
    waiting = outstanding(missing, pl.concat(called), placed, counts, collectives, whole) if called else ()
    waits = [
        waiting_calls(calls_of(place, 0, NEVER), moments.filter(pl.col("rank") == rank))
        for place, rank in ranks
        if rank in dumped
    ]
    mismatched = mismatches(pl.concat(waits), counts, placed, whole) if waits else ()
    explained = whole or waiting or mismatched
    return Stuck(waiting, mismatched, () if explained else unanswered(moments, counts))
