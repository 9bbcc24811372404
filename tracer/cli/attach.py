"""`tracer attach`: record a job that already runs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracer.base.errors import RecordingError
from tracer.base.say import write
from tracer.base.visible import visible
from tracer.cli.common import USAGE, exclusive, fail, progress, say
from tracer.cli.recorded import recording_options, reserved
from tracer.recording import naming
from tracer.recording import output as outputs
from tracer.recording.options import Options

if TYPE_CHECKING:
    from tracer.attach.process import Process
    from tracer.attach.session import Session
    from tracer.attach.ticket import Ticket

_STEM = 200  # bytes of the name of a script in that of its trace
Pid = Annotated[int, typer.Argument(metavar="PID", min=1, help="The process: pgrep -a python.")]
Patience = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        help="Give up if the process does not answer until then.",
    ),
]


@recording_options("attach")
def attach(
    pid: Pid,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The trace (default: SCRIPT.NNNN.trace), or DIR/. %r: rank, %p: PID, %h: host.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.")] = False,
    seconds: Annotated[
        float | None,
        typer.Option(metavar="N", min=0.001, help="Record for N seconds, then detach."),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Record the next N whole steps, then detach.",
        ),
    ] = None,
    timeout: Patience = 60.0,
    **given: Any,
) -> None:
    """Record a running job that was started without tracer.

    gdb stops the job for some milliseconds (from Python 3.14 on no gdb is needed).
    Its results stay the same. With --seconds or --steps this command waits and ends
    the recording. Without them tracer detach ends it.

    \b
    Examples:
      tracer attach 4711 --seconds 10
      tracer attach 4711 --steps 3 -o slow.trace
      tracer detach 4711
    \f
    The job must run the Python and the torch that this tracer is built for. You must
    be allowed to trace it: as its user, with kernel.yama.ptrace_scope 0, or as root.
    A process that runs no Python for SECONDS does not answer. gdb has as long to
    attach, but at least 5 s and at most 30 s.
    """
    exclusive(seconds=seconds, steps=steps)
    try:
        # The step of now has begun already.
        options = Options(**given, steps=None if steps is None else (1, steps + 1))
        from tracer.attach import left
        from tracer.attach.session import Session

        left.close_of(pid)
        session = Session(pid, timeout, progress)
        session.process.check_room()
        request = {**_place(output, force, session.process), "options": options.document()}
        try:
            ticket = session.request("begin", request)
        except BaseException:
            _give_back(session, request)
            raise
    except RecordingError as error:
        fail(str(error), USAGE)
    with _ended_by_signals(), ticket:
        _begin(session, ticket, request)
        if seconds is None and steps is None:
            say(f"recording process {pid} to {request['shown']}; to end it: tracer detach {pid}")
            return
        try:
            _wait_and_end(session, ticket, seconds, request)
        except RecordingError as error:
            fail(str(error))
        except KeyboardInterrupt:
            fail(f"process {pid} may still be recorded; to end that: tracer detach {pid}")


def _begin(session: Session, ticket: Ticket, request: dict[str, Any]) -> None:
    """Begin the recording. Ends this command if that fails."""
    try:
        no_cuda = session.deliver(ticket, "started")
    except RecordingError as error:
        if session.process.has_executed():
            from tracer.attach import left

            left.close(request["path"], session.process)
        _give_back(session, request)
        fail(str(error), USAGE)
    except KeyboardInterrupt:
        _give_back(session, request)
        fail(f"process {session.process.pid} was left as it was", USAGE)
    except BaseException:
        _give_back(session, request)
        raise
    if no_cuda:
        say(f"CUDA will not be recorded: {no_cuda}. Dispatcher hops are still recorded.")


def _wait_and_end(session: Session, ticket: Ticket, seconds: float | None, request: dict[str, Any]) -> None:
    """Wait for the end of the recording, for `seconds` or for Ctrl-C, and end it. Raises RecordingError."""
    from tracer.attach.process import PythonEndsError

    pid, path, shown = session.process.pid, request["path"], request["shown"]
    until = "until its steps have ended (at tracer.step() or the optimizer's step())"
    length = until if seconds is None else f"for {seconds:g} s"
    summary = None
    try:
        say(f"recording process {pid} to {shown} {length}; Ctrl-C ends it earlier")
        summary = None if session.interrupted else session.wait(ticket, seconds)
    except KeyboardInterrupt:
        pass
    if summary is None and session.process.is_same():
        try:
            summary = end(session, path, later=True)
        except RecordingError as error:  # it may have ended in this moment
            is_ending = isinstance(error, PythonEndsError)
            summary = session.wait_for_the_end(ticket) if is_ending else session.wait(ticket, 0)
            if summary is None and session.process.is_same():
                raise
    if summary is None and session.process.has_executed():
        from tracer.attach import left

        left.close(path, session.process)
        say(left.told(pid, shown))
        summary = left.summary(path, session.process, shown)
    if summary is None:
        raise RecordingError(f"process {pid} ended without a stop; {shown} has what it did until then")
    write(summary)


def end(session: Session, path: str = "", *, later: bool = False) -> str:
    """Have the process end its recording, now or also `later`: its summary. Raises RecordingError.

    With a path, only the recording to that file: another command may have begun the next one.
    """
    with session.request("end", {"path": path, "later": later}) as ticket:
        return session.deliver(ticket, "ended")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """A terminal that closes, or `kill`, does what Ctrl-C does: ends the recording, or begins none."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _place(output: str | None, force: bool, process: Process) -> dict[str, Any]:
    """Where the trace goes. The file is made here, as the process would. Raises RecordingError."""
    stem = visible(naming.stem_of_script(process.script())).encode()[:_STEM].decode(errors="ignore")
    rank = process.rank()
    with process.rights():
        return reserved(output and outputs.of_process(output, rank, process.pid), stem, force)


def _give_back(session: Session, request: dict[str, Any]) -> None:
    if request["reserved"]:
        with session.process.rights():
            naming.remove_if_empty(request["path"])
