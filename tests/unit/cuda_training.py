"""A training run on a GPU, laid out by hand."""

from __future__ import annotations

from cuda_frames import CudaBuilder
from frames import FakeTrace, hop

from tracer.report.hot_paths import Path, hottest_of
from tracer.report.reading import Reading

TRAIN = "/home/user/project/train.py"

F32 = "torch.float32"

US = 1000

ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)

GEMM = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4"
    "_execute_kernel__5x_cublas"
)

OPERATOR = (
    ("cudaLaunchKernel", "/x/nvidia/lib/libcudart.so.13"),
    ("at::native::gpu_kernel_impl_nocast", "/x/torch/lib/libtorch_cuda.so"),
    ("at::native::add_kernel", "/x/torch/lib/libtorch_cuda.so"),
    ("at::_ops::add_Tensor::redispatch", "/x/torch/lib/libtorch_cpu.so"),
)

ALLOCATOR = (
    ("cudaMalloc", "/x/nvidia/lib/libcudart.so.13"),
    (
        "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::alloc_block",
        "/x/torch/lib/libc10_cuda.so",
    ),
    ("at::detail::empty_cuda", "/x/torch/lib/libtorch_cuda.so"),
)

GUARD = (("c10::cuda::impl::CUDAGuardImpl::getDevice", "/x/torch/lib/libc10_cuda.so"),)


def at(line: int) -> dict[str, str]:
    return {"source": f"{TRAIN}:{line}", "called_from": f"{TRAIN}:{line}"}


def training() -> FakeTrace:
    """Four steps (two warm-up): a matmul through cuBLAS, an add, an item() that waits, an own kernel."""
    builder = CudaBuilder()
    operator, allocator, guard = builder.stack(*OPERATOR), builder.stack(*ALLOCATOR), builder.stack(*GUARD)
    square = builder.signature(([64, 64], F32), ([64, 64], F32), device="cuda:0")
    long = builder.signature(([1 << 24], F32), ([1 << 24], F32), device="cuda:0")
    scalar = builder.signature(([], F32), device="cuda:0")
    for step in range(4):
        when = {"step": step, "phase": "warmup" if step < 2 else "steady"}
        first = len(builder.rows)
        mm = hop("aten::mm", "CUDA", self_ns=20 * US, inputs=square, **when)
        outer = hop("aten::mm", "AutogradCUDA", mm, self_ns=US, inputs=square, **when)
        builder.calls(hop("aten::matmul", "AutogradCUDA", outer, self_ns=US, inputs=square, **at(41), **when))
        builder.calls(hop("aten::add.Tensor", "CUDA", self_ns=12 * US, inputs=long, **at(42), **when))
        builder.calls(
            hop("aten::_local_scalar_dense", "CUDA", self_ns=60 * US, inputs=scalar, **at(43), **when)
        )
        add, item = first + 3, first + 4

        start = builder.rows[first + 2]["start_ns"]
        for i in range(3):
            builder.api(
                "cudaGetDevice", "query", start + 100 * i, start + 100 * i + 50, hop=first + 2, stack=guard
            )
        if step == 0:
            builder.api(
                "cudaMalloc", "memory allocation", start + 500, start + 8000, hop=first + 2, stack=allocator,
                arguments="*devPtr=0x7f0000, size=2097152",
            )  # fmt: skip
        arguments = "transa=N, transb=N, m=64, n=64, k=64, lda=64, ldb=64, ldc=64"
        sgemm = builder.library(
            "cublasSgemm_v2", start + 9000, start + 16_000, hop=first + 2, arguments=arguments
        )
        launch = builder.api(
            "cudaLaunchKernelExC", "launch", start + 10_000, start + 15_000, hop=first + 2,
            library_call_id=sgemm, library="libcublas", library_call="cublasSgemm_v2",
        )  # fmt: skip
        builder.kernel(
            GEMM, start + 15_500, start + 18_800, launch,
            grid=(2, 1, 1), block=(64, 1, 1), registers=74, static_shared_bytes=12_288,
        )  # fmt: skip

        start = builder.rows[add]["start_ns"]
        launch = builder.api(
            "cudaLaunchKernel", "launch", start + 2000, start + 6000, hop=add, stack=operator
        )
        builder.kernel(ADD, start + 7000, start + 57_000, launch, grid=(32_768, 1, 1), registers=32)

        start = builder.rows[item]["start_ns"]
        copy = builder.api(
            "cudaMemcpyAsync", "copy", start + 1000, start + 4000, hop=item,
            arguments="dst=0x7ffc, src=0x7f00, count=4, kind=cudaMemcpyDeviceToHost, stream=0x0",
        )  # fmt: skip
        builder.activity(
            "memcpy", "memcpy DtoH (device -> pageable)", start + 50_000, start + 51_500, copy, bytes=4
        )
        builder.api("cudaStreamSynchronize", "synchronisation", start + 5000, start + 55_000, hop=item)
        own = builder.clock[0, 100]
        launch = builder.api("cuLaunchKernelEx", "launch", own, own + 3000, source=f"{TRAIN}:44", **when)
        builder.kernel("my_scale", own + 3500, own + 5500, launch, grid=(16, 2, 1), registers=20)
        builder.clock[0, 100] += 200 * US
    trace = builder.cuda_trace(
        cuda={
            "state": "recorded",
            "why": "",
            "cupti": 28,
            "driver_calls": "launches",
            "api_calls": len(builder.api_rows),
            "launches": 12,
            "kernels": 12,
            "memcpys": 4,
            "memsets": 0,
            "dropped_activities": 0,
            "in_a_hop": 8,
            "outside_ops": 4,
            "outside_ops_by": [{"what": "my_scale (scale.so)", "count": 4}],
            "reconciles": True,
            "library_hooks": {"cublasSgemm_v2": True, "cudnnRNNForward": False},
        }
    )
    trace.environment["torch"] = "2.11.0+cu130"
    trace.environment["torch_cuda"] = "13.0"
    return trace


def hottest(reading: Reading) -> list[Path]:
    return hottest_of(reading).paths


def placement() -> CudaBuilder:
    """One call that takes 400 ms to allocate, and 5 ms to copy 24 bytes, which the GPU does in 1.2 us."""
    builder = CudaBuilder()
    empty = hop("aten::empty_strided", "CUDA", self_ns=400_000 * US)
    copy = hop("aten::copy_", "CUDA", self_ns=5000 * US)
    builder.calls(hop("aten::_to_copy", "CUDA", empty, copy, self_ns=100 * US))
    start = builder.rows[2]["start_ns"]
    call = builder.api("cudaMemcpyAsync", "copy", start + US, start + 30 * US, hop=2)
    builder.activity(
        "memcpy", "memcpy HtoD (pageable -> device)", start + 10 * US, start + 11_200, call, bytes=24
    )
    return builder


def launches(*gpu_ns: int, grids: tuple[int, ...] = (8,)) -> CudaBuilder:
    """A call of an op for each grid, with a kernel of each time; the first launch takes the host longest."""
    builder = CudaBuilder()
    for grid in grids:
        builder.calls(hop("aten::mm", "CUDA", self_ns=26 * US))
        start, own = builder.rows[-1]["start_ns"], len(builder.rows) - 1
        for number, ns in enumerate(gpu_ns):
            begin, end = start + 20 * US * number, start + (20 + 5 * number) * US
            call = builder.api("cudaLaunchKernel", "launch", begin, end, hop=own)
            builder.kernel(f"k{number}", end, end + ns, call, grid=(grid, 1, 1))
    return builder
