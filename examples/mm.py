"""Matrix products: the types, sizes and layouts that take different ways to a GPU kernel.

    python examples/mm.py
    tracer record examples/mm.py --device cuda

On a GPU: strict fp32 (cublasSgemm), TF32, bf16 and fp16, a product with a vector, a batch of products,
Linear with and without a bias, the odd inner size that costs alignment, and the backward pass.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn


def products(device: str, size: int, generator: torch.Generator) -> dict[str, Callable[[], Tensor]]:
    """What is run, by name."""

    def matrix(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    small, a, b = matrix(64, 64), matrix(size, size), matrix(size, size)
    odd = matrix(size, size + 3)
    row = matrix(1, size)
    batch = matrix(8, size // 4, size // 4)
    linear, plain = nn.Linear(size, size // 2).to(device), nn.Linear(size, 1, bias=False).to(device)
    weight = matrix(size, size).requires_grad_()
    runs: dict[str, Callable[[], Tensor]] = {
        "fp32, 64 x 64": lambda: torch.matmul(small, small),
        "fp32": lambda: torch.matmul(a, b),
        "fp32, one row": lambda: torch.matmul(row, b),
        "fp32, transposed": lambda: torch.matmul(a, b.t()),
        "fp32, inner size odd": lambda: torch.matmul(odd, odd.t()),
        "fp32, a batch": lambda: torch.bmm(batch, batch),
        "Linear with bias": lambda: linear(a),
        "Linear with bias, one row": lambda: linear(row),
        "Linear without bias, one column": lambda: plain(a),
        "fp32, forward and backward": lambda: _with_gradient(a, weight),
    }
    for dtype in (torch.bfloat16, torch.float16):
        halves, narrow = (a.to(dtype), b.to(dtype)), nn.Linear(size, size // 2).to(device, dtype)
        name = str(dtype).removeprefix("torch.")
        runs[name] = lambda pair=halves: torch.matmul(*pair)
        runs[f"{name}, Linear with bias"] = lambda layer=narrow, x=halves[0]: layer(x)
    return runs


def _with_gradient(a: Tensor, weight: Tensor) -> Tensor:
    weight.grad = None
    product = torch.matmul(a, weight)
    product.sum().backward()
    return product.detach()


def run_tf32(a: Tensor) -> Tensor:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        return torch.matmul(a, a)
    finally:
        torch.set_float32_matmul_precision(before)


def main() -> None:
    parser = argparse.ArgumentParser(description="Multiply matrices in many ways.")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1...")
    parser.add_argument("--size", type=int, default=512, help="rows and columns")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    generator = torch.Generator().manual_seed(options.seed)
    runs = products(options.device, options.size, generator)
    tf32 = torch.randn(options.size, options.size, generator=generator).to(options.device)
    runs["TF32"] = lambda: run_tf32(tf32)
    for name, run in runs.items():
        for _ in range(options.repeats):
            result = run()
        print(f"{name}: {tuple(result.shape)} {result.dtype}")
    if options.device.startswith("cuda"):
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
