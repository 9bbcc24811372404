"""A job that a test leads from phase to phase while tracer attaches to it, and processes that imitate one."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import launching
from launching import TIMEOUT, Launcher, Run

import tracer
from tracer.attach.ticket import ENDED, ENDS, FAILED, STARTED, Ticket
from tracer.recording.options import Options

JOB = str(Path(__file__).parent.parent / "cpu" / "attached_job.py")
PHASES = ("forward", "zero_grad", "backward", "between", "optimizer", "hook", "loader")


def wait_until(is_so: Callable[[], object], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + TIMEOUT
    while not is_so():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


class Job:
    """A job in the launcher's folder, which a test leads from phase to phase."""

    def __init__(self, launcher: Launcher, steps: int, phases: tuple[str, ...]) -> None:
        self.launcher = launcher
        self.process = launcher.start_job(JOB, str(launcher.folder), str(steps), *phases)
        self.pid = str(self.process.pid)

    def reach(self, turn: int) -> None:
        wait_until((self.launcher.folder / f"at.{turn}").exists, self.process)

    def go(self, *turns: int) -> None:
        for turn in turns:
            (self.launcher.folder / f"go.{turn}").touch()

    def tracer(self, verb: str, *options: str) -> Run:
        return self.launcher.run([str(self.launcher.tracer), verb, self.pid, *options])

    def end(self) -> tuple[str, str]:
        out, err = self.process.communicate(timeout=TIMEOUT)
        assert self.process.returncode == 0, err
        return out, err


@contextmanager
def job(launcher: Launcher, steps: int, *phases: str) -> Iterator[Job]:
    for number in range(len(phases)):
        for mark in ("at", "go"):
            (launcher.folder / f"{mark}.{number}").unlink(missing_ok=True)
    (launcher.folder / "ready").unlink(missing_ok=True)
    started = Job(launcher, steps, phases)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


@functools.cache
def alone(steps: int) -> str:
    """The output of a job that nobody attaches to: the same each time, as its test files rely on."""
    with tempfile.TemporaryDirectory() as folder, job(Launcher(Path(folder)), steps) as plain:
        out, err = plain.end()
    assert err == ""
    return out


def refused(done: Run, says: str, *, advice: str) -> None:
    """One line on stderr, nothing on stdout, status 2."""
    assert (done.status, done.out) == (2, ""), done.err
    assert done.err.count("\n") == 1
    assert says in done.err, done.err
    assert advice in done.err


def attach(launcher: Launcher, pid: int, *options: str, **more: object) -> Run:
    return launcher.run([str(launcher.tracer), "attach", str(pid), *options], **more)


def running(*command: str, **options: Any) -> AbstractContextManager[subprocess.Popen[str]]:
    """A process that has written a line."""
    return _running(functools.partial(subprocess.Popen, command, text=True), **options)


def running_job(*arguments: str, **options: Any) -> AbstractContextManager[subprocess.Popen[str]]:
    """`running(sys.executable, *arguments)` of a job that imports torch."""
    return _running(functools.partial(launching.job, *arguments), **options)


@contextmanager
def _running(start: Callable[..., subprocess.Popen[str]], **options: Any) -> Iterator[subprocess.Popen[str]]:
    process = start(stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def imitation(folder: Path, source: str, name: str, *options: str) -> str:
    """A small program in C that looks like a Python of some kind: the file, compiled."""
    text = folder / f"{name}.c"
    text.write_text(f"#include <stdio.h>\n#include <fcntl.h>\n#include <sys/mman.h>\n{source}")
    program = folder / name
    subprocess.run(["gcc", *options, "-o", str(program), str(text)], check=True)
    return str(program)


def program(folder: Path, name: str, text: str) -> dict[str, str]:
    """The PATH on which this shell script is found before everything else."""
    (folder / "bin").mkdir()
    (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / "bin" / name).chmod(0o755)
    return {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


ON = "print('on', flush=True)"
# What a job does until its thread `reads` has got a line. Without pauses it would keep a core busy meanwhile.
WORKS = "while reads.is_alive(): torch.ones(2).sum(); time.sleep(0.001)\n"
# A job that runs Python all the time.
RUNS = "import torch, time; print('on', flush=True)\nwhile 1: time.sleep(0.001)"
SPINS = "import torch, time; print('on', flush=True)\nwhile 1: torch.ones(2).sum(); time.sleep(0.001)"
SAYS_ON = 'puts("on"); fflush(stdout); getchar(); return 0;'
MAPS = "mmap(0, 4096, PROT_READ, MAP_PRIVATE, open(given[1], O_RDONLY), 0);"


def torch_of(folder: Path, version: str) -> str:
    """The library of a torch that has nothing but a version."""
    library = folder / "torch" / "lib" / "libtorch_python.so"
    library.parent.mkdir(parents=True)
    library.write_text("x" * 4096)
    (folder / "torch" / "version.py").write_text(f"__version__ = '{version}'\n")
    return str(library)


def made(request: dict[str, object]) -> Ticket:
    """A ticket for a process that act() begins."""
    return Ticket(request, 0, os.getuid())


def act(launcher: Launcher, code: str, *tickets: Ticket) -> None:
    """A process of this code does what is asked for in the tickets, as one does that gdb was in."""
    file = Path(tracer.__file__).parent / "attach" / "inside.py"
    given = [json.dumps([str(ticket.folder), ticket.request]) for ticket in tickets]
    process = launcher.start_job("-c", code, str(file), *given)
    for ticket in tickets:
        ticket.pid = process.pid
    assert process.communicate(timeout=TIMEOUT)[1] == ""
    assert process.returncode == 0


def answers(ticket: Ticket) -> list[tuple[str, str]]:
    """All that have come from a process that has ended."""
    return list(iter(lambda: ticket.wait((STARTED, ENDED, FAILED, ENDS), None, lambda: False), None))


def begin(path: Path) -> dict[str, object]:
    named = {"path": str(path), "shown": str(path), "force": False, "reserved": False}
    return {"action": "begin", **named, "options": Options().document()}


IN_TURN = """\
import json, sys, torch
names = {}
with open(sys.argv[1]) as file:
    exec(file.read(), names)
for given in sys.argv[2:]:
    names["act"](*json.loads(given))
    torch.ones(2).sum()
"""
