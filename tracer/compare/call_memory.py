"""What a call allocates through torch's allocators."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate

from tracer.compare.cases import CUDA


@dataclass(frozen=True)
class Memory:
    """Of one call, in bytes: allocated in all, and the most that was in use at once beyond the start.

    What a kernel gets elsewhere (numpy, cudaMalloc, a library's own workspace) is not in it.
    """

    allocations: int
    allocated: int
    peak: int


def memory_of(run: Callable[[], object], device: str) -> Memory | None:
    """The call's own, without what was set up at the first call. None where torch cannot say."""
    run()
    return _on_gpu(run) if device == CUDA else _on_cpu(run)


def _on_gpu(run: Callable[[], object]) -> Memory:
    import torch

    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()
    result = run()
    after = torch.cuda.memory_stats()
    del result
    total = "allocated_bytes.all.allocated"
    current = "allocated_bytes.all.current"
    return Memory(
        after["allocation.all.allocated"] - before["allocation.all.allocated"],
        after[total] - before[total],
        after["allocated_bytes.all.peak"] - before[current],
    )


def _on_cpu(run: Callable[[], object]) -> Memory | None:
    import torch
    from torch.profiler import ProfilerActivity, profile

    if not torch.autograd.kineto_available():
        return None
    with _quiet(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = run()
    del result
    events = profiler.profiler.kineto_results.events()
    changes = sorted(
        (event.start_ns(), event.nbytes())
        for event in events
        if event.name() == "[memory]" and event.device_type() == torch.autograd.DeviceType.CPU
    )
    sizes = [size for _, size in changes]
    return Memory(
        sum(size > 0 for size in sizes),
        sum(size for size in sizes if size > 0),
        max(accumulate(sizes), default=0),
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Kineto writes two lines to stderr for each profile, and torch 2.11 and 2.12 warn of several cycles."""
    level = "KINETO_LOG_LEVEL"
    was = os.environ.get(level)
    os.environ.setdefault(level, "99")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning: Profiler clears events")
            yield
    finally:
        if was is None:
            del os.environ[level]
