"""Which part of PyTorch, or of what it uses, makes an API call: rules on the frames of its stack."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import polars as pl


@dataclass(frozen=True)
class Component:
    """`functions` and `modules` are patterns: a frame that fits either belongs to the component."""

    name: str
    does: str
    functions: str = ""
    modules: str = ""


VENDORS = (
    Component("cuBLASLt", "matrix products with epilogues, and what cuBLAS runs on", modules=r"libcublasLt"),
    Component("cuBLAS", "matrix products (mm, bmm, linear)", modules=r"libcublas\b|libcublas\."),
    Component("cuDNN", "convolutions, RNNs, normalisation, attention", modules=r"libcudnn"),
    Component("cuSPARSELt", "products with 2:4 sparsity", modules=r"libcusparseLt"),
    Component("cuSPARSE", "sparse products", modules=r"libcusparse"),
    Component("cuFFT", "Fourier transforms", modules=r"libcufft"),
    Component("cuSOLVER", "decompositions", modules=r"libcusolver"),
    Component("cuRAND", "random numbers", modules=r"libcurand"),
    Component("NCCL", "exchange between GPUs", modules=r"libnccl"),
    Component("NVRTC", "compiles kernels at run time", modules=r"libnvrtc|libnvJitLink"),
)
COMPONENTS = (
    Component(
        "caching allocator",
        "takes memory from CUDA in large segments and hands out parts of them; calls CUDA only where "
        "it has no fitting part left",
        r"CUDACachingAllocator|CUDAMallocAsyncAllocator|ExpandableSegment|CUDAPluggableAllocator",
    ),
    Component(
        "pinned-memory allocator",
        "page-locked host memory, kept for reuse; asks events whether a copy has ended",
        r"CachingHostAllocator|PinnedMemoryAllocator|CUDAHostAllocator",
    ),
    Component(
        "CUDA graphs", "captures launches and replays them as one", r"CUDAGraph\b|CUDAGraph::|CUDAGraphs"
    ),
    Component(
        "events",
        "marks points of a stream, for timing, for other streams and for memory that is still in use",
        r"CUDAEvent\b|CUDAEvent::|THCPEvent|CUDAGuardImpl::(?:record|block|query|create|destroy|synchronize|elapsed)"
        r"\w*Event|CUDAGuardImpl::(?:record|block)\b",
    ),
    Component(
        "guards and streams",
        "makes the device of the tensors the current one and puts it back; finds the current stream",
        r"CUDAGuardImpl|DeviceGuard|CUDAGuard|StreamGuard|CUDAStream|getCurrentCUDAStream|getStreamFromPool"
        r"|c10::cuda::(?:current_device|set_device|GetDevice|SetDevice|ExchangeDevice|MaybeExchangeDevice"
        r"|MaybeSetDevice|device_count\w*|getDeviceIndexWithPrimaryContext|hasPrimaryContext)",
    ),
    Component(
        "library handles",
        "makes and keeps the handles and workspaces of cuBLAS, cuDNN and others, one a thread and stream",
        r"getCurrentCUDABlas|getCudnnHandle|getCurrentCUDASparse|getCUDABlas\w*Workspace|PoolWindow|DeviceThreadHandlePool"
        r"|CudnnHandle",
    ),
    Component(
        "device properties",
        "asks once what the device can do, and whether there is one",
        r"[dD]eviceProperties|initDeviceProperty|CUDAHooks|warp_size|canDeviceAccessPeer",
    ),
    Component(
        "copies",
        "copies between host and device or devices (copy_, .to, .cpu, .item)",
        r"copy_kernel_cuda|copy_device_to_device|copy_requires_temporaries|_local_scalar_dense|memcpy_and_sync"
        r"|at::native::_?copy|at::native::.*nonzero",
    ),
    Component(
        "Triton",
        "kernels that torch.compile or Triton generated",
        modules=r"triton|cuda_utils\.|launcher\.cpython",
    ),
    Component("CuPy", "kernels of CuPy, and its memory pool", modules=r"cupy"),
    Component(
        "cuda-python",
        "CUDA called from Python (numba-cuda, CuPy's bindings)",
        modules=r"cuda/bindings|cydriver|cyruntime",
    ),
    Component("numba", "kernels that numba compiled", modules=r"numba|llvmlite"),
    Component("Python ctypes", "CUDA called through ctypes (older numba)", modules=r"_ctypes|libffi"),
    Component(
        "torch.cuda module",
        "what a script asks of torch.cuda: synchronize, set_device, memory statistics, initialisation",
        r"THCPModule|THCPStream|torch::cuda::",
    ),
    Component(
        "operators",
        "the host side of PyTorch's own kernels: picks a launch configuration, launches, checks for errors",
        r"at::native::|at::cuda::|at::internal::|at::sparse|fbgemm|torch::native",
        r"libtorch_cuda",
    ),
)
LOADING = Component(
    "lazy loading",
    "the CUDA runtime loads the code of a kernel at the first launch of it (CUDA_MODULE_LOADING=LAZY)",
)
OWN = Component("script or extension", "code outside PyTorch: the script's own extension, or another library")
OTHER = Component("PyTorch, other", "PyTorch code for which there is no rule")
UNKNOWN = Component("unknown", "no stack was recorded for the call")

DESCRIPTIONS = {
    component.name: component.does for component in (*VENDORS, *COMPONENTS, LOADING, OWN, OTHER, UNKNOWN)
}
Rule = Callable[[str, str], "tuple[str, str]"]
"""Of the function and the module of a frame, as rule_of_frame"""
_DRIVER = re.compile(r"libcuda\.so|libcudart|libcupti|libnvidia")
_TORCH = re.compile(r"libtorch|libc10|libshm|_C\.cpython|torch/lib/")
_SYSTEM = re.compile(
    r"^$|\[|ld-linux|libc[.-]|libm[.-]|libpthread|libstdc\+\+|libgcc|libpython|/python\d|^python|libdl|librt|tracer"
)
_LOADS = re.compile(
    r"^cu(?:Library|Module|Link|Kernel|da(?:Library|Module))\w*(?:Load|GetModule|Create|GetKernel|Add)"
)


def rule_of_frame(function: str, module: str) -> tuple[str, str]:
    """The first rule that fits a frame: vendor, driver, component, torch, foreign or system; and a name."""
    for vendor in VENDORS:
        if re.search(vendor.modules, module):
            return "vendor", vendor.name
    if _DRIVER.search(module):
        return "driver", ""
    for component in COMPONENTS:
        if (component.functions and re.search(component.functions, function)) or (
            component.modules and re.search(component.modules, module)
        ):
            return "component", component.name
    if _TORCH.search(module):
        return "torch", ""
    return "system" if _SYSTEM.search(module.rpartition("/")[2] or module) else "foreign", ""


def component_of(frames: list[dict[str, Any]], rule: Rule = rule_of_frame) -> str:
    """The component of a native stack, innermost frame first.

    In a run of frames of vendor libraries the outermost decides, so that what cuBLAS does through
    cuBLASLt is cuBLAS's; else the innermost frame that a rule knows.
    """
    vendor, foreign, torch = "", False, False
    for frame in frames:
        kind, name = rule(frame["function"] or "", frame["module"] or "")
        if kind == "vendor":
            vendor = name
            continue
        if vendor:
            return vendor
        if kind == "component":
            return name
        torch |= kind == "torch"
        foreign |= kind == "foreign"
        if foreign and not torch:
            return OWN.name
    return vendor or (OTHER.name if torch else UNKNOWN.name if not frames else OWN.name)


def components(calls: pl.DataFrame, stacks: pl.DataFrame) -> pl.Series:
    """The component of each row of api_calls, by its stack, else by the library that encloses it."""
    rule = cache(rule_of_frame)  # all frames may have one long name
    by_stack = {row["id"]: component_of(row["frames"] or [], rule) for row in stacks.iter_rows(named=True)}
    stack = calls["stack"].cast(pl.Int64)
    found = (
        stack.replace_strict(list(by_stack), list(by_stack.values()), default=None, return_dtype=pl.String)
        if by_stack
        else pl.Series([None], dtype=pl.String).new_from_index(0, len(calls))
    )
    library = calls["library"].cast(pl.String)
    vendors = {
        name: next((v.name for v in VENDORS if re.search(v.modules, name)), name)
        for name in library.drop_nulls().unique()
    }
    named = (
        library.replace_strict(list(vendors), list(vendors.values()), default=None, return_dtype=pl.String)
        if vendors
        else library
    )
    names = calls["name"].cast(pl.String)
    loads = [name for name in names.unique().drop_nulls() if _LOADS.match(name)]
    return pl.select(
        pl.when(names.is_in(loads))
        .then(pl.lit(LOADING.name))
        .otherwise(pl.coalesce(named, found, pl.lit(UNKNOWN.name)))
        .alias("component")
    ).to_series()
