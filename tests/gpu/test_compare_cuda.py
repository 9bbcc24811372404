"""Comparing on a GPU: host, wall and GPU time, graphs, memory, chains down to the device kernel."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from lazily import torch

import tracer
from tracer import overrides
from tracer.analysis.limits import Limits
from tracer.compare.accuracy import check
from tracer.compare.call_memory import memory_of
from tracer.compare.cases import CUDA, STRICT, TF32, Case
from tracer.compare.measurement import Settings, compare_cases
from tracer.compare.model import CaseResult, Comparison
from tracer.compare.switch import Switch
from tracer.compare.timing import measure
from tracer.compare.workload import precision, prepare, without_warnings

PRODUCT = Case("mm", "mm", ((64, 512), (512, 256)), mode=STRICT)
GRU = Case("gru", "gru", ((4, 8, 32), (64,)), mode=TF32, backward=True)
NAME = "tested_on_gpu"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = torch._C._dispatch_dump_table("aten::mm")
    yield
    assert torch._C._dispatch_dump_table("aten::mm") == before
    if NAME in overrides.registered():
        overrides.unregister(NAME)


def compared(*cases: Case, pairs: int = 5) -> Comparison:
    return compare_cases("test", cases, Switch([NAME]), Settings(pairs=pairs), lambda text: nullcontext())


def of_mm(function: object) -> None:
    overrides.register("aten::mm", "CUDA", function, name=NAME)


def in_two_kernels(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    return torch.mm(self, mat2).add_(0)


def test_an_override_that_launches_one_kernel_more() -> None:
    of_mm(in_two_kernels)
    (result,) = compared(PRODUCT, pairs=20).cases
    assert result.passed, result
    assert result.chains is not None
    stock, override = result.chains.stock, result.chains.override
    assert override.counts.launches == stock.counts.launches + 1
    assert override.gpu_ns > stock.gpu_ns > 0
    assert [link.kind for link in override.links].count("kernel") >= 2
    assert result.gpu is not None
    assert result.wall is not None
    assert result.host is not None
    assert 0 < result.gpu.stock.median < result.wall.stock.median
    assert result.gpu.ratio.value < 1
    assert result.limit is not None
    assert result.limit.ns < result.gpu.stock.median


def test_the_gpu_is_described_where_cuda_was_used_before_the_recording(tmp_path: Path) -> None:
    a = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    with tracer.record(tmp_path / "late.trace", cuda="on"):
        b = a.clone()
    described = tracer.load(tmp_path / "late.trace").devices
    facts, properties = described.row(0, named=True), torch.cuda.get_device_properties(0)
    assert len(described) == torch.cuda.device_count()
    assert facts["name"] == properties.name
    assert facts["numMultiprocessors"] == properties.multi_processor_count
    assert (facts["computeCapabilityMajor"], facts["computeCapabilityMinor"]) == (
        properties.major,
        properties.minor,
    )
    assert facts["l2CacheSize"] == properties.L2_cache_size
    assert facts["globalMemorySize"] == properties.total_memory
    assert facts["maxWarpsPerMultiprocessor"] == properties.max_threads_per_multi_processor // 32
    limits = Limits.of(facts)
    times = measure(lambda: b.copy_(a), nullcontext, CUDA, pairs=3, seconds=10)
    reached = 2 * a.numel() / (min(times.gpu.stock) * 1e-9)
    assert 0.5 < reached / limits.bytes_per_s < 1


def test_weights_that_stock_copies_together_are_noted_and_not_warned_of() -> None:
    for dtype in ("float32", "bfloat16"):
        workload = prepare(Case("gru", "gru", ((2, 4, 8), (16,)), dtype), "cuda")
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            workload.run()
            copied = [warning for warning in warned if "single contiguous chunk" in str(warning.message)]
            assert bool(copied) == bool(workload.note), (dtype, workload.note)
            warned.clear()
            with without_warnings():
                workload.run()
        assert not [warning for warning in warned if "single contiguous chunk" in str(warning.message)]


def test_a_call_that_waits_for_the_gpu_is_not_captured_and_the_next_one_is() -> None:
    a = torch.ones(8, device="cuda")
    times = measure(lambda: a.sum().item(), nullcontext, CUDA, pairs=2, seconds=30)
    assert times.gpu.stock == []
    assert "cannot be captured in a CUDA graph" in times.why_no_gpu
    assert measure(lambda: a + 1, nullcontext, CUDA, pairs=2, seconds=30).gpu.stock


def test_memory_is_that_of_the_caching_allocator() -> None:
    found = memory_of(lambda: torch.empty(1 << 20, dtype=torch.uint8, device="cuda").add_(1), CUDA)
    assert found is not None
    assert (found.allocations, found.allocated, found.peak) == (1, 1 << 20, 1 << 20)


def test_the_gradients_of_a_gru_are_compared_without_a_graph() -> None:
    of_mm(in_two_kernels)
    (result,) = compared(GRU).cases
    assert not result.failed, result.failed
    assert {found.output for found in result.checks} >= {"output", "h_n", "grad x", "grad weight_hh_l0"}
    assert result.why_no_gpu == "a backward pass is not captured in a graph"
    assert result.gpu is None


def test_tf32_is_wrong_where_strict_is_asked_for() -> None:
    results = {}
    for mode in (STRICT, TF32):
        case = Case("mm", "mm", ((256, 1024), (1024, 256)), mode=mode)
        with precision(case):
            results[mode] = prepare(case, "cuda").run()
    strict = Case("mm", "mm", ((256, 1024), (1024, 256)), mode=STRICT)
    from tracer.compare.bounds import bound_of

    ((exact, scale),) = prepare(strict, "cuda").exact().values()
    bound = bound_of(strict, "result")
    assert not check("result", bound, results[STRICT], results[STRICT], exact, scale).wrong
    assert check("result", bound, results[STRICT], results[TF32], exact, scale).wrong


def test_a_wrong_element_on_the_gpu_is_found() -> None:
    def wrong(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
        result = torch.mm(self, mat2)
        result[5, 7] += 1
        return result

    of_mm(wrong)
    result: CaseResult = compared(PRODUCT).cases[0]
    assert result.wrong[0].worst is not None
    assert result.wrong[0].worst.index == (5, 7)
