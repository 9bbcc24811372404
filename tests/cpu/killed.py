"""Recordings that are killed. Run as a script: python killed.py FOLDER MOMENT...

Forks a process for each moment, which records threads that run ops until it is killed with SIGKILL.
A moment is PHASE:SECONDS, counted from when all threads run ("run"), when stop() begins ("stop") or
when the file is being trimmed ("trim"). Each thread counts the op calls that it has begun and ended
in a shared file, which outlives the kill as the trace does.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tracer.trace.bytes import format as fmt

OPS = ("aten::neg", "aten::matmul", "aten::sum")  # what the threads call, one each
CALLS_BEFORE_STOP = 6_000
PR_SET_PDEATHSIG = 1


class Progress:
    """{begun, ended} op calls of each thread, its OS thread id, and whether stop() has begun."""

    SIZE = 4096

    def __init__(self, path: Path) -> None:
        path.touch()
        os.truncate(path, self.SIZE)
        with path.open("r+b") as file:
            # a view of words: each is stored at once, where struct.pack_into writes zeros first
            self._words = memoryview(mmap.mmap(file.fileno(), self.SIZE)).cast("Q")

    def set(self, thread: int, field: int, value: int) -> None:
        self._words[8 * thread + field] = value

    def get(self, thread: int, field: int) -> int:
        return self._words[8 * thread + field]

    BEGUN, ENDED, THREAD_ID = range(3)
    STOPPING = len(OPS)  # in the place of a further thread


def calls() -> list[Callable[[int], object]]:
    """For each thread: its n-th op call, with a new signature now and then."""
    import torch

    rows = torch.arange(400.0).view(20, 20).requires_grad_()
    inputs = [rows[: 1 + n % 20, : 1 + n // 20].detach() for n in range(400)]
    return [
        lambda n: torch.neg(inputs[n // 10 % 400]),
        lambda n: torch.matmul(rows, rows),
        lambda n: torch.sum(inputs[n % 400]),
    ]


def work(progress: Progress, thread: int, call: Callable[[int], object], limit: int | None) -> None:
    progress.set(thread, Progress.THREAD_ID, threading.get_native_id())
    n = 0
    while limit is None or n < limit:
        progress.set(thread, Progress.BEGUN, n + 1)
        call(n)
        n += 1
        progress.set(thread, Progress.ENDED, n)


def record_until_killed(folder: Path, number: int, limit: int | None) -> None:
    import tracer

    progress = Progress(folder / f"{number}.progress")
    run = calls()
    tracer.start(folder / f"{number}.trace")
    threads = [
        threading.Thread(target=work, args=(progress, thread, call, limit)) for thread, call in enumerate(run)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    progress.set(Progress.STOPPING, 0, 1)
    tracer.stop()
    while True:
        time.sleep(1)


def reached(phase: str, progress: Progress, trace: Path) -> bool:
    if phase == "run":
        return all(progress.get(thread, Progress.BEGUN) for thread in range(len(OPS)))
    if not progress.get(Progress.STOPPING, 0):
        return False
    with trace.open("rb") as file:
        header = fmt.unpack_file_header(file.read(fmt.FILE_HEADER.size))
    return phase == "stop" or header.state == fmt.CLOSED


def main(folder: Path, moments: list[str]) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is there: set_num_threads() is for one thread only
    import torch  # noqa: F401

    for number, moment in enumerate(moments):
        phase, delay = moment.split(":")
        child = os.fork()
        if child == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # if this script is ended before it
            try:
                record_until_killed(folder, number, None if phase == "run" else CALLS_BEFORE_STOP)
            finally:
                os._exit(1)
        progress = Progress(folder / f"{number}.progress")
        while not reached(phase, progress, folder / f"{number}.trace"):
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "the recording ended by itself"
            time.sleep(0.0002)  # not 0: the core is the recording's
        time.sleep(float(delay))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
