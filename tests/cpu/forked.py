"""Runs commands in children of a process that has imported torch (fork_server.py)."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_servers: dict[bool, Server] = {}
"""With tracer (False), and without it, of the jobs that it attaches to (True)"""
_used = 0.0
_IMPORT_SECONDS = 120 if os.uname().machine == "x86_64" else 600  # an emulator takes several times as long
"""In which a server has imported torch, also on a busy machine"""


class ServerEndedError(Exception):
    """The fork server ended while it had a child; the next run starts another one."""


def begin(environment: dict[str, str], *, jobs: bool = False) -> Server:
    """Start the server, unless it is there, in this environment."""
    if jobs not in _servers or not _servers[jobs].is_ours():
        _servers[jobs] = Server(environment, jobs=jobs)
    return _servers[jobs]


def run(
    command: list[str],
    folder: Path,
    environment: dict[str, str],
    stdin: str,
    timeout: float,
    ranks: int = 0,
) -> tuple[int, str, str]:
    """After `begin`: status (negative: the signal), stdout and stderr of a command in a forked child.

    The command is `python ...` or `tracer ...`. With `ranks` there are as many children, the ranks of a job.
    Raises subprocess.TimeoutExpired, when the child has been killed, and ServerEndedError.
    """
    request = {"command": command, "folder": str(folder), "environment": environment, "ranks": ranks}
    return _servers[False].run(request, stdin, timeout)


class Started(subprocess.Popen[str]):
    """`Popen(["python" or "tracer", ...])` without the two seconds of an import of torch: a server forks it.

    Everything else is as with Popen: it is a child of this process. In /proc it has the command line and the
    first environment of the server. A function that runs before the program is not possible.
    """

    def __init__(self, command: list[str], server: Server, **options: Any) -> None:
        self._server = server
        super().__init__(command, text=True, **options)

    def _execute_child(self, args: list[str], *more: Any) -> None:
        folder, environment, pipes, new_session = more[4], more[5], more[9:15], more[20]
        request = {
            "command": args,
            "folder": os.fspath(folder or os.getcwd()),
            "environment": dict(os.environ if environment is None else environment),
            "ranks": 0,
            "adopted": True,
            "new_session": new_session,
        }
        theirs = (pipes[0], pipes[3], pipes[5])
        streams = [own if given == -1 else given for own, given in enumerate(theirs)]
        try:
            self.pid = self._server.fork(request, streams)
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
        self._child_created = True


def environment(*, jobs: bool = False) -> dict[str, str] | None:
    """That in which the server began, if there is one."""
    return _servers[jobs].environment if jobs in _servers and _servers[jobs].is_ours() else None


def is_the_server(process: int) -> bool:
    return any(server.process.pid == process for server in _servers.values())


def cpu_seconds() -> float:
    """CPU seconds of all children so far, with the processes that they waited for."""
    return _used


class Server:
    """The process, and this end of its socket."""

    def __init__(self, environment: dict[str, str], *, jobs: bool = False) -> None:
        self.pid = os.getpid()
        self.environment = environment
        self._socket, theirs = socket.socketpair()
        script = Path(__file__).with_name("fork_server.py")
        # Its streams are pipes, as those of the children: Python looks once whether a stream is a file.
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(theirs.fileno()), *["jobs"] * jobs],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            env=environment | {"OPENBLAS_NUM_THREADS": "1"},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        theirs.close()
        atexit.register(self.end)

    def is_ours(self) -> bool:
        """Whether this process started it, and it runs."""
        return self.pid == os.getpid() and self.process.poll() is None

    def end(self) -> None:
        if self.pid == os.getpid():
            self._socket.close()
            self.process.communicate()

    def run(self, request: dict[str, Any], stdin: str, timeout: float) -> tuple[int, str, str]:
        global _used
        command = request["command"]
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        ours = [pipes[0][1], pipes[1][0], pipes[2][0]]
        try:
            self._ask(request, theirs)
        finally:
            for stream in theirs:
                os.close(stream)
        child = int(self._line(command, time.monotonic() + _IMPORT_SECONDS))
        until = time.monotonic() + timeout
        try:
            out, err = _exchange(ours, stdin.encode(), until)
            status, used = self._line(command, until).split()
        except TimeoutError:
            with suppress(ProcessLookupError):  # its own children hold its streams
                os.kill(child, signal.SIGKILL)
            self.process.kill()  # its next answer would be taken for that to the next request
            self.process.communicate()
            raise subprocess.TimeoutExpired(command, timeout) from None
        _used += float(used)
        return os.waitstatus_to_exitcode(int(status)), text(out), text(err)

    def fork(self, request: dict[str, Any], streams: list[int]) -> int:
        """The number of a process that is a child of this one from now on."""
        _adopt(True)
        try:
            self._ask(request, streams)
            until = time.monotonic() + _IMPORT_SECONDS
            child = int(self._line(request["command"], until))
            self._line(request["command"], until)  # the process that forked it has ended
        finally:
            _adopt(False)
        return child

    def _ask(self, request: dict[str, Any], streams: list[int]) -> None:
        line = json.dumps(request).encode() + b"\n"
        try:
            sent = socket.send_fds(self._socket, [line], streams)
            self._socket.sendall(line[sent:])
        except OSError:
            raise self._ended(request["command"]) from None

    def _line(self, command: list[str], until: float) -> str:
        """The server's next answer; ServerEndedError if there is none."""
        line = b""
        while not line.endswith(b"\n"):
            self._socket.settimeout(max(until - time.monotonic(), 0.001))
            try:
                part = self._socket.recv(1)
            except ConnectionError:
                part = b""
            if not part:
                raise self._ended(command)
            line += part
        return line.decode()

    def _ended(self, command: list[str]) -> ServerEndedError:
        _, err = self.process.communicate()
        status = self.process.returncode
        return ServerEndedError(
            f"the fork server ended with status {status} at {command}; the next run starts another one\n"
            + err.decode(errors="replace")
        )


def _adopt(whether: bool) -> None:
    """Whether processes that children of this one leave behind become its own."""
    subreaper = 36  # PR_SET_CHILD_SUBREAPER
    if ctypes.CDLL(None, use_errno=True).prctl(subreaper, int(whether), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _exchange(ours: list[int], stdin: bytes, until: float) -> tuple[bytes, bytes]:
    """Writes stdin and reads stdout and stderr until they are closed everywhere."""
    to, *out_and_err = ours
    texts = {stream: bytearray() for stream in out_and_err}
    with selectors.DefaultSelector() as waiting:
        for stream in out_and_err:
            waiting.register(stream, selectors.EVENT_READ)
        if stdin:
            os.set_blocking(to, False)
            waiting.register(to, selectors.EVENT_WRITE)
        else:
            os.close(to)
        while waiting.get_map():
            ready = waiting.select(max(until - time.monotonic(), 0))
            if not ready:
                for stream in list(waiting.get_map()):
                    os.close(stream)
                raise TimeoutError
            for key, _ in ready:
                if key.fd == to:
                    try:
                        stdin = stdin[os.write(to, stdin) :]
                    except BrokenPipeError:
                        stdin = b""
                    if stdin:
                        continue
                elif part := os.read(key.fd, 1 << 16):
                    texts[key.fd] += part
                    continue
                waiting.unregister(key.fd)
                os.close(key.fd)
    return bytes(texts[out_and_err[0]]), bytes(texts[out_and_err[1]])


def text(written: bytes) -> str:
    """As `subprocess.run(text=True)` has it."""
    return written.decode().replace("\r\n", "\n").replace("\r", "\n")
