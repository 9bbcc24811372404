"""One matmul by device and dtype: the path is the same down to `aten::mm`, then the device's key decides.

    python examples/gallery/matmul_devices.py
    tracer record examples/gallery/matmul_devices.py

Look at the hops below each product: `aten::matmul` and `aten::mm` at the autograd key are the same, then
the key of the device has its own kernel function, and that one looks at the dtype: where it has no code
for it, as for bool on a CPU, the error comes from there, and the hop is marked as raised. Speed is the
dtype's: the libraries have fast code for some and a plain loop for others. meta has no data, so its
product is a shape and nothing is multiplied. A row of the output is the best of five, and all have one size;
tables of the report add up all calls: nearly all of meta's time there is its first product, which loads the
functions in Python that find the shape.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

SIZE = 384
DTYPES = (
    torch.float64,
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.complex64,
    torch.int64,
    torch.bool,
)


def microseconds(a: Tensor) -> float:
    """Of one product of `a` with itself, the GPU's work included."""
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        torch.matmul(a, a)
        if a.is_cuda:
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return min(taken) * 1e6


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # steadier times
    whole = torch.randint(0, 2, (SIZE, SIZE))
    for device in ("cpu", "meta", *(["cuda"] if torch.cuda.is_available() else [])):
        for dtype in DTYPES:
            a = whole.to(device, dtype)
            name = f"{device:<5} {str(dtype).removeprefix('torch.'):<10}"
            try:
                print(f"{name} {microseconds(a):>10,.0f} us")
            except RuntimeError as error:
                print(f"{name} {str(error).splitlines()[0]}")


if __name__ == "__main__":
    main()
