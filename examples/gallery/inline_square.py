"""A kernel of one's own by load_inline: seen as an op where it is registered as one.

    python examples/gallery/inline_square.py
    tracer record examples/gallery/inline_square.py

Look at the two calls of the same function: as a function of the module only the `aten::empty_like` inside
it and what that calls are hops; as `torch.ops.gallery.square` it is a hop of its own with its name as the
kernel, below a fallback at the autograd key, since it has no backward. The call as a function comes first and
has the first `aten::empty_like` in it, so the two times do not compare. On a GPU with nvcc the function
launches a CUDA kernel, 16 x 16 threads a block.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import torch
from torch.utils.cpp_extension import CUDA_HOME, load_inline

ON_GPU = torch.cuda.is_available() and CUDA_HOME is not None

# fewer than those that load_inline would include, which take twice as long
HEADERS = """
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>
"""
DECLARED = "at::Tensor square(const at::Tensor& x);\n"
REGISTERED = f"""
TORCH_LIBRARY(gallery, library) {{
  library.def("square(Tensor x) -> Tensor");
  library.impl("square", c10::DispatchKey::{"CUDA" if ON_GPU else "CPU"}, TORCH_FN(square));
}}
"""
ON_HOST = """
at::Tensor square(const at::Tensor& x) {
  auto from = x.contiguous();
  auto y = at::empty_like(from);
  const float* in = from.data_ptr<float>();
  float* out = y.data_ptr<float>();
  for (int64_t i = 0; i < from.numel(); ++i) out[i] = in[i] * in[i];
  return y;
}
"""
ON_DEVICE = """
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAStream.h>

__global__ void square_kernel(const float* in, float* out, int rows, int columns) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rows && column < columns) out[row * columns + column] = in[row * columns + column] * in[row * columns + column];
}

at::Tensor square(const at::Tensor& x) {
  auto from = x.contiguous();
  auto y = at::empty_like(from);
  int rows = from.size(0), columns = from.size(1);
  dim3 block(16, 16), grid((columns + 15) / 16, (rows + 15) / 16);
  square_kernel<<<grid, block, 0, c10::cuda::getCurrentCUDAStream()>>>(
      from.data_ptr<float>(), y.data_ptr<float>(), rows, columns);
  return y;
}
"""  # noqa: E501


def main() -> None:
    if not shutil.which(os.environ.get("CXX", "c++")):
        print("inline_square.py needs a C++ compiler (apt-get install g++)", file=sys.stderr)
        sys.exit(3)
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where ninja may be
    if ON_GPU:
        os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "{}.{}".format(*torch.cuda.get_device_capability()))
    module = load_inline(
        "gallery_square",
        HEADERS + DECLARED + ("" if ON_GPU else ON_HOST) + REGISTERED,
        ON_DEVICE if ON_GPU else None,
        functions=["square"],
        extra_cflags=["-O1"],
        no_implicit_headers=True,
    )
    x = torch.linspace(-2, 2, 100 * 70, device="cuda" if ON_GPU else "cpu").view(100, 70)
    called = module.square(x)
    dispatched = torch.ops.gallery.square(x)
    print(f"compiled for {'CUDA' if ON_GPU else 'the CPU'}")
    print(f"both as torch.square: {torch.equal(called, x.square())}, {torch.equal(dispatched, x.square())}")


if __name__ == "__main__":
    main()
