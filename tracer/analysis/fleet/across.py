"""Collectives of many ranks: matched in blocks of their numbers, so never all calls are in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tracer.analysis.fleet.partial import RANK_CALLS
from tracer.analysis.job.clocks import Clocked, offsets
from tracer.analysis.job.collectives import CALLS, matched
from tracer.analysis.job.stuck import CallsOf

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
