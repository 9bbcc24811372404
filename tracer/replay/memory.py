"""The memory that a replay takes: counted before it runs, and limited while it does."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from tracer.replay.call import Call
from tracer.replay.make import plans
from tracer.replay.replay_errors import CannotReplayError
from tracer.report.text import size as size_text

_SHARE = 0.5
"""Of the memory of the machine"""
_FLOAT64 = 8
_COMPARED = 7
"""Tensors of float64 that are there at once where a result is compared with it: see accuracy.deviation"""


def most() -> int:
    """Bytes that a replay may take."""
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * _SHARE)


@contextmanager
def limited() -> Iterator[None]:
    """Whatever needs more raises; CUDA reserves addresses that it never uses, so not with a GPU.

    The trace chooses the sizes, and torch cannot tell all of them before. Raises CannotReplayError.
    """
    import torch

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounds = [most(), *(bound for bound in (soft, hard) if bound != resource.RLIM_INFINITY)]
    if not torch.cuda.is_available():
        resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
    try:
        yield
    except Exception as error:
        if is_for_want_of_memory(error):
            raise CannotReplayError(f"the call needs more than {_limit()}") from error
        raise
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def is_for_want_of_memory(error: Exception) -> bool:
    """Torch has an error of its own for its tensors on the CPU."""
    return isinstance(error, MemoryError) or "DefaultCPUAllocator: can't allocate" in str(error)


def check_copies(call: Call, sides: int) -> str:
    """Why the results cannot be compared with float64; "" if they can.

    sides   how many run on the CPU: the call as it was, and changed

    Raises CannotReplayError if what is there at once is too much: inputs and results of each side, and those
    of two more runs.
    """
    if not sides:
        return ""
    inputs, results = call.bytes_of_inputs, call.returned.bytes
    held = sides * inputs + (sides + 2) * results
    if held > most():
        raise CannotReplayError(
            f"{call.name} takes {size_text(inputs)} for its inputs and {size_text(results)} for its results. "
            f"A replay has these {sides} and {sides + 2} times at once, and takes up to {_limit()}; "
            "to run it once: --script OUT.py"
        )
    wide = sum(math.prod(plan.shape) for plan in plans(call.values))
    compared = held + _FLOAT64 * (wide + _COMPARED * call.returned.elements)
    if compared > most():
        return f"that would take {size_text(compared)} of memory, and a replay takes up to {_limit()}"
    return ""


def _limit() -> str:
    return f"{size_text(most())}, half of the memory of this machine"
