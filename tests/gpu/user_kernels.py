"""Kernels that no op of torch launches: Triton's, Numba's, CuPy's and those of an extension. See cases.py."""

from __future__ import annotations

import os

import torch
from cases import DEVICE, Run, case, main
from torch import Tensor

X = torch.arange(4096, dtype=torch.float32).to(DEVICE)

EXTENSION = """
__global__ void double_all(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}

torch::Tensor double_all_of(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int n = int(x.numel());
  double_all<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
"""


@case
def compiled() -> Run:
    """A Triton kernel that torch.compile makes."""

    @torch.compile
    def function(x: Tensor) -> Tensor:
        return torch.sin(x) * 2 + torch.cos(x)

    return lambda: function(X)


@case
def triton() -> Run:
    """A Triton kernel written by hand."""
    from triton_double import double_triton

    y = torch.empty_like(X)

    def run() -> Tensor:
        double_triton(X, y)
        return y

    return run


@case
def numba() -> Run:
    import numpy

    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack  # numba asks for it, numpy 2.5 has it no longer
    from numba import cuda

    @cuda.jit
    def double_numba(x, y):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < x.size:
            y[i] = 2 * x[i]

    y = torch.zeros_like(X)
    x_seen, y_seen = cuda.as_cuda_array(X), cuda.as_cuda_array(y)

    def run() -> Tensor:
        double_numba[16, 256](x_seen, y_seen)
        cuda.synchronize()
        return y

    return run


@case
def cupy() -> Run:
    """A kernel that CuPy compiles, and one of its own that its Python code calls."""
    import cupy

    double_cupy = cupy.ElementwiseKernel("float32 x", "float32 y", "y = 2 * x", "double_cupy")
    x, y = cupy.asarray(X), torch.zeros_like(X)

    def run() -> Tensor:
        double_cupy(x, cupy.asarray(y))
        cupy.mean(x)
        cupy.cuda.get_current_stream().synchronize()
        return y

    return run


@case
def extension() -> Run:
    """A CUDA kernel that load_inline builds (the folder TORCH_EXTENSIONS_DIR keeps it for the next run)."""
    from torch.utils.cpp_extension import load_inline

    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "{}.{}".format(*torch.cuda.get_device_capability()))
    module = load_inline(
        name="double_extension",
        cpp_sources="torch::Tensor double_all_of(torch::Tensor x);",
        cuda_sources=EXTENSION,
        functions=["double_all_of"],
    )
    return lambda: module.double_all_of(X)


if __name__ == "__main__":
    main()
