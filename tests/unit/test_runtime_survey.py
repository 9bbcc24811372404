"""What the CUDA API calls of a trace cost, where they came from and which of them waited."""

from __future__ import annotations

import pytest
from cuda_frames import CudaBuilder
from frames import FakeTrace, hop

from tracer.analysis import runtime_survey as survey
from tracer.analysis.runtime_survey import Steps

ALLOCATOR = ("c10::cuda::CUDACachingAllocator::alloc", "/x/libc10_cuda.so")
OPERATOR = ("at::native::add_kernel", "/x/libtorch_cuda.so")
GUARD = ("c10::cuda::impl::CUDAGuardImpl::setDevice", "/x/libc10_cuda.so")


def training() -> FakeTrace:
    """Four steps (two warm-up) of: an add that launches twice, and an item() that waits.

    In step 0 the allocator takes 2 MiB, in step 3 another 512 KiB.
    """
    builder = CudaBuilder()
    operator, allocator, guard = builder.stack(OPERATOR), builder.stack(ALLOCATOR), builder.stack(GUARD)
    for step in range(4):
        when = {"step": step, "phase": "warmup" if step < 2 else "steady"}
        add, item = 2 * step, 2 * step + 1
        builder.calls(hop("aten::add.Tensor", "CUDA", self_ns=50_000, source="train.py:3", **when))
        builder.calls(hop("aten::_local_scalar_dense", "CUDA", self_ns=50_000, source="train.py:4", **when))
        start = builder.rows[add]["start_ns"]
        builder.api("cudaGetDevice", "query", start + 1, start + 101, hop=add, stack=guard)
        if step in (0, 3):
            size = 2 << 20 if step == 0 else 512 << 10
            builder.api(
                "cudaMalloc", "memory allocation", start + 200, start + 9200, hop=add, stack=allocator,
                arguments=f"devPtr=0x7f0000, size={size}",
            )  # fmt: skip
        for time in (10_000, 20_000):
            launch = builder.api(
                "cudaLaunchKernel", "launch", start + time, start + time + 4000, hop=add, stack=operator
            )
            builder.kernel("add_kernel", start + time + 5000, start + time + 7000, launch)
        start = builder.rows[item]["start_ns"]
        copy = builder.api("cudaMemcpyAsync", "copy", start, start + 3000, hop=item)
        builder.activity(
            "memcpy", "memcpy DtoH (device -> pageable)", start + 1000, start + 2000, copy, bytes=4
        )
        builder.api("cudaStreamSynchronize", "synchronisation", start + 4000, start + 10_000, hop=item)
    builder.api("cudaDeviceSynchronize", "synchronisation", 500_000, 600_000, source="train.py:9")
    return builder.cuda_trace()


@pytest.fixture
def trace() -> FakeTrace:
    return training()


def calls(trace: FakeTrace):
    return survey.calls_with_context(trace)


def test_steps_are_counted_once_a_process(trace: FakeTrace) -> None:
    assert survey.count_steps(trace) == Steps(warmup=2, steady=2, too_few=False)


def test_functions_have_calls_and_time_a_step_of_each_phase(trace: FakeTrace) -> None:
    functions = survey.per_function(calls(trace), survey.count_steps(trace))
    assert functions.select(
        "name", "calls", "total_ns", "median_ns", "warmup_calls", "steady_calls", "warmup_ns", "steady_ns"
    ).rows() == [
        ("cudaDeviceSynchronize", 1, 100_000, 100_000, 0, 0, 0, 0),
        ("cudaLaunchKernel", 8, 32_000, 4000, 2, 2, 8000, 8000),
        ("cudaStreamSynchronize", 4, 24_000, 6000, 1, 1, 6000, 6000),
        ("cudaMalloc", 2, 18_000, 9000, 0.5, 0.5, 4500, 4500),
        ("cudaMemcpyAsync", 4, 12_000, 3000, 1, 1, 3000, 3000),
        ("cudaGetDevice", 4, 400, 100, 1, 1, 100, 100),
    ]


def test_functions_have_component_op_and_stack(trace: FakeTrace) -> None:
    functions = {row["name"]: row for row in survey.per_function(calls(trace), Steps(2, 2)).to_dicts()}
    malloc = functions["cudaMalloc"]
    assert malloc["components"] == [{"what": "caching allocator", "count": 2}]
    assert malloc["ops"] == [{"what": "aten::add.Tensor", "count": 2}]
    assert malloc["stack"] == 1
    assert functions["cudaDeviceSynchronize"]["ops"] == [{"what": None, "count": 1}]
    assert functions["cudaDeviceSynchronize"]["stack"] is None


def test_without_steps_there_is_nothing_a_step(trace: FakeTrace) -> None:
    functions = survey.per_function(calls(trace), Steps(0, 0))
    assert functions["steady_calls"].null_count() == len(functions)


def test_components_and_roles_add_up_to_all_calls(trace: FakeTrace) -> None:
    for table in (
        survey.per_component(calls(trace), Steps(2, 2)),
        survey.per_role(calls(trace), Steps(2, 2)),
    ):
        assert table["calls"].sum() == len(trace.api_calls)
        assert table["total_ns"].sum() == 186_400
    components = survey.per_component(calls(trace), Steps(2, 2))
    assert components.select("component", "calls").rows() == [
        ("unknown", 9),
        ("operators", 8),
        ("caching allocator", 2),
        ("guards and streams", 4),
    ]


def test_driver_calls_in_runtime_calls_count_but_their_time_does_not() -> None:
    builder = CudaBuilder().calls(hop("aten::add.Tensor", "CUDA", self_ns=9000))
    launch = builder.api("cudaLaunchKernel", "launch", 1000, 3000, hop=0)
    builder.api("cuLaunchKernel", "launch", 1500, 2500, hop=0, parent=launch)
    trace = builder.cuda_trace()
    functions = survey.per_function(calls(trace), Steps(0, 0))
    assert functions.select("name", "calls", "total_ns", "median_ns").rows() == [
        ("cudaLaunchKernel", 1, 2000, 2000),
        ("cuLaunchKernel", 1, 0, 1000),
    ]
    assert survey.launches_per_op(trace, calls(trace))["launches"].to_list() == [1]


def test_launches_per_op(trace: FakeTrace) -> None:
    assert survey.launches_per_op(trace, calls(trace)).rows() == [
        ("aten::add.Tensor", 4, 8, 2.0, 32_000, 16_000)
    ]


def test_launches_that_failed_or_were_captured_ran_nothing() -> None:
    builder = CudaBuilder().calls(hop("aten::add.Tensor", "CUDA", self_ns=9000))
    builder.api("cudaLaunchKernel", "launch", 1000, 2000, hop=0)
    builder.api("cudaLaunchKernel", "launch", 3000, 4000, hop=0, result=98)
    builder.api("cudaLaunchKernel", "launch", 5000, 6000, hop=0, captured=True)
    assert len(survey.launches_that_ran(calls(builder.cuda_trace()))) == 1


def test_waits_in_ops_are_hidden_and_those_of_the_script_are_not(trace: FakeTrace) -> None:
    hidden = survey.hidden_synchronisations(trace, calls(trace), survey.count_steps(trace))
    assert hidden.select("source", "op", "what", "count", "total_ns", "steady_calls", "steady_ns").rows() == [
        (
            "train.py:4",
            "aten::_local_scalar_dense",
            "cudaMemcpyAsync (device -> pageable) + cudaStreamSynchronize",
            4,
            36_000,
            1,
            9000,
        )
    ]


def test_blocking_copies_and_waits_in_libraries_are_hidden() -> None:
    builder = CudaBuilder().calls(hop("aten::nonzero", "CUDA", self_ns=9000))
    builder.api("cudaMemcpy", "copy", 100, 200, hop=0)
    builder.api("cudaMemcpyPeer", "copy", 300, 400, hop=0)
    builder.api(
        "cudaDeviceSynchronize",
        "synchronisation",
        10_000,
        10_500,
        library="libcublas",
        library_call="cublasCreate_v2",
    )
    builder.api("cudaStreamSynchronize", "synchronisation", 11_000, 11_500, hop=0, captured=True)
    trace = builder.cuda_trace()
    hidden = survey.hidden_synchronisations(trace, calls(trace), Steps(0, 0))
    assert hidden.select("op", "library_call", "what", "count", "total_ns").rows() == [
        (None, "cublasCreate_v2", "cudaDeviceSynchronize", 1, 500),
        ("aten::nonzero", None, "cudaMemcpy", 1, 100),
    ]


def test_copies_from_pageable_memory_are_hidden_waits_and_from_pinned_memory_are_not() -> None:
    builder = CudaBuilder().calls(hop("aten::copy_", "CUDA", self_ns=9000), times=2)
    for number, memory in enumerate(("pageable", "pinned")):
        start = builder.rows[number]["start_ns"]
        copy = builder.api("cudaMemcpyAsync", "copy", start + 100, start + 900, hop=number)
        builder.activity("memcpy", f"memcpy HtoD ({memory} -> device)", start + 200, start + 300, copy)
    trace = builder.cuda_trace()
    hidden = survey.hidden_synchronisations(trace, calls(trace), Steps(0, 0))
    assert hidden.select("what", "count", "total_ns").rows() == [
        ("cudaMemcpyAsync (pageable -> device)", 1, 800)
    ]


def test_steps_without_a_phase_are_counted() -> None:
    builder = CudaBuilder()
    for step in (0, 1, None):
        builder.calls(hop("aten::mm", "CUDA", step=step))
    assert survey.count_steps(builder.cuda_trace()) == Steps(0, 0, untold=2)


def test_only_allocations_of_steady_steps_are_shown(trace: FakeTrace) -> None:
    assert survey.steady_allocations(calls(trace)).rows() == [
        ("cudaMalloc", "train.py:3", None, "aten::add.Tensor", "caching allocator", 1, 512 << 10, 9000)
    ]


def test_copies(trace: FakeTrace) -> None:
    copies = survey.copies(trace.gpu_activities, Steps(2, 2))
    assert copies.select("name", "count", "bytes", "total_ns", "gb_per_s", "steady_calls").rows() == [
        ("memcpy DtoH (device -> pageable)", 4, 16, 4000, 0.004, 1)
    ]


def test_no_calls() -> None:
    trace = CudaBuilder().cuda_trace()
    none = calls(trace)
    steps = survey.count_steps(trace)
    assert steps == Steps(0, 0)
    for table in (
        survey.per_function(none, steps),
        survey.per_component(none, steps),
        survey.per_role(none, steps),
        survey.launches_per_op(trace, none),
        survey.hidden_synchronisations(trace, none, steps),
        survey.steady_allocations(none),
        survey.copies(trace.gpu_activities, steps),
    ):
        assert table.is_empty()
