"""A process that has imported torch, and forks a child for each program that a test runs.

    python fork_server.py SOCKET [jobs]      (by forked.py, which speaks to it through the descriptor SOCKET)

A fresh interpreter takes two seconds to import torch; a child of this one has it. The child runs the command
of `python` or of `tracer record` with the product's own code, from the parsing of the command line to the end
of the interpreter. What differs from a fresh interpreter: modules are loaded already, `/proc/PID/cmdline` is
this script's, and what libraries read from the environment while they are loaded is that of this process.

torch is hidden until the program imports it: then the recording begins, as it does in a fresh interpreter.

A request is a JSON line, with stdin, stdout and stderr as descriptors beside it:

    {"command": ["python" | "tracer", arguments...], "folder": path, "environment": {name: text}, "ranks": N}

With ranks the child forks N processes that run the command, with the environment that torchrun gives them.

The answers are a line with the child's pid, then a line with its status as `os.waitpid` gives it and its CPU
seconds.

With `"adopted": true` beside the command the child becomes one of the process that asked, which waits for it
itself: it needs no more than the pid.

A server of `jobs` has not imported tracer: its children run Python commands that tracer attaches to, and end
as an interpreter does, modules and all.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import functools
import gc
import importlib.abc
import io
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import threading
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, NoReturn

MOST = 1 << 22  # bytes of a request: an environment is at most a part of it
_THREADS = len(os.listdir("/proc/self/task"))  # of an emulator one more: that of qemu
_at_exit: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []  # what the imports have registered


class Become(BaseException):
    """`tracer record` would become this Python command, in this environment."""

    def __init__(self, _executable: str, command: list[str], environment: dict[str, str]) -> None:
        super().__init__(command)
        self.command, self.environment = command, environment


class Hidden(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the torch that is loaded, when the program imports it for the first time."""

    def __init__(self) -> None:
        ours = [name for name in sys.modules if name.partition(".")[0] == "torch"]
        self._modules = {name: sys.modules.pop(name) for name in ours}
        self._spec = self._modules["torch"].__spec__

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        found = PathFinder.find_spec(name)
        if found is None or found.origin != self._spec.origin:
            raise ImportError("this program has a torch of its own: run it with fresh=True")
        found.loader = self
        return found

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._modules["torch"]

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
        sys.modules.update(self._modules)
        # After what tracer has registered, as in a fresh interpreter.
        for function, arguments, named in _at_exit:
            atexit.unregister(function)
            atexit.register(function, *arguments, **named)
        sys.meta_path.remove(self)


def main() -> None:
    server = socket.socket(fileno=int(sys.argv[1]))
    jobs = sys.argv[2:] == ["jobs"]
    _load(jobs)
    request = _serve(server)
    if request is None:
        return
    server.close()  # this is a child
    _enter(request)
    if jobs:
        _execute(request["command"][1:], _main_module(request["command"][1:]))
    else:
        _run(request)


def _load(jobs: bool) -> None:
    """What a program under `tracer record` has loaded, and what a command of tracer needs before its own.

    For jobs it is torch alone.
    """
    del sys.path[0]  # of this script
    register = atexit.register

    def noted(function: Any, /, *arguments: Any, **named: Any) -> Any:
        _at_exit.append((function, arguments, named))
        return register(function, *arguments, **named)

    atexit.register = noted  # type: ignore[assignment]
    import torch
    import torch._dynamo  # noqa: F401  (by the first optimizer that a program makes: three seconds more)

    if not jobs:
        import tracer.cli.app
        import tracer.recording.recording  # noqa: F401
        from tracer.base import extension

        extension.load()
    atexit.register = register  # type: ignore[assignment]
    if not jobs:
        _parse_once()
    gc.collect()
    gc.freeze()  # a collection in a child would touch the pages of all objects, and so copy them
    atexit.register(gc.unfreeze)  # the last one is the interpreter's: torch 2.15 says what it leaves


def _parse_once() -> None:
    """What parses command lines is loaded and made: half of what a child would do until its script begins."""
    import typer.main

    import tracer.cli.app

    typer.main.get_command = functools.cache(typer.main.get_command)
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
        tracer.cli.app.app(["record", "/no/such/script.py"], prog_name="tracer")


def _serve(server: socket.socket) -> dict[str, Any] | None:
    """Answers requests; returns one in the child that runs it, and None when there are no more."""
    while True:
        text, streams, _, _ = socket.recv_fds(server, MOST, 3)
        if not text:
            return None
        while not text.endswith(b"\n"):
            text += server.recv(MOST)
        request = json.loads(text)
        if len(os.listdir("/proc/self/task")) != _THREADS:
            raise RuntimeError("the fork server has more than one thread")
        child = os.fork()
        adopted = request.get("adopted", False)
        if child == 0 and adopted:
            # The end of this process makes its child one of who asked, who has seen to that (forked.py).
            job = os.fork()
            if job != 0:
                server.sendall(b"%d\n" % job)
                os._exit(0)
        if child == 0:
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            return request
        for stream in streams:
            os.close(stream)
        if not adopted:
            server.sendall(b"%d\n" % child)
        _, status, used = os.wait4(child, 0)
        server.sendall(b"%d %f\n" % (status, used.ru_utime + used.ru_stime))


def _enter(request: dict[str, Any]) -> None:
    """The folder and the environment of the request, and no torch that the program has not imported."""
    if request.get("new_session"):
        os.setsid()
    os.chdir(request["folder"])
    _set_environment(request["environment"])
    tempfile.tempdir = None  # a module that torch imports has asked for it
    sys.meta_path.insert(0, Hidden())


def _run(request: dict[str, Any]) -> None:
    if request["ranks"]:
        _become_a_rank(request["ranks"])
    program, *arguments = request["command"]
    if program == "tracer":
        arguments = _of_tracer(arguments)
    _python(arguments)


def _set_environment(environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


def _become_a_rank(ranks: int) -> None:
    """Returns in each rank; this process waits for them and ends with the first status that is not 0."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    sizes = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "GROUP_RANK": "0"}
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: none outlives a job that is killed
            os.environ.update({**place, **sizes, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            return
        children.append(child)
    failed = 0
    while children:
        ended, status = os.wait()
        children.remove(ended)
        if status and not failed:  # as torchrun, which ends the others and says 1
            failed = 1
            for child in children:
                os.kill(child, signal.SIGTERM)
    os._exit(failed)


def _of_tracer(arguments: list[str]) -> list[str]:
    """The arguments of the Python that `tracer record` becomes; of another command, this process ends."""
    import tracer_startup

    def become(*given: Any) -> NoReturn:
        raise Become(*given)

    execve, os.execve = os.execve, become  # type: ignore[assignment]
    sys.argv = [os.path.join(os.path.dirname(sys.executable), "tracer"), *arguments]
    sys.orig_argv = [sys.executable, *sys.argv]
    try:
        tracer_startup.main()
    except Become as asked:
        _set_environment(asked.environment)
        return asked.command[1:]
    except BaseException as error:
        status = _status(error)
    else:
        status = 0
    finally:
        os.execve = execve
    return _end(status)


def _python(arguments: list[str]) -> NoReturn:
    """Runs what `python ARGUMENTS` would, as the main module of this process, and ends as it would."""
    module = _main_module(arguments)
    try:
        _start_up()
        _execute(arguments, module)
    except BaseException as error:
        status = _status(error)
    else:
        status = 0
    _end(status, module)


def _start_up() -> None:
    """What tracer_startup.pth does when an interpreter starts."""
    found = PathFinder.find_spec("tracer_startup")
    assert found is not None
    assert found.origin is not None
    with open(os.path.splitext(found.origin)[0] + ".pth") as lines:
        exec(lines.read(), {})


def _main_module(arguments: list[str]) -> ModuleType:
    sys.orig_argv = [sys.executable, *arguments]
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    return module


def _execute(arguments: list[str], module: ModuleType) -> None:
    if arguments[0] == "-m":
        sys.argv = ["-m", *arguments[2:]]
        sys.path.insert(0, os.getcwd())
        runpy._run_module_as_main(arguments[1])  # type: ignore[attr-defined]
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path.insert(0, "")
        exec(compile(arguments[1], "<string>", "exec", dont_inherit=True), vars(module))
    else:
        sys.argv = arguments
        _script(arguments[0], module)


def _script(given: str, module: ModuleType) -> None:
    path = os.path.join(os.getcwd(), given)
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    module.__file__, module.__loader__ = path, SourceFileLoader("__main__", path)
    module.__dict__["__cached__"] = None
    with open(path, "rb") as file:
        text = file.read()
    exec(compile(text, path, "exec", dont_inherit=True), vars(module))


def _status(error: BaseException) -> int:
    """What the interpreter does with an exception that nobody catches; negative: ends by this signal."""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return int(error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, frames
    try:
        sys.excepthook(type(error), error.with_traceback(frames), frames)
    except SystemExit as asked:
        return _status(asked)
    return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1


def _end(status: int, module: ModuleType | None = None) -> NoReturn:
    """The end of the interpreter, without taking apart the modules: with torch that takes half a second."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if module is not None:
        vars(module).clear()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # closed, or nobody reads it
            status = status or (120 if stream is not None and not stream.closed else 0)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main()
