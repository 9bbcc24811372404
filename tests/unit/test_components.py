"""Which component of PyTorch a native stack shows."""

from __future__ import annotations

import time

import polars as pl
import pytest
from cuda_frames import CudaBuilder

from tracer.analysis.components import DESCRIPTIONS, component_of, components

CUDA = "/x/torch/lib/libtorch_cuda.so"
C10 = "/x/torch/lib/libc10_cuda.so"
PYTHON = "/x/torch/lib/libtorch_python.so"
CUDART = ("cudaMalloc", "/x/nvidia/cuda_runtime/lib/libcudart.so.13")
BLAS, LT = "/x/lib/libcublas.so.13", "/x/lib/libcublasLt.so.13"

STACKS = {
    "caching allocator": [
        CUDART,
        ("c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::alloc_block", C10),
        ("at::detail::empty_generic", "/x/torch/lib/libtorch_cpu.so"),
    ],
    "pinned-memory allocator": [CUDART, ("at::CachingHostAllocatorImpl::allocate", CUDA)],
    "guards and streams": [
        CUDART,
        ("c10::cuda::impl::CUDAGuardImpl::setDevice", C10),
        ("at::native::add", CUDA),
    ],
    "events": [CUDART, ("c10::cuda::impl::CUDAGuardImpl::record", C10)],
    "copies": [
        CUDART,
        ("c10::cuda::memcpy_and_sync", C10),
        ("at::native::_local_scalar_dense_cuda", CUDA),
    ],
    "operators": [CUDART, ("at::native::vectorized_elementwise_kernel", CUDA)],
    "cuBLAS": [
        ("cuLaunchKernelEx", "libcuda.so.1"),
        ("", LT),
        ("cublasLtSSSMatmul", LT),
        ("cublasSgemm_v2", BLAS),
        ("at::cuda::blas::gemm", CUDA),
    ],
    "cuBLASLt": [CUDART, ("cublasLtMatmul", LT), ("at::cuda::blas::gemm_and_bias", CUDA)],
    "cuDNN": [CUDART, ("", "libcudnn_engines.so.9"), ("cudnnBackendExecute", "libcudnn_graph.so.9")],
    "library handles": [CUDART, ("at::cuda::getCurrentCUDABlasHandle", CUDA)],
    "CUDA graphs": [CUDART, ("at::cuda::CUDAGraph::replay", CUDA)],
    "torch.cuda module": [CUDART, ("THCPModule_cudaSynchronize", PYTHON), ("", "/usr/bin/python3.12")],
    "Triton": [
        ("cuLaunchKernelEx", "libcuda.so.1"),
        ("launch", "/home/user/.triton/cache/X/__triton_launcher.so"),
    ],
    "cuda-python": [("cuLaunchKernel", "libcuda.so.1"), ("f", "/x/cuda/bindings/_internal/driver.so")],
    "Python ctypes": [("cuLaunchKernel", "libcuda.so.1"), ("ffi_call", "/x/libffi.so.8")],
    "script or extension": [
        CUDART,
        ("scale_launch", "/home/user/.cache/torch_extensions/scale/scale.so"),
        ("pybind11::cpp_function", "/home/user/.cache/torch_extensions/scale/scale.so"),
    ],
    "PyTorch, other": [CUDART, ("torch::autograd::Node::apply", "/x/torch/lib/libtorch_cpu.so")],
}


def frames(rows: list[tuple[str, str]]) -> list[dict[str, object]]:
    return [{"function": function, "module": module} for function, module in rows]


@pytest.mark.parametrize("component", STACKS)
def test_stacks(component: str) -> None:
    assert component_of(frames(STACKS[component])) == component
    assert DESCRIPTIONS[component]


def test_no_frames() -> None:
    assert component_of([]) == "unknown"


def test_of_a_call_the_library_that_encloses_it_decides_before_its_stack() -> None:
    builder = CudaBuilder()
    allocator = builder.stack(*STACKS["caching allocator"])
    builder.api("cudaMalloc", "memory allocation", 1, 2, stack=allocator)
    builder.api("cudaMalloc", "memory allocation", 3, 4, stack=allocator, library="libcudnn")
    builder.api("cudaGetDevice", "query", 5, 6)
    builder.api(
        "cuLibraryLoadData", "module and code loading", 7, 8, stack=builder.stack(*STACKS["operators"])
    )
    trace = builder.cuda_trace()
    assert components(trace.api_calls, trace.stacks).to_list() == [
        "caching allocator",
        "cuDNN",
        "unknown",
        "lazy loading",
    ]


def test_a_call_whose_name_is_lost_belongs_to_none() -> None:
    builder = CudaBuilder()
    builder.api("cudaGetDevice", "query", 1, 2)
    calls = builder.cuda_trace().api_calls.with_columns(name=pl.lit(None, pl.Categorical))
    assert components(calls, builder.cuda_trace().stacks).to_list() == ["unknown"]


def test_no_calls() -> None:
    trace = CudaBuilder().cuda_trace()
    assert components(trace.api_calls, trace.stacks).dtype == pl.String


def test_a_name_is_looked_at_once_however_many_frames_have_it() -> None:
    name = "a" * 8192
    stack = frames([(name, "/x/torch/lib/libtorch_cpu.so")] * 64)
    stacks = pl.DataFrame({"id": range(100), "frames": [stack] * 100})
    calls = CudaBuilder().cuda_trace().api_calls
    begin = time.process_time()
    assert components(calls, stacks).to_list() == []
    assert time.process_time() - begin < 2  # 8 s if each frame is looked at
