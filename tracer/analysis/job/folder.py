"""The traces of a folder as one job."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.analysis.job.ranks import Job, JobError, behind_path, job_of, lost_facts
from tracer.analysis.job.recordings import Recording, recordings
from tracer.base.progress import portion
from tracer.trace.bytes.start import start_of_file

if TYPE_CHECKING:
    from tracer.trace import Trace

_RANK = re.compile(r"(?:^|\.)rank0*(\d+)(?:\.(?:dump)?\d+)*\.trace(?:\.xz)?$")


def traces_in(folder: str | os.PathLike[str]) -> list[Path]:
    """The traces there, by name; a file is its own. Raises JobError if there is none.

    Dumps are left out beside their recording, or a later dump of it.
    """
    return [Path(next(filter(start_of_file, one.paths), one.paths[0])) for one in _recordings(folder)]


def _recordings(folder: str | os.PathLike[str]) -> list[Recording]:
    if Path(folder).is_file():
        return [Recording((str(folder),))]
    names = [str(path) for path in Path(folder).iterdir() if path.name.endswith((".trace", ".trace.xz"))]
    if not names:
        raise JobError(f"{folder} has no *.trace; record one a rank into it: tracer record -o DIR/ SCRIPT")
    return recordings(names, start_of_file)


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

    A trace that cannot be read is left out, and named in `unread`; instead of a dump an older one of its
    recording is used. Raises JobError if the others are no ranks of one job, TraceError or OSError if none
    can be read.
    """
    from tracer.trace import TraceError, load

    found = _recordings(folder)
    traces: list[Trace] = []
    unread = {path: why for one in found for path, why in one.mixed}
    left_out = {}
    failed: Exception | None = None
    for number, one in enumerate(found):
        for path in one.paths:
            try:
                with portion(number / len(found), (number + 1) / len(found)):
                    trace = load(path)
                if lost := lost_facts(trace):
                    raise TraceError(f"{path} {lost}")
            except (TraceError, OSError) as error:
                failed = error
                unread[path] = behind_path(str(getattr(error, "strerror", None) or error), path)
                continue
            traces.append(trace)
            left_out[path] = sum(one.left_out(path))
            break
    if failed is not None and not traces:
        raise failed
    job = job_of(traces)
    ranked = {id(part.trace) for part in job.parts}
    ranked |= {id(trace) for trace in traces if trace.path in job.unread}
    rankless = tuple(trace for trace in traces if id(trace) not in ranked)
    return replace(job, unread={**job.unread, **unread}, left_out=left_out, rankless=rankless)
