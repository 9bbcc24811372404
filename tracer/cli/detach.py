"""`tracer detach`: end the recording that `tracer attach` began."""

from __future__ import annotations

from tracer.base.errors import RecordingError
from tracer.base.say import write
from tracer.cli.attach import Patience, Pid, end
from tracer.cli.common import USAGE, fail, progress, say


def detach(pid: Pid, timeout: Patience = 60.0) -> None:
    """End the recording that tracer attach began.

    The job continues as if tracer had never attached: each entry of the dispatch
    table is as it was, and the extension stays loaded but does nothing.

    \b
    Examples:
      tracer detach 4711
    """
    from tracer.attach import left
    from tracer.attach.session import Session

    closed = left.close_of(pid)
    try:
        summary = left.summary(*closed) if closed else end(Session(pid, timeout, progress))
    except RecordingError as error:
        closed = left.close_of(pid)  # it may have begun another program meanwhile
        if closed is None:
            fail(str(error), USAGE)
        summary = left.summary(*closed)
    except KeyboardInterrupt:
        fail(f"process {pid} was left as it was; if it is recorded, that goes on", USAGE)
    if closed:
        say(left.told(pid, closed[0]))
    write(summary)
