"""A copy of the trace as it is now, while the recording goes on: `tracer.dump()`, and SIGUSR2 in a ring."""

from __future__ import annotations

import os

from tracer.base import extension
from tracer.base.errors import RecordingError
from tracer.recording import naming


def dump(path: str | os.PathLike[str] | None = None) -> str:
    """Write what the running recording has, of all its processes, into a trace of its own; returns its path.

    The recording goes on. In a ring (`max_size`) that is the last window. `path` must not exist yet; None:
    the next RUN.dumpNNNN.trace beside it. Of these a process keeps `max_dumps`, the first and the newest,
    and removes the others. Raises RecordingError if no recording is running here, or if the file cannot be
    written.
    """
    native = extension.load()
    if native.recording() is None:
        raise RecordingError("no recording is running; begin one with tracer.start() or tracer record")
    given = "" if path is None else naming.absolute(path)
    try:
        return native.dump(given)
    except FileExistsError:
        raise RecordingError(f"{given or 'each name for a dump'} already exists; give another path") from None
    except OSError as error:
        shown = given or native.recording()
        raise RecordingError(f"cannot dump to {shown}: {error.strerror}; give another path") from None
