"""The ranks of a job, out of one trace or of several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl

from tracer.analysis.job.clocks import offsets
from tracer.analysis.job.collectives import collectives_of, matched
from tracer.analysis.job.lateness import Lateness, late_ranks
from tracer.analysis.job.lines_before import lines_before
from tracer.analysis.job.mismatch import Mismatch
from tracer.analysis.job.numbering import Numbering, numbering, whole_from
from tracer.analysis.job.outstanding import (
    MOMENT,
    Outstanding,
    Unanswered,
    counts,
    moment,
    without,
)
from tracer.analysis.job.part import RankPart
from tracer.analysis.job.stuck import Stuck, stuck

if TYPE_CHECKING:
    from tracer.trace import Trace

_DAMAGE = ("dumped_ns", "damaged_chunks", "missing_chunks", "missing_bytes")


class JobError(ValueError):
    """These traces are no ranks of one job; the message says why."""


@dataclass(frozen=True)
class Job:
    """The ranks that were recorded, in order; `ranks` is how many the job has.

    `unread` says of each file of the folder that could not be read why, `left_out` of each trace how many
    dumps of its recording were not read, and `rankless` are the traces that do not say their rank. Of a job
    that was started again `parts` are of its last start, and the other traces are in `unread`.
    """

    parts: tuple[RankPart, ...]
    ranks: int
    unread: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    rankless: tuple[Trace, ...] = ()

    @property
    def missing(self) -> list[int]:
        """The ranks that no trace is of."""
        return sorted(set(range(self.ranks)) - {part.rank for part in self.parts})

    @cached_property
    def calls(self) -> pl.DataFrame:
        """Each collective call of each rank: see tracer.analysis.job.collectives.collectives_of.

        Numbers are those of `numbering`: null for a call before them.
        """
        return self.numbering.of(pl.concat([collectives_of(part) for part in self.parts]))

    @cached_property
    def numbering(self) -> Numbering:
        """From when on calls are counted: see tracer.analysis.job.numbering."""
        whole = {part.rank: whole_from(part) for part in self.parts}
        steps = {
            part.rank: part.trace.steps.filter(pl.col("process") == part.process)
            for part in self.parts
            if any(begin is not None for begin in whole.values())
        }
        return numbering(whole, steps)

    @cached_property
    def clocks(self) -> pl.DataFrame:
        """What is added to the times of each rank: see tracer.analysis.job.clocks.offsets."""
        return offsets(self.parts, self.calls)

    @cached_property
    def collectives(self) -> pl.DataFrame:
        """Each collective, matched across ranks: see tracer.analysis.job.collectives.matched.

        Those that a rank had not reached when it was dumped are left out: see `outstanding`.
        """
        return without(self._matched, self.outstanding)

    @cached_property
    def _matched(self) -> pl.DataFrame:
        return matched(self.calls, self.clocks)

    @property
    def outstanding(self) -> tuple[Outstanding, ...]:
        """The collectives that ranks waited for when they were dumped, the one that explains others first."""
        return self._stuck.outstanding

    @property
    def mismatched(self) -> tuple[Mismatch, ...]:
        """Of dumps: the calls at which ranks of a group wait in different collectives."""
        return self._stuck.mismatched

    @property
    def unanswered(self) -> tuple[Unanswered, ...]:
        """Of dumps, if traces of other ranks are not here: the calls for whose end ranks probably wait."""
        return self._stuck.unanswered

    @cached_property
    def _stuck(self) -> Stuck:
        whole = not self.missing
        return stuck(self._calls_of, self._moments, counts(self.calls), self.clocks, self._matched, whole)

    def _calls_of(self, place: int, first: int, end: int) -> pl.DataFrame:
        of_rank = pl.col("rank") == self.parts[place].rank
        return self.calls.filter(of_rank & pl.col("number").is_between(first, end, closed="left"))

    @cached_property
    def _moments(self) -> pl.DataFrame:
        rows = [
            {"rank": part.rank, **moment(part, self.calls.filter(pl.col("rank") == part.rank))}
            for part in self.parts
        ]
        return pl.DataFrame(rows, {"rank": pl.Int64, **MOMENT})

    @cached_property
    def lateness(self) -> tuple[Lateness, ...]:
        """Of each rank that made others wait, the longest wait first."""
        lines = (
            lines_before(part, self.calls.filter(pl.col("rank") == part.rank)).with_columns(
                rank=pl.lit(part.rank, pl.Int64)
            )
            for part in self.parts
        )
        found = late_ranks(self.collectives, lines, self.clocks)
        return tuple(Lateness(**row) for row in found.iter_rows(named=True))


def ranks_of(trace: Trace) -> list[RankPart]:
    """The ranks in one trace: none, one, or several where the job's launcher was recorded."""
    parts: list[RankPart] = []
    seen: set[tuple[int, int | None]] = set()
    for row in trace.processes.filter(pl.col("rank").is_not_null()).sort("process").iter_rows(named=True):
        if (row["rank"], row["restarts"]) in seen:  # a worker that a rank started
            continue
        seen.add((row["rank"], row["restarts"]))
        parts.append(
            RankPart(
                rank=row["rank"],
                ranks=row["ranks"] or 0,
                host=row["host"] or "",
                boot=row["boot"] or "",
                began_ns=trace.began_ns,
                process=row["process"],
                trace=trace,
                restarts=row["restarts"] or 0,
            )
        )
    return parts


def lost_facts(trace: Trace) -> str | None:
    """Why a cut or damaged trace cannot be used: it has lost its rank. None for each other trace."""
    lacks = any(trace.certificate.get(name) for name in _DAMAGE)
    if trace.environment or not lacks or not trace.processes["rank"].is_null().all():
        return None
    return "is cut or damaged: the part that says its rank and its host is lost"


def behind_path(words: str, path: str) -> str:
    """What an error says of a trace, as it is shown behind its path."""
    words = words.removeprefix(f"{path} ")
    return words.replace(f"cannot read {path}: ", "cannot read it: ").removesuffix(f": {path}")


def job_of(traces: Iterable[Trace]) -> Job:
    """The ranks in these traces. Raises JobError if there is none, or one is there twice."""
    found = [part for trace in traces for part in ranks_of(trace)]
    if not found:
        raise JobError("no trace says which rank it is of; start the job with torchrun, srun or mpirun")
    last = max(part.restarts for part in found)
    parts = sorted((part for part in found if part.restarts == last), key=lambda part: part.rank)
    read = {part.trace.path for part in parts}
    earlier = {
        part.trace.path: of_earlier_start(part.restarts, last)
        for part in found
        if part.trace.path not in read
    }
    for one, other in pairwise(parts):
        if one.rank == other.rank:
            raise JobError(
                f"{one.trace.path} and {other.trace.path} are both of rank {one.rank}; keep one job a folder"
            )
    return Job(tuple(parts), max(max(part.ranks, part.rank + 1) for part in parts), earlier)


def of_earlier_start(restarts: int, last: int) -> str:
    """Why a trace of a job that was started again is not read."""
    return (
        f"it is of start {restarts + 1:,} of the job, and start {last + 1:,} is read; to see start "
        f"{restarts + 1:,}, move its traces into a folder of their own"
    )
