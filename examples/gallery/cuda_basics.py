"""Two first CUDA kernels, compiled from this script: vector addition, and a 1-D stencil with shared memory.

    python examples/gallery/cuda_basics.py
    tracer record examples/gallery/cuda_basics.py

A kernel runs for each of many threads; threads come in blocks, and blocks in a grid. In the addition thread
t of block b adds element b * 256 + t. In the stencil each element becomes the sum of the seven around it: the
threads of a block first copy what the block needs, with three elements more at both ends, into memory that
they share, wait for each other (`__syncthreads`), and then read every element seven times from there
instead of from the memory of the GPU.

Look at the launches: `cudaLaunchKernel` with grid and block, and no op around it, since an extension calls
CUDA itself. Beside each launch, `aten::empty_like` allocates the result, by `aten::empty_strided`. The
stencil of PyTorch is a convolution with a kernel of ones, computed by cuDNN.
"""

from __future__ import annotations

import shutil
import sys

import torch
from torch.utils import cpp_extension

CPP = "at::Tensor add(const at::Tensor& a, const at::Tensor& b); at::Tensor stencil(const at::Tensor& x);"
CUDA = """
#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

constexpr int kBlock = 256, kRadius = 3;

__global__ void add_kernel(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

__global__ void stencil_kernel(const float* x, float* y, int n) {
  __shared__ float near[kBlock + 2 * kRadius];
  int i = blockIdx.x * blockDim.x + threadIdx.x, here = threadIdx.x + kRadius;
  near[here] = i < n ? x[i] : 0;
  if (threadIdx.x < kRadius) {  // the first threads bring both ends
    int left = i - kRadius, right = i + kBlock;
    near[here - kRadius] = left >= 0 ? x[left] : 0;
    near[here + kBlock] = right < n ? x[right] : 0;
  }
  __syncthreads();
  float sum = 0;
  for (int offset = -kRadius; offset <= kRadius; ++offset) sum += near[here + offset];
  if (i < n) y[i] = sum;
}

unsigned blocks_for(int n) { return (n + kBlock - 1) / kBlock; }

at::Tensor add(const at::Tensor& a, const at::Tensor& b) {
  auto c = at::empty_like(a);
  int n = a.numel();
  auto stream = c10::cuda::getCurrentCUDAStream();
  add_kernel<<<blocks_for(n), kBlock, 0, stream>>>(a.const_data_ptr<float>(), b.const_data_ptr<float>(),
                                                   c.mutable_data_ptr<float>(), n);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return c;
}

at::Tensor stencil(const at::Tensor& x) {
  auto y = at::empty_like(x);
  int n = x.numel();
  auto stream = c10::cuda::getCurrentCUDAStream();
  stencil_kernel<<<blocks_for(n), kBlock, 0, stream>>>(x.const_data_ptr<float>(), y.mutable_data_ptr<float>(),
                                                       n);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""


def main() -> None:
    if not torch.cuda.is_available() or not cpp_extension.CUDA_HOME or not shutil.which("ninja"):
        print("this needs a CUDA GPU, nvcc (a CUDA toolkit) and ninja", file=sys.stderr)
        sys.exit(3)
    kernels = cpp_extension.load_inline("cuda_basics", CPP, CUDA, functions=["add", "stencil"])
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = False  # so that both stencils add in float32
    a, b = torch.randn(2, 100_000, device="cuda")
    total = kernels.add(a, b)
    print(f"add: {'the same' if total.equal(a + b) else 'NOT the same'} as a + b")
    sums = kernels.stencil(a)
    ones = torch.ones(1, 1, 7, device="cuda")
    expected = torch.nn.functional.conv1d(a.view(1, 1, -1), ones, padding=3).flatten()
    largest = (sums - expected).abs().max().item()
    print(f"stencil: differs from conv1d with ones by {largest:.0e} at most")
    assert largest < 1e-4


if __name__ == "__main__":
    main()
