"""Begin and end the recording of a running process, from outside of it."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from tracer.attach import gdb
from tracer.attach.process import (
    START_IT,
    ExecutedError,
    InterruptedByAHandlerError,
    Process,
    PythonEndsError,
)
from tracer.attach.ticket import ENDED, ENDS, FAILED, STARTED, Ticket
from tracer.base.errors import RecordingError

_FILES = 32  # more than this command and gdb open
_WORK = 120.0  # seconds for what the process does itself: it loads the extension, or counts a large trace


class Session:
    """A process that tracer attaches to, and the way in: gdb, or Python's own from 3.14 on."""

    def __init__(
        self,
        pid: int,
        patience: float,
        progress: Callable[[str], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """`patience`: seconds until a process that does not take the request is left alone.

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

    def request(self, action: str, facts: dict[str, Any]) -> Ticket:
        """A ticket for `begin` or `end`, which the process has not seen yet."""
        return Ticket({"action": action, **facts}, self.process.user)

    def deliver(self, ticket: Ticket, wanted: str, *, later: bool = False) -> dict[str, Any]:
        """Have the process act, and wait for its answer of the kind `wanted`.

        Raises RecordingError if it does not, for whatever reason, PythonEndsError if the process is ending,
        ExecutedError if it has begun another program, InterruptedByAHandlerError if it may be asked again.
        The request is then withdrawn; with `later` the process may also act when nobody waits any more.
        Ctrl-C withdraws the request as well, or waits for the answer if the process has begun.
        """
        pid = self.process.pid
        do = _INSTEAD[wanted]
        try:
            with self._progress(f"waiting until gdb has attached to process {pid}"):
                self._inject(ticket, wanted)
            with self._progress(f"waiting until the main thread of process {pid} runs Python"):
                found = ticket.wait((wanted, FAILED, ENDED, ENDS), self._patience, self.process.is_same)
        except (KeyboardInterrupt, RecordingError) as error:  # gdb may have delivered it nevertheless
            if ticket.withdraw():
                if isinstance(error, PythonEndsError):
                    raise PythonEndsError(f"{error}; {do}") from None
                raise
            self.interrupted = isinstance(error, KeyboardInterrupt)
            found = None
        if found is None and self.process.is_same():
            if not ticket.taken() and later:
                ticket.leave()
                raise self._not_taken(later)
            if not ticket.taken() and ticket.withdraw():
                raise self._not_taken(later)
            try:
                with self._progress(f"waiting until process {pid} has begun to {_VERBS[wanted]}"):
                    found = ticket.wait((wanted, FAILED, ENDED, ENDS), _WORK, self._moves())
            except KeyboardInterrupt:
                raise RecordingError(
                    f"process {pid} has begun to {_VERBS[wanted]}; to end its recording: tracer detach {pid}"
                ) from None
        if found is None and self.process.has_executed():
            raise ExecutedError(f"process {pid} has begun another program before it answered; attach again")
        if found is None and self.process.is_stopped():
            ticket.leave()
            raise RecordingError(_STOPPED[wanted].format(pid=pid))
        if found is None and not self.process.is_running():
            raise PythonEndsError(f"process {pid} ended before it answered; {do}")
        if found is None:
            raise RecordingError(
                f"process {pid} has begun to {_VERBS[wanted]}, but gave no answer in {_WORK:.0f} s; "
                f"try: tracer detach {pid}"
            )
        kind, facts = found
        if kind == ENDS:
            raise PythonEndsError(f"process {pid} is ending, so nothing was changed; {do}")
        if kind == FAILED and facts.get("interrupted"):
            raise InterruptedByAHandlerError(f"process {pid}: {facts['why']}")
        if kind == FAILED:
            raise RecordingError(f"process {pid}: {facts['why']}")
        return facts

    def wait(self, ticket: Ticket, seconds: float | None) -> dict[str, Any] | None:
        """What the process says when its recording ends; None after `seconds`, or if it ended without."""
        found = ticket.wait((ENDED,), seconds, self.process.is_same)
        return found[1] if found else None

    def wait_for_the_end(self, ticket: Ticket) -> dict[str, Any] | None:
        """The same of a process that is ending, which ends its recording itself."""
        with self._progress(f"waiting until process {self.process.pid} has ended its recording"):
            return self.wait(ticket, self._patience)

    def _moves(self) -> Callable[[], bool]:
        """Whether the process runs, and was not stopped for all of the patience."""
        last = time.monotonic()

        def moves() -> bool:
            nonlocal last
            now = time.monotonic()
            if self.process.state() not in ("T", "t"):
                last = now
            return self.process.is_same() and now - last < self._patience

        return moves

    def _inject(self, ticket: Ticket, wanted: str) -> None:
        pid = self.process.pid
        try:
            if self._gdb:
                gdb.inject(self.process, self._gdb, ticket.script(pid), self._patience)
                return
            script = Path(ticket.folder, "script.py")
            script.write_text(ticket.script(pid), encoding="utf-8")
            ticket.give(script)
        except OSError as error:
            do = _IN_VAIN[wanted].format(pid=pid)
            raise RecordingError(f"process {pid} was not asked to {_VERBS[wanted]}: {error}; {do}") from None
        try:
            sys.remote_exec(self.process.pid, str(script))  # type: ignore[attr-defined]
        except (OSError, RuntimeError, ValueError) as error:
            raise RecordingError(
                f"Python cannot attach to process {self.process.pid}: {error}; "
                "start the job with: tracer record"
            ) from None

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
