"""A matrix product with shared memory, written by hand, against one without and against cuBLAS.

    python examples/gallery/tiled_matmul.py        (needs a CUDA GPU and nvcc)
    tracer record examples/gallery/tiled_matmul.py

Look at the kernel survey, and unfold "All kernels", which shows registers and shared memory: `naive_kernel`
and `tiled_kernel` have the same grid, one thread for each element of the result. The naive one reads every
row and column from global memory again and again. A block of the tiled one loads 32 x 32 numbers of each
matrix into its 8 KiB of shared memory, where all its threads read them, so its threads ask global memory for
32 times less. It is not 32 times as fast: the 32 threads of a warp share the reads of the plain kernel as
well (one number of `a`, 32 neighbours of `b`), and caches serve most of them. cuBLAS below gets further with
registers and larger tiles.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.cpp_extension import CUDA_HOME, load_inline

SIZE = 2048  # a multiple of the tile, so that no kernel needs to look for an edge
CALLS = 5

REGISTERED = """
#include <ATen/core/Tensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>
at::Tensor naive(const at::Tensor& a, const at::Tensor& b);
at::Tensor tiled(const at::Tensor& a, const at::Tensor& b);
TORCH_LIBRARY(gallery, library) {
  library.def("naive(Tensor a, Tensor b) -> Tensor");
  library.def("tiled(Tensor a, Tensor b) -> Tensor");
  library.impl("naive", c10::DispatchKey::CUDA, TORCH_FN(naive));
  library.impl("tiled", c10::DispatchKey::CUDA, TORCH_FN(tiled));
}
"""
KERNELS = """
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAStream.h>

constexpr int TILE = 32;

__global__ void naive_kernel(const float* a, const float* b, float* c, int n) {
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
  c[row * n + column] = sum;
}

__global__ void tiled_kernel(const float* a, const float* b, float* c, int n) {
  __shared__ float of_a[TILE][TILE], of_b[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  float sum = 0;
  for (int first = 0; first < n; first += TILE) {
    of_a[threadIdx.y][threadIdx.x] = a[row * n + first + threadIdx.x];
    of_b[threadIdx.y][threadIdx.x] = b[(first + threadIdx.y) * n + column];
    __syncthreads();  // until the tiles are whole
    for (int k = 0; k < TILE; ++k) sum += of_a[threadIdx.y][k] * of_b[k][threadIdx.x];
    __syncthreads();  // until nobody reads them any more
  }
  c[row * n + column] = sum;
}

template <typename Kernel>
at::Tensor product(Kernel kernel, const at::Tensor& a, const at::Tensor& b) {
  auto c = at::empty_like(a);
  int n = a.size(0);
  dim3 block(TILE, TILE), grid(n / TILE, n / TILE);
  kernel<<<grid, block, 0, c10::cuda::getCurrentCUDAStream()>>>(
      a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), n);
  return c;
}

at::Tensor naive(const at::Tensor& a, const at::Tensor& b) { return product(naive_kernel, a, b); }
at::Tensor tiled(const at::Tensor& a, const at::Tensor& b) { return product(tiled_kernel, a, b); }
"""


def milliseconds(run, a: Tensor, b: Tensor) -> float:  # type: ignore[no-untyped-def]
    """The mean of CALLS products after one to warm up, by events on the GPU."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    run(a, b)
    start.record()
    for _ in range(CALLS):
        run(a, b)  # warm
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / CALLS


def main() -> None:
    if not (torch.cuda.is_available() and CUDA_HOME):
        lacks = "nvcc (a CUDA toolkit)" if torch.cuda.is_available() else "a CUDA GPU"
        print(f"tiled_matmul.py needs {lacks}, and torch finds none here", file=sys.stderr)
        sys.exit(3)
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where ninja may be
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "{}.{}".format(*torch.cuda.get_device_capability()))
    load_inline("gallery_tiled", REGISTERED, KERNELS, functions=["naive", "tiled"], no_implicit_headers=True)
    torch.manual_seed(0)
    a, b = torch.randn(SIZE, SIZE, device="cuda"), torch.randn(SIZE, SIZE, device="cuda")
    expected = torch.matmul(a, b)
    for name, run in (
        ("naive", torch.ops.gallery.naive),
        ("tiled", torch.ops.gallery.tiled),
        ("cuBLAS", torch.matmul),
    ):
        error = (run(a, b) - expected).abs().max().item()
        took = milliseconds(run, a, b)
        print(
            f"{name:<7} {took:7.3f} ms, {2 * SIZE**3 / took / 1e9:7.2f} TFLOP/s, off by {error:.1e} at most"
        )


if __name__ == "__main__":
    main()
