"""Work that may end the process is done in forks of it: calls of operators, with stock and with overrides."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

T = TypeVar("T")

_LONGEST = 10.0
"""Seconds without any processor time: it waits for what a fork does not have, such as OpenMP's threads"""


@dataclass(frozen=True)
class Ended:
    """How a process ended in the middle of its work."""

    status: int

    def __str__(self) -> str:
        code = os.waitstatus_to_exitcode(self.status)
        if code >= 0:
            return f"with status {code}"
        name = signal.strsignal(-code)
        return f"by signal {-code}" + (f" ({name})" if name else "")


def said_of(ended: Ended) -> str:
    return f"the override ended the process {ended}"


def end_of(call: Callable[[], Any]) -> str:
    """How the override's call ends the process, by making it in a fork; "": it does not."""

    def make(_: int) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what it says is said by the call in this process, too
        with suppress(Exception, SystemExit):
            call()

    with closing(in_forks(1, make)) as made:
        ((_, found),) = made
    return said_of(found) if isinstance(found, Ended) else ""


def may_differentiate() -> bool:
    """Whether backward runs in a fork: not if autograd had started threads for a GPU before."""

    def backward(_: int) -> bool:
        import torch

        try:
            torch.ones(1, requires_grad=True).sum().backward()
        except RuntimeError:
            return False
        return True

    with closing(in_forks(1, backward)) as made:
        ((_, found),) = made
    return isinstance(found, Done) and found.result


@dataclass(frozen=True)
class Waits:
    """It waits for something; nothing after it was done."""


@dataclass(frozen=True)
class Done(Generic[T]):
    result: T


_InForks = Generator[tuple[int, Done[T] | Ended | Waits], None, None]
"""Close it: else a fork goes on"""


def in_forks(
    count: int, do: Callable[[int], T], wanted: Callable[[int], bool] = lambda _: True
) -> _InForks[T]:
    """`do(0)`, `do(1)`, ... in a fork; after one that ends it, in the next fork. Results are pickled."""
    begin = 0
    while begin < count:
        with closing(_in_one_fork([n for n in range(begin, count) if wanted(n)], do)) as done:
            for place, found in done:
                yield place, found
                begin = place + 1
                if isinstance(found, Waits):
                    return
        if not any(wanted(n) for n in range(begin, count)):
            return


def _in_one_fork(places: list[int], do: Callable[[int], T]) -> _InForks[T]:
    reading, writing = Pipe(duplex=False)
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _work(places, do, writing)
    writing.close()
    status: int | None = None
    try:
        for place in places:
            if not _has_said(reading, child):
                yield place, Waits()
                return
            try:
                found = reading.recv()
            except EOFError:
                _, status = os.waitpid(child, 0)
                yield place, Ended(status)
                return
            yield place, Done(found)
    finally:
        reading.close()
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _has_said(reading: Connection, child: int) -> bool:
    """False: the child has used no processor time for long."""
    used = _processor_time(child)
    while not reading.poll(_LONGEST):
        before, used = used, _processor_time(child)
        if used == before:
            return False
    return True


def _processor_time(process: int) -> int:
    fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
    return int(fields[11]) + int(fields[12])


def _work(places: list[int], do: Callable[[int], Any], writing: Connection) -> NoReturn:
    import torch

    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT, signal.SIGILL):
            signal.signal(number, signal.SIG_DFL)
        torch.set_num_threads(1)  # a fork does not have the threads of OpenMP
        for place in places:
            writing.send(do(place))
            sys.stdout.flush()
        os._exit(0)
    finally:
        os._exit(1)
