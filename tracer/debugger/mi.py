"""A client of gdb's machine interface: commands answered in microseconds, stops as they come.

pygdbmi reads what gdb says. Its own `write` waits 0.2 s for output that may still come; here each
command carries a token, and the answer with that token is the end of it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import select
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO, Any

from pygdbmi import gdbmiparser

from tracer.debugger.debugger_errors import DebuggerError

_READ_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PATIENCE = 5.0  # seconds until gdb is killed


class GdbError(DebuggerError):
    """gdb answered a command with an error, or went away."""


class MachineInterface:
    """A gdb process and the conversation with it. Times in seconds."""

    def __init__(self, command: Sequence[str], *, inherited: Sequence[int], environment: Mapping[str, str]):
        """Starts gdb in a process group of its own, so that Ctrl-C reaches it only through us."""
        self.process, self._input, self._output = self._start(command, inherited, dict(environment))
        self._buffer = b""
        self._tokens = itertools.count(1)
        self._stops: deque[dict[str, Any]] = deque()
        self.console: list[str] = []  # what gdb printed since the last command began
        self.log: list[str] = []  # what it complained of since then
        self.inferior: int | None = None  # the process id of what it debugs

    def command(self, text: str, timeout: float = 120) -> dict[str, Any]:
        """Sends one MI command; returns the payload of its result. Raises GdbError, TimeoutError."""
        token = next(self._tokens)
        self.console, self.log = [], []
        try:
            self._input.write(f"{token}{text}\n".encode())
        except OSError:
            raise self._gone() from None
        end = time.monotonic() + timeout
        while True:
            message = self._message(end)
            if message["type"] == "result" and message.get("token") == token:
                if message["message"] == "error":
                    raise GdbError(str((message["payload"] or {}).get("msg", "gdb failed")).splitlines()[0])
                return message["payload"] or {}

    def execute(self, text: str, timeout: float = 120) -> str:
        """Runs one command of gdb's command line; returns what it printed."""
        quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        self.command(f'-interpreter-exec console "{quoted}"', timeout)
        return "".join(self.console)

    def wait_for_stop(self, timeout: float | None = None) -> dict[str, Any]:
        """The payload of the next `*stopped`; its "reason" may be missing. TimeoutError after `timeout`."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._stops:
            self._message(end)
        return self._stops.popleft()

    def close(self) -> None:
        """Ends gdb, which ends what it debugs."""
        if self.process.poll() is None:
            try:
                self._input.close()
                self.process.wait(_PATIENCE)
            except (OSError, subprocess.TimeoutExpired):
                self.process.kill()
        self.process.wait()
        self._output.close()

    def _start(
        self, command: Sequence[str], inherited: Sequence[int], environment: dict[str, str]
    ) -> tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes]]:
        """gdb, what it reads commands from, and what it answers on."""
        process = subprocess.Popen(
            [*command, "--interpreter=mi3"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=inherited,
            env=environment,
            preexec_fn=_in_own_group,
            bufsize=0,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        return process, process.stdin, process.stdout

    def _message(self, end: float | None) -> dict[str, Any]:
        """The next message, kept where it belongs: console text and stops."""
        message = gdbmiparser.parse_response(self._line(end))
        if message["type"] == "console":
            self.console.append(message["payload"] or "")
        elif message["type"] == "log":
            self.log.append(message["payload"] or "")
        elif message["type"] == "notify" and message["message"] == "stopped":
            self._stops.append(message["payload"] or {})
        elif message["type"] == "notify" and message["message"] == "thread-group-started":
            self.inferior = int(message["payload"]["pid"])
        return message

    def _line(self, end: float | None) -> str:
        while b"\n" not in self._buffer:
            left = None if end is None else max(0.0, end - time.monotonic())
            if not select.select([self._output], [], [], left)[0]:
                raise TimeoutError("gdb did not answer in time")
            try:
                data = os.read(self._output.fileno(), _READ_BYTES)
            except OSError:  # a terminal that has hung up
                data = b""
            if not data:
                raise self._gone()
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")

    def _gone(self) -> GdbError:
        status = self.process.wait(_PATIENCE)
        said = "".join(self.console).strip().splitlines()
        return GdbError(f"gdb ended with status {status}{': ' + said[-1] if said else ''}")


def _in_own_group() -> None:
    """A group of its own keeps Ctrl-C from gdb; and gdb, with what it debugs, must not outlive us."""
    os.setpgrp()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
