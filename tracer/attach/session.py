"""Begin and end the recording of a running process, from outside of it."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

from tracer.attach import gdb
from tracer.attach.process import START_IT, ExecutedError, Process, PythonEndsError
from tracer.attach.ticket import ENDED, ENDS, FAILED, STARTED, Ticket
from tracer.base.errors import RecordingError

_FILES = 32  # more than this command and gdb open


class Session:
    """A process that tracer attaches to, and the way in: gdb, or Python's own from 3.14 on."""

    def __init__(
        self,
        pid: int,
        patience: float,
        progress: Callable[[str], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """`patience`: seconds until a process is left alone that does not take the request, or not answer.

        `progress` shows what a long wait is for.
        Raises RecordingError, before the process is touched, if it cannot be recorded.
        """
        self.process = Process(pid)
        self._patience = patience
        self._progress = progress
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if 0 <= most < _FILES:
            raise RecordingError(
                f"this command may open only {most} files, and gdb needs more; raise that limit: ulimit -n 64"
            )
        self.interrupted = False
        """Whether Ctrl-C came when the process had already begun to act"""
        self.process.check()
        self._gdb = "" if hasattr(sys, "remote_exec") else gdb.find()

    def request(self, action: str, facts: Mapping[str, object]) -> Ticket:
        """A ticket for `begin` or `end`, which the process has not seen yet. Raises RecordingError."""
        request = {"action": action, **facts}
        return Ticket(request, self.process.pid, self.process.user, as_file=not self._gdb)

    def deliver(self, ticket: Ticket, wanted: str) -> str:
        """Have the process act, and wait for its answer of the kind `wanted`: its text.

        Raises RecordingError if it does not, for whatever reason, PythonEndsError if the process is ending,
        ExecutedError if it has begun another program. When the ticket is closed, the process does nothing any
        more, unless its request says that it may do so `later`.
        Ctrl-C withdraws the request as well, or waits for the answer if the process has begun.
        """
        pid, do, found = self.process.pid, _INSTEAD[wanted], None
        try:
            with self._progress(f"waiting until gdb has attached to process {pid}"):
                self._inject(ticket, wanted)
            with self._progress(f"waiting until the main thread of process {pid} runs Python"):
                found = self._wait(ticket, wanted)
        except (KeyboardInterrupt, RecordingError) as error:  # gdb may have delivered it nevertheless
            if ticket.withdraw():
                if isinstance(error, PythonEndsError):
                    raise PythonEndsError(f"{error}; {do}") from None
                raise
            self.interrupted = isinstance(error, KeyboardInterrupt)
            try:
                with self._progress(f"waiting until process {pid} has begun to {_VERBS[wanted]}"):
                    found = self._wait(ticket, wanted)
            except KeyboardInterrupt:
                pass
        if found is None:
            raise self._without_an_answer(ticket, wanted)
        kind, text = found
        if kind == ENDS:
            raise PythonEndsError(f"process {pid} is ending, so nothing was changed; {do}")
        if kind == FAILED:
            raise RecordingError(f"process {pid}: {text}")
        return text

    def wait(self, ticket: Ticket, seconds: float | None) -> str | None:
        """The summary, when the recording ends; None after `seconds`, or if the process ended without."""
        found = ticket.wait((ENDED,), seconds, self.process.is_same)
        return found[1] if found else None

    def wait_for_the_end(self, ticket: Ticket) -> str | None:
        """The same of a process that is ending, which ends its recording itself."""
        with self._progress(f"waiting until process {self.process.pid} has ended its recording"):
            return self.wait(ticket, self._patience)

    def _wait(self, ticket: Ticket, wanted: str) -> tuple[str, str] | None:
        return ticket.wait((wanted, FAILED, ENDS), self._patience, self.process.is_same)

    def _inject(self, ticket: Ticket, wanted: str) -> None:
        pid = self.process.pid
        if ticket.file is not None:
            try:
                sys.remote_exec(pid, str(ticket.file))  # type: ignore[attr-defined]
            except (OSError, RuntimeError, ValueError) as error:
                raise RecordingError(
                    f"Python cannot attach to process {pid}: {error}; start the job with: tracer record"
                ) from None
            return
        try:
            gdb.inject(self.process, self._gdb, ticket.script, self._patience)
        except OSError as error:
            do = _IN_VAIN[wanted].format(pid=pid)
            raise RecordingError(f"process {pid} was not asked to {_VERBS[wanted]}: {error}; {do}") from None

    def _without_an_answer(self, ticket: Ticket, wanted: str) -> RecordingError:
        """Why there is none."""
        pid, process, later = self.process.pid, self.process, bool(ticket.request["later"])
        if process.is_same() and not ticket.is_taken and (later or ticket.withdraw()):
            return self._not_taken(later)
        if process.has_executed():
            return ExecutedError(f"process {pid} has begun another program before it answered; attach again")
        if process.is_stopped():
            return RecordingError(_STOPPED[wanted].format(pid=pid))
        if not process.is_running():
            return PythonEndsError(f"process {pid} ended before it answered; {_INSTEAD[wanted]}")
        return RecordingError(
            f"process {pid} has begun to {_VERBS[wanted]}, but gave no answer in {self._patience:g} s; "
            f"if it is recorded: tracer detach {pid}"
        )

    def _not_taken(self, later: bool) -> RecordingError:
        state = self.process.state()
        if later and state == "T":
            return RecordingError(_STOPPED[ENDED].format(pid=self.process.pid))
        if later:
            return RecordingError(
                f"process {self.process.pid} ran no Python on its main thread in {self._patience:g} s; its "
                f"recording ends when it does; if it goes on then: tracer detach {self.process.pid}"
            )
        why = {
            "T": "it is stopped; let it continue: kill -CONT",
            "t": "a debugger has stopped it; let it continue",
        }.get(
            state,
            "its main thread waits or works in C; attach again later, or wait longer: --timeout SECONDS",
        )
        return RecordingError(
            f"process {self.process.pid} ran no Python on its main thread in {self._patience:g} s, "
            f"so nothing was changed: {why}"
        )


_VERBS = {STARTED: "record", ENDED: "end its recording"}
_STOPPED = {
    STARTED: "process {pid} is stopped, so its recording has not begun, and will not; let it continue "
    "(kill -CONT {pid}), and attach again",
    ENDED: "process {pid} is stopped, and its recording ends when it continues: kill -CONT {pid}; "
    "if it goes on then: tracer detach {pid}",
}
_IN_VAIN = {
    STARTED: "set TMPDIR to a folder with space",
    ENDED: "to end its recording: tracer detach {pid}",
}
_INSTEAD = {STARTED: START_IT, ENDED: "it ends a recording itself"}
