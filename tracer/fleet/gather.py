"""Gathers the parts of many traces in a folder. What goes wrong with one trace stops no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from tracer.analysis.job.ranks import of_earlier_start
from tracer.fleet.parts import Kept, Parts
from tracer.fleet.traces import TraceFile
from tracer.fleet.work import Part, Task, unread


class Engine(Protocol):
    """Runs tracer.fleet.work.analyse for each task."""

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, list[Part]]]: ...


@dataclass
class Gathered:
    """How many traces were read, how many were known already, and why others could not be read."""

    read: int = 0
    known: int = 0
    errors: dict[str, str] = field(default_factory=dict)


def gather(
    parts: Parts,
    traces: Iterable[TraceFile],
    engine: Engine,
    scratch: str | None = None,
    say: Callable[[str], None] = lambda _: None,
    done: Callable[[TraceFile], None] = lambda _: None,
) -> Gathered:
    """Makes the parts of these traces, but for those whose parts are there already.

    If a dump cannot be read, the next older one of its recording is.

    Traces are taken from the iterable as engines have room for them; `done` is called after each one that was
    read, or could not be. `say` gets a line for each trace that could not be read, or whose rank another
    trace of the same job has: of two in one call that of the later start of the job is used, or the first one
    by path, else the newer call's.
    """
    found = Gathered()
    holders = _Holders(parts, say)

    again: list[TraceFile] = []

    def tasks(chosen: Iterable[TraceFile]) -> Iterator[Task]:
        for trace in chosen:
            known = parts.made(trace)
            if trace.error is not None:
                parts.forget(trace.path)
                not_read(trace, unread(trace, trace.error), trace.error)
            elif known:
                found.known += 1
                holders.keep(known)
            else:
                yield Task(trace, scratch)

    def not_read(trace: TraceFile, part: Part, error: str) -> None:
        parts.write(trace, part, 1)
        found.errors[trace.path] = error
        say(f"{trace.path}: {error}")

    while True:
        for task, made in engine.run(tasks(traces)):
            trace = task.trace
            parts.forget(trace.path)
            for part in made:
                error = part.error or holders.put(trace, part, len(made))
                if error is not None:
                    not_read(trace, part if part.error else unread(trace, error), error)
            if trace.instead and any(part.error for part in made):
                older, *others = trace.instead
                again.append(replace(older, instead=tuple(others)))
            found.read += trace.path not in found.errors
            done(trace)
        if not again:
            break
        traces, again = sorted(again, key=lambda trace: trace.path), []
    found.errors |= holders.displaced
    found.read -= len(holders.displaced)
    return found


class _Holders:
    """The trace that each rank of a job is read from."""

    def __init__(self, parts: Parts, say: Callable[[str], None]) -> None:
        self._parts = parts
        self._say = say
        self._held = {(of.job, of.rank): of for of in parts.all() if of.rank is not None}
        self._ours: set[str] = set()
        self.displaced: dict[str, str] = {}

    def keep(self, known: list[Kept]) -> None:
        self._ours.update(of.trace for of in known)

    def put(self, trace: TraceFile, part: Part, parts: int) -> str | None:
        """Writes a part, or says why another one is used."""
        self._ours.add(trace.path)
        if part.rank is None:
            self._parts.write(trace, part, parts)
            return None
        key = trace.job, part.rank
        before = self._held.get(key)
        if before is not None and before.trace != trace.path:
            if before.trace in self._ours:
                starts = int(before.table("ranks")["restarts"][0] or 0), part.restarts
                if (-starts[0], before.trace) < (-starts[1], trace.path):
                    return _both(before.trace, *key, *starts)
                self._parts.drop(before)
                self._displace(before, trace, *starts)
            else:
                self._parts.drop(before)
                self._say(
                    f"rank {part.rank} of job {trace.job} is now that of {trace.path}, not of {before.trace}"
                )
        self._held[key] = self._parts.write(trace, part, parts)
        return None

    def _displace(self, before: Kept, trace: TraceFile, restarts: int, last: int) -> None:
        error = _both(trace.path, before.job, before.rank, last, restarts)
        loser = TraceFile(before.trace, before.job, before.version)
        self._parts.write(loser, unread(loser, error), 1)
        self.displaced[before.trace] = error
        self._say(f"{before.trace}: {error}")


def _both(used: str, job: str, rank: int | None, last: int, restarts: int) -> str:
    """Why a trace is not used whose start of the job has `restarts` before it; that of `used` has `last`."""
    if restarts < last:
        return of_earlier_start(restarts, last)
    return f"rank {rank} of job {job} is in {used} too, which is used; keep one job a folder"
