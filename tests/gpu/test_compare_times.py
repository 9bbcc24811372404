"""Times that `tracer compare` takes, where nothing else uses the GPU."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from lazily import torch

from tracer.compare.cases import CUDA, Case
from tracer.compare.timing import measure
from tracer.compare.workload import COLD_BYTES, cold_runs, prepare


def test_gpu_time_of_a_large_product_is_that_of_its_kernel() -> None:
    a = torch.randn(4096, 4096, device="cuda")
    times = measure(lambda: torch.mm(a, a), nullcontext, CUDA, pairs=5, seconds=30)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(20):
        torch.mm(a, a)
    end.record()
    end.synchronize()
    expected = start.elapsed_time(end) / 20 * 1e6
    for samples in (times.gpu.stock, times.gpu.override, times.wall.stock):
        assert sorted(samples)[2] == pytest.approx(expected, rel=0.15)


def test_cold_calls_read_their_inputs_from_memory() -> None:
    """A row by a matrix of 33 MB, which L2 holds: its bytes take longer from memory."""
    workload = prepare(Case("mm", "mm", ((1, 4096), (4096, 4096)), "bfloat16"), CUDA)
    cold = cold_runs(workload, CUDA)
    assert len(cold) == 1 + -(-COLD_BYTES // (2 * 4096 * 4097))
    times = measure(workload.run, nullcontext, CUDA, pairs=5, seconds=30, cold=cold)
    assert sorted(times.cold.stock)[2] > 1.05 * sorted(times.gpu.stock)[2]
