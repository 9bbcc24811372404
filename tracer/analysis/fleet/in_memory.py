"""The merged tables of a job whose traces are in memory."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from tracer.analysis.fleet.merge import merge
from tracer.analysis.fleet.partial import NO_RANK, partial_tables, parts_of, unread_tables
from tracer.analysis.fleet.rank_tables import UNKNOWN, InMemory
from tracer.analysis.job import Job, RankPart
from tracer.base.visible import printable


def merged_tables(job: Job, name: str) -> dict[str, pl.DataFrame]:
    """As analysis.fleet.merge has them; `name` is that of the job."""
    return merge(parts_in_memory(job, name))


def parts_in_memory(job: Job, name: str) -> list[InMemory]:
    """The partial tables of each trace, in the order of analysis.fleet.merge."""
    named = printable(name)

    def part_of(part: RankPart) -> InMemory:
        path = part.trace.path
        tables = partial_tables(part, part.trace, _named(path), job.left_out.get(path, 0))
        return InMemory(named, part.host or UNKNOWN, None if part.rank == NO_RANK else part.rank, tables)

    parts = [part_of(part) for part in job.parts]
    parts += [part_of(part) for trace in job.rankless for part in parts_of(trace)]
    parts += [
        InMemory(named, UNKNOWN, None, unread_tables(_named(path), printable(why)))
        for path, why in job.unread.items()
    ]
    order = [(of.rank is None, of.rank or 0, of.host, of.tables["ranks"]["trace"][0]) for of in parts]
    return [parts[place] for place in sorted(range(len(parts)), key=order.__getitem__)]


def _named(path: str) -> str:
    return printable(str(Path(path).absolute()))
