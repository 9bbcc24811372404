"""What is done of one trace, in whichever process and on whichever machine."""

from __future__ import annotations

import io
from dataclasses import dataclass

import polars as pl

from tracer.analysis.fleet.partial import NO_RANK, partial_tables, parts_of, unread_tables
from tracer.analysis.fleet.rank_tables import UNKNOWN
from tracer.analysis.job.ranks import behind_path, lost_facts
from tracer.base.visible import printable
from tracer.fleet.traces import TraceFile, on_this_machine

_ROW_GROUP = 1 << 16


@dataclass(frozen=True)
class Task:
    """A trace to be analysed; `scratch` is the folder for a copy of what is not on this machine."""

    trace: TraceFile
    scratch: str | None = None


@dataclass(frozen=True)
class Part:
    """The tables of a rank, each a Parquet file.

    `rank` is null where the trace says none, or could not be read: then `error` says why. `restarts` is how
    often the job had been started before.
    """

    host: str
    rank: int | None
    tables: dict[str, bytes]
    error: str | None = None
    restarts: int = 0


def analyse(task: Task) -> list[Part]:
    """The ranks in a trace. Whatever goes wrong is the `error` of its one part: the other traces go on."""
    from tracer.trace import load

    local = task.trace.opened
    try:
        with on_this_machine(local, task.scratch) as local:
            trace = load(local)
            name = task.trace.path
            if lost := lost_facts(trace):
                return [unread(task.trace, lost)]
            return [
                Part(
                    host=part.host or UNKNOWN,
                    rank=None if part.rank == NO_RANK else part.rank,
                    tables={
                        table: parquet(rows)
                        for table, rows in partial_tables(part, trace, name, task.trace.dumps).items()
                    },
                    restarts=part.restarts,
                )
                for part in parts_of(trace)
            ]
    except MemoryError:
        return [unread(task.trace, "not enough memory to read it; use fewer processes: -j 1")]
    except Exception as error:
        return [
            unread(
                task.trace,
                behind_path(reason(error), printable(local)).replace(printable(local), task.trace.path),
            )
        ]


def unread(trace: TraceFile, error: str) -> Part:
    """The part of a trace that could not be read."""
    tables = unread_tables(trace.path, error)
    return Part(UNKNOWN, None, {name: parquet(rows) for name, rows in tables.items()}, error)


def reason(error: BaseException) -> str:
    """What an error says, on one line."""
    from tracer.fleet.fleet_errors import FleetError
    from tracer.trace import TraceError

    words = printable(" ".join(str(error).split()))
    if isinstance(error, TraceError | FleetError):
        return words
    if isinstance(error, OSError):
        return error.strerror or words
    return f"{type(error).__name__}: {words}"


def parquet(table: pl.DataFrame) -> bytes:
    """The same bytes for the same rows, however they came together."""
    file = io.BytesIO()
    table.rechunk().write_parquet(file, row_group_size=_ROW_GROUP, statistics=True)
    return file.getvalue()
