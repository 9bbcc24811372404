"""Running scripts as a user does: under `python`, and under the installed `tracer record`."""

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

import pytest

from tracer import _build_info
from tracer.cli.record import LEFT_OUT
from tracer.recording import kept

ADDRESS = re.compile(r"0x[0-9a-f]+")  # in a message of Python, another one in each process
# Python 3.14 warns so in some runs, with and without tracer, if workers end while their queue is freed.
SOME_RUNS = re.compile(r"^\S*/resource_tracker\.py:\d+: UserWarning: .*\n(?:  .*\n)*", re.MULTILINE)
OUR_LINES = re.compile(r"^tracer: .*\n(?:  .*\n)*", re.MULTILINE)
SANITIZER = ("LD_PRELOAD", "PYTHONMALLOC") if {"ASAN_OPTIONS", "TSAN_OPTIONS"} & os.environ.keys() else ()
TIMEOUT = 900  # seconds; only what hangs takes so long, also on a machine that does ten other things


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

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tracer = Path(sysconfig.get_path("scripts")) / "tracer"
        others = ("TRACER_", "PYTEST_", "PYTHONUNBUFFERED")  # Python buffers its output for most people
        self.environment = {name: text for name, text in os.environ.items() if not name.startswith(others)}
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

    def both(self, *arguments: str, **options: object) -> tuple[Run, Run]:
        """The same command under python and under tracer, whose trace goes to `both.trace`.

        What `make sanitize` loads before Python is about tracer's code: python alone runs without it.
        """
        plain = self.run([sys.executable, *arguments], without=SANITIZER, **options)
        traced = self.record("--force", "-o", "both.trace", *arguments, **options)
        return plain, traced

    def same(self, *arguments: str, **options: object) -> Run:
        """Run under both, and require the same status, stdout and stderr. Returns the traced run."""
        plain, traced = self.both(*arguments, **options)
        errors = [SOME_RUNS.sub("", ADDRESS.sub("0x...", text)) for text in (traced.own_err, plain.err)]
        assert (traced.status, traced.out, errors[0]) == (plain.status, plain.out, errors[1])
        return traced

    def start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # as a terminal would: a test run in the background may ignore SIGINT
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
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
    ) -> Run:
        environment = {name: text for name, text in self.environment.items() if name not in without}
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environment | (extra or {}),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        return Run(done.returncode, done.stdout, done.stderr)
