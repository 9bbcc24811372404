"""Runs commands in children of a process that has imported torch (fork_server.py)."""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_server: Server | None = None
_used = 0.0


class ServerEndedError(Exception):
    """The fork server ended while it had a child; the next run starts another one."""


def begin(environment: dict[str, str]) -> None:
    """Start the server, unless it is there, in this environment."""
    global _server
    if _server is None or _server.pid != os.getpid() or not _server.lives():
        _server = Server(environment)


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
    assert _server is not None
    request = {"command": command, "folder": str(folder), "environment": environment, "ranks": ranks}
    return _server.run(request, stdin, timeout)


def start(command: list[str], folder: Path, environment: dict[str, str], stdin: int) -> subprocess.Popen[str]:
    """After `begin`: the command in a forked child, with pipes, while the test goes on."""
    assert _server is not None
    request = {"command": command, "folder": str(folder), "environment": environment, "ranks": 0}
    return Started(_server, request, stdin)


def is_the_server(process: int) -> bool:
    return _server is not None and _server.process.pid == process


def cpu_seconds() -> float:
    """CPU seconds of all children so far, with the processes that they waited for."""
    return _used


class Server:
    """The process, and this end of its socket."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.pid = os.getpid()
        self._socket, theirs = socket.socketpair()
        script = Path(__file__).with_name("fork_server.py")
        # Its streams are pipes, as those of the children: Python looks once whether a stream is a file.
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(theirs.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            env=environment | {"OPENBLAS_NUM_THREADS": "1"},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        theirs.close()
        atexit.register(self.end)

    def lives(self) -> bool:
        return self.process.poll() is None

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
            line = json.dumps(request).encode() + b"\n"
            sent = socket.send_fds(self._socket, [line], theirs)
            self._socket.sendall(line[sent:])
        except OSError:
            raise self._ended(command) from None
        finally:
            for stream in theirs:
                os.close(stream)
        until = time.monotonic() + timeout
        child = int(self._line(command, until) or 0)
        try:
            out, err = _exchange(ours, stdin.encode(), until)
            _, status, used = self._line(command, until).split()
        except TimeoutError:
            os.kill(child, signal.SIGKILL)
            self._line(command, time.monotonic() + 60)
            raise subprocess.TimeoutExpired(command, timeout) from None
        _used += float(used)
        return os.waitstatus_to_exitcode(int(status)), text(out), text(err)

    def begin(self, request: dict[str, Any], streams: list[int]) -> int:
        """The pid of a child that nobody waits for yet."""
        line = json.dumps({**request, "wait": False}).encode() + b"\n"
        sent = socket.send_fds(self._socket, [line], streams)
        self._socket.sendall(line[sent:])
        return int(self._line(request["command"], time.monotonic() + 60))

    def wait(self, command: list[str], child: int, options: int) -> tuple[int, int]:
        """As os.waitpid."""
        global _used
        self._socket.sendall(json.dumps({"child": child, "options": options}).encode() + b"\n")
        ended, status, used = self._line(command, time.monotonic() + 3600).split()
        _used += float(used)
        return int(ended), int(status)

    def _line(self, command: list[str], until: float) -> str:
        """The server's next answer; ServerEndedError if there is none."""
        line = b""
        while not line.endswith(b"\n"):
            self._socket.settimeout(max(until - time.monotonic(), 0.001))
            part = self._socket.recv(1)
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


class Started(subprocess.Popen):
    """A child of the server as any Popen: what differs is who forks it and who waits for it."""

    def __init__(self, server: Server, request: dict[str, Any], stdin: int) -> None:
        self._server, self._request = server, request
        pipe = subprocess.PIPE
        super().__init__(request["command"], stdin=stdin, stdout=pipe, stderr=pipe, text=True)

    def _execute_child(self, *given: Any) -> None:
        theirs = [given[place] for place in (10, 13, 15)]  # of stdin, stdout and stderr
        self.pid = self._server.begin(self._request, theirs)
        self._child_created = self._closed_child_pipe_fds = True
        for stream in theirs:
            os.close(stream)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        return self._server.wait(self._request["command"], self.pid, wait_flags)

    def _internal_poll(self, *_: object, **__: object) -> int | None:
        if self.returncode is None and self._server.lives():  # a Popen that is deleted last asks too
            ended, status = self._try_wait(os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


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
