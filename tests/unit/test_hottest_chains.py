"""The chain of a report that leads to the device kernel."""

from __future__ import annotations

import pytest
from cuda_frames import CudaBuilder
from cuda_training import US, hottest, launches, placement, training
from frames import hop

from tracer.report.mermaid import flowchart
from tracer.report.reading import Reading
from tracer.report.report import render
from tracer.report.sections import head


def test_the_hottest_paths_lead_to_the_device_kernel() -> None:
    report = Reading(training(), "t")
    text = render(report)
    chain = (
        "`aten::matmul [AutogradCUDA]` -> `aten::mm [AutogradCUDA]` -> `aten::mm [CUDA]` `mm_CUDA` -> "
        "`cublasSgemm_v2(N, N, m=64, n=64, k=64)` -> `cudaLaunchKernelExC(grid 2, block 64)` -> "
        "`sm80_xmma_gemm f32 nn n 32x32x8 ffma` 3.3 us |"
    )
    assert chain in text
    assert head.data(report).totals.hops == 20
    assert sum(path.share for path in hottest(report)) == pytest.approx(1)
    matmul = next(path for path in hottest(report) if path.op == "aten::matmul")
    assert matmul.hops == 3
    chart = flowchart(matmul.nodes)
    assert "  h3 --> h4\n" in chart
    assert "GPU 3.3#160;us" in chart
    assert "  h4 -.-> h5" in chart


def test_the_chain_follows_what_takes_far_longer_than_the_work_of_the_gpu() -> None:
    text = render(Reading(placement().cuda_trace(), "t"))
    chain = "`aten::_to_copy [CUDA]` -> `aten::empty_strided [CUDA]` `empty_strided_CUDA` |"
    assert chain in text
    assert "### 1. `aten::_to_copy [CUDA]`: 100.0 % of the time in ops" in text


def test_the_chain_ends_in_a_call_that_takes_most_of_the_time() -> None:
    builder = placement()
    start = builder.rows[1]["start_ns"]
    builder.api("cudaMalloc", "memory allocation", start, start + 300_000 * US, hop=1)
    text = render(Reading(builder.cuda_trace(), "t"))
    assert "`empty_strided_CUDA` -> `cudaMalloc` 300.0 ms |" in text
    assert "### 1. `aten::_to_copy [CUDA]` -> `cudaMalloc`: 100.0 % of the time in ops" in text


def test_a_kernel_that_takes_longer_than_the_host_leads_the_chain() -> None:
    builder = placement()
    activity = builder.activity_rows[0]
    activity["end_ns"] = activity["start_ns"] + 900_000 * US
    assert "-> `memcpy HtoD (pageable -> device)`: 100.0 %" in render(Reading(builder.cuda_trace(), "t"))


def test_the_chain_follows_the_most_gpu_time() -> None:
    report = Reading(launches(3 * US, 12 * US).cuda_trace(), "t")
    text = render(report)
    assert "### 1. `aten::mm [CUDA]` -> `k1`: 100.0 % of the time in ops" in text
    assert "-> `cudaLaunchKernel(grid 8, block 128)` -> `k1` 12.0 us |" in text
    assert "k1" in flowchart(hottest(report)[0].nodes, limit=1)


def test_the_chain_passes_what_takes_the_host_a_little_longer_than_the_gpu() -> None:
    builder = CudaBuilder()
    empty, fill = (
        hop(f"aten::{name}", "CUDA", self_ns=ns) for name, ns in (("empty", 40_000), ("fill_", 9000))
    )
    builder.calls(hop("aten::ones", "CUDA", empty, fill))
    start = builder.rows[2]["start_ns"]
    call = builder.api("cudaLaunchKernel", "launch", start + US, start + 5 * US, hop=2)
    builder.kernel("fill", start + 6 * US, start + 7 * US, call)
    assert "### 1. `aten::ones [CUDA]` -> `fill`: " in render(Reading(builder.cuda_trace(), "t"))


def test_a_chain_says_how_many_more_arguments_its_time_is_of() -> None:
    text = render(Reading(launches(3 * US, grids=(8, 9, 8)).cuda_trace(), "t"))
    assert "-> `cudaLaunchKernel(grid 8, block 128 and 1 more)` -> `k0` 3.0 us |" in text


def test_time_on_the_gpu_has_a_unit_of_its_own() -> None:
    builder = placement()
    row = next(line for line in render(Reading(builder.cuda_trace(), "t")).splitlines() if "| 1    |" in line)
    assert "| 405.10 ms |" in row
    assert "| 1.20 us |" in row
