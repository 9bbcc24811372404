"""One trial: a folder, a source of chance, and what a trace must say of what ran."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import polars as pl
from launching import Launcher

import tracer
from tracer.trace.bytes import format as fmt

SCRIPTS = Path(__file__).parent / "scripts"
THREADS = 3
_PR_SET_PDEATHSIG = 1
PATIENCE = 300  # seconds until something counts as hanging


class Progress:
    """What scripts/threads.py writes as it runs, in memory that outlives it: see there."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(4096))
        with path.open("r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), 4096)).cast("Q")

    def phase(self) -> int:
        return int(self._words[0])

    def began(self, phase: int) -> float:
        """When a phase began, in seconds of CLOCK_MONOTONIC; 0 if it did not."""
        return self._words[phase] / 1e9

    def threads(self) -> list[tuple[int, int, int]]:
        """(OS thread id, op calls begun, op calls ended) of each thread that ran, of children too."""
        lines = [tuple(self._words[at : at + 3]) for at in range(8, 8 * (THREADS + 4), 8)]
        return [(thread, begun, ended) for thread, begun, ended in lines if thread]

    def wait_for(self, phase: int, process: subprocess.Popen[str]) -> None:
        end = time.monotonic() + PATIENCE
        while self.phase() < phase:
            assert process.poll() is None, f"the script ended by itself with {process.returncode}"
            assert time.monotonic() < end, "the script hangs"
            time.sleep(0.0005)


class Case(Launcher):
    """A trial's folder is empty at first. `draw` is seeded, so that a trial can be made again."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder)
        self.draw = random.Random(seed)
        self.environment["OMP_NUM_THREADS"] = "1"

    def script(self, name: str) -> str:
        """A copy of one of scripts/ in this folder; its name."""
        shutil.copy(SCRIPTS / name, self.folder)
        return name

    def begin(self, *arguments: str, extra: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """`tracer record` in a process group of its own, with pipes."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [str(self.tracer), "record", *arguments],
            cwd=self.folder,
            env=self.environment | (extra or {}),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            start_new_session=True,
            preexec_fn=_end_with_the_matrix,
        )

    def trace(self, name: str = "run.trace") -> tracer.Trace:
        return tracer.load(self.folder / name)

    def left_over(self, *expected: str) -> list[str]:
        return sorted(set(os.listdir(self.folder)) - {*expected, "__pycache__"})

    def was_closed(self, name: str = "run.trace") -> bool:
        with (self.folder / name).open("rb") as file:
            return fmt.unpack_file_header(file.read(fmt.FILE_HEADER.size)).state == fmt.CLOSED


def _end_with_the_matrix() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_group(process: subprocess.Popen[str]) -> None:
    """Ends a process of Case.begin() and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.communicate()


def calls(trace: tracer.Trace, op: str = "aten::neg") -> pl.DataFrame:
    """The calls of an op that the script made itself."""
    hops = trace.hops.with_columns(pl.col("op").cast(pl.String))
    return hops.filter((pl.col("op") == op) & pl.col("parent").is_null())


def assert_honest(trace: tracer.Trace, ran: int, said: str = "") -> None:
    """A trace that lacks calls does not say that it is complete, nor did its recording."""
    seen = calls(trace).height
    assert seen <= ran, f"{seen} calls in the trace, {ran} ran"
    certificate = trace.certificate
    assert certificate["complete"] is certificate["verdict"].startswith("complete"), certificate["verdict"]
    assert seen == ran or not certificate["complete"], f"complete, with {seen} calls of {ran}"
    assert seen == ran or "  complete" not in said, f"said to be complete, with {seen} calls of {ran}"


def assert_whole(trace: tracer.Trace, ran: int) -> None:
    """All is there, and the trace says so."""
    assert calls(trace).height == ran, f"{calls(trace).height} calls in the trace, {ran} ran"
    assert trace.certificate["complete"] is True, trace.certificate["verdict"]


def assert_all_calls(trace: tracer.Trace, ran: int) -> None:
    """All is there. A process that ended by os._exit ended without a stop, and nothing else is missing."""
    assert calls(trace).height == ran, f"{calls(trace).height} calls in the trace, {ran} ran"
    _, _, missing = trace.certificate["verdict"].partition(" hops; ")
    assert not missing or missing.endswith("ended without a stop"), trace.certificate["verdict"]


def assert_undamaged(trace: tracer.Trace) -> None:
    for count in ("damaged_chunks", "missing_chunks", "missing_bytes", "undefined_hops"):
        assert trace.certificate[count] == 0, f"{count}: {trace.certificate[count]}"
