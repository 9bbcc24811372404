"""Which calls end stock's own process: some kernels of PyTorch check nothing."""

from __future__ import annotations

import os
import resource
import select
import signal
from collections.abc import Sequence
from typing import NoReturn

from tracer.compare.trial_samples import Sample

_LONGEST = 10.0
"""Seconds of one call; a longer one is no crash, and is judged elsewhere"""


def ending(samples: Sequence[Sample]) -> list[int]:
    """Their places. Each call is made once, in a fork of this process."""
    found: list[int] = []
    begin = 0
    while begin < len(samples):
        made, ended = _made_in_a_fork(samples[begin:])
        begin += made
        if ended and made:
            found.append(begin - 1)
        elif not made or begin < len(samples):  # it waits for something that the fork does not have
            break
    return found


def _made_in_a_fork(samples: Sequence[Sample]) -> tuple[int, bool]:
    """How many calls were begun, and whether the last of them ended the process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _make(samples, writing)
    os.close(writing)
    made = 0
    with os.fdopen(reading, "rb", 0) as begun:
        while select.select([begun], [], [], _LONGEST)[0]:
            if not (told := begun.read(1 << 12)):
                _, status = os.waitpid(child, 0)
                return made, os.WIFSIGNALED(status)
            made += len(told)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return made, False


def _make(samples: Sequence[Sample], writing: int) -> NoReturn:
    """In the fork: a byte before each call. What they raise is judged elsewhere."""
    import torch

    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what torch or a fault handler says of the end
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT):
            signal.signal(number, signal.SIG_DFL)
        torch.set_num_threads(1)  # a fork does not have the threads of OpenMP
        for sample in samples:
            os.write(writing, b".")
            try:
                positional, others = sample.make()
                sample.call(*positional, **others)
            except BaseException:
                continue
    finally:
        os._exit(0)
