"""Analyses traces in processes of this machine."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice

from tracer.base.interpreter import helper
from tracer.base.progress import listening
from tracer.fleet.work import Part, Task, analyse, unread

MAIN = "from tracer.fleet.processes import serve; serve()"


class Processes:
    """Runs tasks in `number` processes, one at a time in each. A process that dies takes one trace along."""

    def __init__(self, number: int) -> None:
        self._number = number

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, list[Part]]]:
        """The parts of each task, in the order in which they are done. A task is taken when it can begin."""
        return self._one(tasks) if self._number == 1 else self._several(iter(tasks))

    def _one(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, list[Part]]]:
        """In this process: what is in its memory (fsspec's memory://) is seen by no other one."""
        for task in tasks:
            with listening(lambda _: None):  # how far one trace is says nothing of all
                parts = analyse(task)
            yield task, parts

    def _several(self, waiting: Iterator[Task]) -> Iterator[tuple[Task, list[Part]]]:
        workers = [_Worker(self._number) for _ in range(self._number)]
        free = list(workers)
        running: dict[Future[list[Part]], tuple[Task, _Worker]] = {}
        with ThreadPoolExecutor(self._number) as threads:
            try:
                while True:
                    for task in islice(waiting, len(free)):
                        worker = free.pop()
                        running[threads.submit(worker.analyse, task)] = task, worker
                    if not running:
                        return
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        task, worker = running.pop(future)
                        free.append(worker)
                        yield task, future.result()
            finally:
                for worker in workers:
                    worker.end()


class _Worker:
    """A process that analyses one task after the other: see `serve`.

    multiprocessing would fork, which polars' threads do not survive, or import the program's main module
    again, and its pool gives up all tasks where one process dies.
    """

    def __init__(self, of: int) -> None:
        self._threads = max(1, len(os.sched_getaffinity(0)) // of)
        self._process: subprocess.Popen[bytes] | None = None

    def analyse(self, task: Task) -> list[Part]:
        process = self._process = self._process or self._begin()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(task, process.stdin)
            process.stdin.flush()
            return pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            self._process = None
            return [unread(task.trace, _why(process))]

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            _close(self._process)

    def _begin(self) -> subprocess.Popen[bytes]:
        # Polars takes all processors in each process, if nothing says otherwise.
        environment = {"POLARS_MAX_THREADS": str(self._threads), **os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        return subprocess.Popen(helper(MAIN), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


def serve() -> None:
    """Reads tasks from stdin and writes their parts to stdout, until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)  # whatever prints must not write into the results
        while True:
            try:
                task = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            pickle.dump(analyse(task), out)
            out.flush()


def _why(process: subprocess.Popen[bytes]) -> str:
    status = _close(process)
    if status == -signal.SIGKILL:
        return "the process that read it was killed, perhaps for its memory; use fewer processes: -j 1"
    ended = f"signal {-status}" if status < 0 else f"status {status}"
    return f"the process that read it ended with {ended}; its error: tracer report FILE"


def _close(process: subprocess.Popen[bytes]) -> int:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                pass
    return process.wait()
