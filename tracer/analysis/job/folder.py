"""The traces of a folder as one job."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from tracer.analysis.job.ranks import Job, JobError, job_of
from tracer.base.paths import dumps_left_out, is_dump, without_dumps
from tracer.base.progress import portion

_RANK = re.compile(r"(?:^|\.)rank0*(\d+)(?:\.(?:dump)?\d+)*\.trace(?:\.xz)?$")


def traces_in(folder: str | os.PathLike[str]) -> list[Path]:
    """The traces there, by name; a file is its own. Raises JobError if there is none.

    Dumps are left out beside their recording, or a later dump of it.
    """
    if Path(folder).is_file():
        return [Path(folder)]
    found = sorted(map(Path, without_dumps(_named_traces(folder))))
    if not found:
        raise JobError(f"{folder} has no *.trace; record one a rank into it: tracer record -o DIR/ SCRIPT")
    return found


def _named_traces(folder: str | os.PathLike[str]) -> list[str]:
    return [str(path) for path in Path(folder).iterdir() if path.name.endswith((".trace", ".trace.xz"))]


def trace_of_rank(folder: str | os.PathLike[str], rank: int) -> Path:
    """The trace whose name says that it is of this rank. Raises JobError if there is none, or two."""
    named = [(match, path) for path in traces_in(folder) if (match := _RANK.search(path.name))]
    found = [path for match, path in named if int(match[1]) == rank]
    if not named:
        raise JobError(f"no name of a trace in {folder} holds a rank; give the trace instead: {folder}/FILE")
    if not found:
        known = ", ".join(str(number) for number in sorted({int(match[1]) for match, _ in named}))
        raise JobError(f"no trace in {folder} is named after rank {rank}; there are ranks {known}")
    if len(found) > 1:
        raise JobError(f"{found[0]} and {found[1]} are both of rank {rank}; give one of them")
    return found[0]


def load_job(folder: str | os.PathLike[str]) -> Job:
    """The traces of a folder, a rank each or several; or one trace of several ranks.

    A trace that cannot be read is left out, and named in `unread`. Raises JobError if the others are no ranks
    of one job, TraceError or OSError if none can be read.
    """
    from tracer.trace import TraceError, load

    paths = traces_in(folder)
    traces, unread = [], []
    for number, path in enumerate(paths):
        with portion(number / len(paths), (number + 1) / len(paths)):
            try:
                traces.append(load(path))
            except (TraceError, OSError) as error:
                unread.append(str(error))
                if len(unread) == len(paths):
                    raise
    left = dumps_left_out(_named_traces(folder)) if Path(folder).is_dir() else {}
    older = sum(number for path, number in left.items() if is_dump(path))
    job = job_of(traces)
    return replace(job, unread=tuple(unread), dumps=sum(left.values()) - older, older_dumps=older)
