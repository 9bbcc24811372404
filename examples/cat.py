"""torch.cat in the forms that take different kernels on a GPU.

    python examples/cat.py
    tracer record examples/cat.py --device cuda

Contiguous and aligned inputs, slices that no 16 bytes divide, inputs that are not contiguous, many
inputs, mixed types (copied one by one), five dimensions, a backward pass, and stack.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor


def cats(device: str, size: int) -> dict[str, Callable[[], Tensor]]:
    """What is run, by name."""

    def ones(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.ones(shape, device=device, dtype=dtype)

    pair, uneven = [ones(64, 512), ones(64, 1024)], [ones(64, 511), ones(64, 1023)]
    large, strided = [ones(size, size), ones(size, size)], [ones(size, 64).t(), ones(size, 64).t()]
    many = [ones(32, 32) for _ in range(200)]
    mixed = [ones(64, 64), ones(64, 64, dtype=torch.bfloat16)]
    five = [ones(2, 3, 4, 5, 6), ones(2, 3, 4, 5, 6)]
    halves = [ones(64, 511, dtype=torch.bfloat16), ones(64, 1023, dtype=torch.bfloat16)]
    weight = ones(64, 64).requires_grad_()
    return {
        "two, last dimension": lambda: torch.cat(pair, dim=1),
        "slices of odd length": lambda: torch.cat(uneven, dim=1),
        "slices of odd length, bf16": lambda: torch.cat(halves, dim=1),
        "two large, first dimension": lambda: torch.cat(large),
        "two large, last dimension": lambda: torch.cat(large, dim=1),
        "not contiguous": lambda: torch.cat(strided),
        "two hundred": lambda: torch.cat(many),
        "mixed types": lambda: torch.cat(mixed),
        "five dimensions": lambda: torch.cat(five, dim=2),
        "forward and backward": lambda: _with_gradient(weight),
        "stack": lambda: torch.stack(large),
    }


def _with_gradient(weight: Tensor) -> Tensor:
    weight.grad = None
    joined = torch.cat([weight, weight * 2], dim=1)
    joined.square().sum().backward()
    return joined.detach()


def main() -> None:
    parser = argparse.ArgumentParser(description="Join tensors in many ways.")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1...")
    parser.add_argument("--size", type=int, default=512, help="rows and columns of the large ones")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()

    for name, run in cats(options.device, options.size).items():
        for _ in range(options.repeats):
            result = run()
        print(f"{name}: {tuple(result.shape)} {result.dtype}")
    if options.device.startswith("cuda"):
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
