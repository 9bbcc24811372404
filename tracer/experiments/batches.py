"""What a batch costs the step if a worker made it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from tracer.advice.experiments import WorkerBatch
from tracer.base.boundary import torch_dtype

BATCHES = 16
_LEAST_OF_MEDIAN = 3
"""Of 16 sorted samples, the 4th and the 4th last enclose the median with 97.9 %"""
_LONGEST_PAUSE, _SHORTEST_PAUSE = 0.1, 0.005


def worker_batch(experiment: WorkerBatch) -> dict[str, Any]:
    """Nanoseconds from asking for a batch to having it: median, and its 95 % interval; how two halves differ.

    Between two batches nothing runs for as long as the rest of a step took, 0.1 s at most.
    """
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    batch = [torch.zeros(tuple(shape), dtype=torch_dtype(dtype)) for shape, dtype in experiment.tensors]

    class Ready(IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            while True:
                yield batch

    pause = min(max(experiment.pause_ns / 1e9, _SHORTEST_PAUSE), _LONGEST_PAUSE)
    batches = iter(DataLoader(Ready(), batch_size=None, num_workers=1))
    next(batches)
    taken = []
    for _ in range(BATCHES):
        time.sleep(pause)
        begin = time.perf_counter_ns()
        next(batches)
        taken.append(time.perf_counter_ns() - begin)
    middle = median(taken[: BATCHES // 2]) / median(taken[BATCHES // 2 :])
    taken.sort()
    interval = (taken[_LEAST_OF_MEDIAN], taken[-1 - _LEAST_OF_MEDIAN])
    return {"ns": (median(taken), *interval), "again": (middle, 1.0, 1.0)}
