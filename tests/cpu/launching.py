"""Running scripts as a user does: under `python`, and under the installed `tracer record`.

Scripts run in children of the fork server (forked.py), which have torch already, and commands that only read
traces run in this process (in_process.py). What tests launching itself asks for fresh interpreters: a test
or a module with the marker `fresh`, `Launcher(folder, fresh=True)`, or `launcher.record(..., fresh=True)`.
tests/README.md lists them.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forked
import in_process
import pytest

from tracer import _build_info
from tracer.base import kept
from tracer.cli import app
from tracer.cli.record import LEFT_OUT

ADDRESS = re.compile(r"0x[0-9a-f]+")  # in a message of Python, another one in each process
# Python 3.14 warns so in some runs, with and without tracer, if workers end while their queue is freed.
SOME_RUNS = re.compile(r"^\S*/resource_tracker\.py:\d+: UserWarning: .*\n(?:  .*\n)*", re.MULTILINE)
OUR_LINES = re.compile(r"^tracer: .*\n(?:  .*\n)*", re.MULTILINE)
SANITIZER = ("LD_PRELOAD", "PYTHONMALLOC") if {"ASAN_OPTIONS", "TSAN_OPTIONS"} & os.environ.keys() else ()
# Read when libraries are loaded or an interpreter starts, which in a child of the fork server has been.
READ_EARLY = (
    *("PYTHON", "LD_", "OMP_", "GOMP_", "MKL_", "OPENBLAS_", "TORCH", "PYTORCH_", "ATEN_", "CUDA"),
    *("TZ", "LC_", "LANG"),
)
READ_LATE = ("TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR")  # read when something is compiled
READERS = app._READ_TABLES | {"pack"}
FORKED = {"record", "explain", "compare", "replay"}
# CUDA does not survive a fork, and torch may have asked for devices when it was imported.
MUST_BE_FRESH = bool(SANITIZER) or Path("/dev/nvidiactl").exists()
TIMEOUT = 300  # seconds; only what hangs takes so long, also on a machine that does ten other things


@dataclass(frozen=True)
class Run:
    """What a process left: its exit status (negative: the signal), stdout and stderr."""

    status: int
    out: str
    err: str

    @property
    def own_err(self) -> str:
        """stderr without what tracer says."""
        return OUR_LINES.sub("", self.err)

    @property
    def said(self) -> str:
        """What tracer says on stderr."""
        return "".join(OUR_LINES.findall(self.err))


@functools.cache
def cache_folder() -> str:
    """One for all tests, in which the line that a first recording adds counts as said."""
    folder = tempfile.mkdtemp(prefix="tracer-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("XDG_CACHE_HOME", folder)
        kept.write(LEFT_OUT, _build_info.OVERRIDES_MISSING, "")
    return folder


class Launcher:
    """Writes scripts into one folder and runs them there."""

    def __init__(self, folder: Path, *, fresh: bool = False) -> None:
        self.folder = self.made_in = folder
        self.fresh = fresh or MUST_BE_FRESH
        self.tracer = Path(sysconfig.get_path("scripts")) / "tracer"
        self.environment = plain_environment()
        self.environment["XDG_CACHE_HOME"] = cache_folder()

    def write(self, text: str, name: str = "script.py") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def python(self, *arguments: str, **options: object) -> Run:
        return self.run([sys.executable, *arguments], **options)

    def record(self, *arguments: str, **options: object) -> Run:
        return self.run([str(self.tracer), "record", *arguments], **options)

    def job(self, ranks: int, *arguments: str) -> Run:
        """`tracer record ARGUMENTS` as each rank of a job on this machine, as torchrun would start them.

        torchrun itself, which starts fresh interpreters, is for tests of launching.
        """
        if self.fresh:
            torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
            record = ["--no-python", str(self.tracer), "record"]
            return self.run([sys.executable, *torchrun, *record, *arguments])
        return self._forked(["tracer", "record", *arguments], self.environment, ranks=ranks)

    def both(self, *arguments: str, **options: object) -> tuple[Run, Run]:
        """The same command under python and under tracer, whose trace goes to `both.trace`.

        What `make sanitize` loads before Python is about tracer's code: python alone runs without it. A test
        of launching needs a fresh interpreter for what is recorded: without tracer, what the fork server's
        child says is what a fresh one would say, or they differ. `fresh=True` is for both.
        """
        plain = self.run([sys.executable, *arguments], **{"without": SANITIZER, "fresh": False, **options})
        traced = self.record("--force", "-o", "both.trace", *arguments, **options)
        return plain, traced

    def same(self, *arguments: str, **options: object) -> Run:
        """Run under both, and require the same status, stdout and stderr. Returns the traced run."""
        plain, traced = self.both(*arguments, **options)
        errors = [SOME_RUNS.sub("", ADDRESS.sub("0x...", text)) for text in (traced.own_err, plain.err)]
        assert (traced.status, traced.out, errors[0]) == (plain.status, plain.out, errors[1])
        return traced

    def says(self, out: str, *arguments: str, **options: object) -> Run:
        """As `same`, for a script that ends well and of which it is known what it says: one run, not two."""
        traced = self.record("--force", "-o", "both.trace", *arguments, **options)
        assert (traced.status, traced.out, SOME_RUNS.sub("", traced.own_err)) == (0, out, "")
        return traced

    def start(self, *command: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        """The command, while the test goes on: to be read, signalled and waited for as any Popen."""
        words = [*map(str, command)]
        if not self.fresh and not _differs(self.environment) and self._may_fork(words):
            start = functools.partial(forked.Started, self._named(words), forked.begin(plain_environment()))
        else:
            # as a terminal would: a test run in the background may ignore SIGINT
            interrupts = functools.partial(signal.signal, signal.SIGINT, signal.default_int_handler)
            start = functools.partial(subprocess.Popen, words, text=True, preexec_fn=interrupts)
        pipe = subprocess.PIPE
        return start(cwd=self.folder, env=self.environment, stdin=stdin, stdout=pipe, stderr=pipe)

    def start_job(self, *arguments: str) -> subprocess.Popen[str]:
        """`start(sys.executable, *arguments)` of a job that imports torch, forked where that is the same."""
        if self.fresh:
            return self.start(sys.executable, *arguments)
        return job(
            *arguments,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def traces(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*.trace"))

    def run(
        self,
        command: list[str],
        *,
        stdin: str = "",
        extra: dict[str, str] | None = None,
        without: Collection[str] = (),
        fresh: bool | None = None,
    ) -> Run:
        environment = {name: text for name, text in self.environment.items() if name not in without}
        environment |= extra or {}
        words = [*map(str, command)]
        if words[:3] == [sys.executable, "-m", "tracer.cli.app"] and words[3:4] and words[3] in READERS:
            words = [str(self.tracer), *words[3:]]
        fresh = MUST_BE_FRESH or (self.fresh if fresh is None else fresh)
        if not fresh and not _differs(environment):
            if self._may_fork(words):
                return self._forked(self._named(words), environment, stdin)
            if words[0] == str(self.tracer) and words[1:2] and words[1] in READERS:
                return Run(*in_process.run(words[1:], self.folder, environment, stdin))
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        return Run(done.returncode, done.stdout, done.stderr)

    def _forked(
        self, command: list[str], environment: dict[str, str], stdin: str = "", ranks: int = 0
    ) -> Run:
        forked.begin(plain_environment())
        return Run(*forked.run(command, self.folder, environment, stdin, TIMEOUT, ranks))

    def _named(self, command: list[str]) -> list[str]:
        return ["python" if command[0] == sys.executable else "tracer", *command[1:]]

    def _may_fork(self, command: list[str]) -> bool:
        if command[0] == str(self.tracer):
            return command[1:2] != [] and command[1] in FORKED
        if command[0] != sys.executable or not command[1:]:
            return False
        return command[1] in ("-c", "-m") or (self.folder / command[1]).is_file()


def job(*arguments: str, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
    """`Popen` of a Python that imports torch, which has it already unless it must be fresh."""
    environment = plain_environment() if env is None else env
    if MUST_BE_FRESH or _differs(environment, jobs=True):
        return subprocess.Popen([sys.executable, *arguments], env=environment, text=True, **options)
    server = forked.begin(plain_environment(), jobs=True)
    return forked.Started(["python", *arguments], server, env=environment, **options)


def plain_environment() -> dict[str, str]:
    """That of pytest without what concerns it or tracer; Python buffers its output for most people."""
    others = ("TRACER_", "PYTEST_", "PYTHONUNBUFFERED")
    return {name: text for name, text in os.environ.items() if not name.startswith(others)}


def _differs(environment: dict[str, str], *, jobs: bool = False) -> bool:
    """Whether libraries would read something else than in the fork server while they are loaded."""
    servers = forked.environment(jobs=jobs) or plain_environment()
    names = (environment.keys() | servers.keys()) - {*READ_LATE}
    early = [name for name in names if name.startswith(READ_EARLY)]
    return any(environment.get(name) != servers.get(name) for name in early)
