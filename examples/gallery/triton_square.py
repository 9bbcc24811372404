"""The square kernel again, in Triton: compiled at its first call and launched without an op around it.

    python examples/gallery/triton_square.py        (needs a CUDA GPU)
    tracer record examples/gallery/triton_square.py

Look at the place of the kernel: no op launches `square_rows`, so it is counted as outside ops, with the line
here that calls it: Triton calls the driver directly (`cuLaunchKernelEx`), not the runtime. Wrapped in
`torch.library.triton_op` the same kernel belongs to the hop of `gallery::square`. A program of Triton takes a
whole row here, as a block of 1024 numbers, which 128 threads (`block 128` in the launch) share, and masks
what lies beyond the row's 777; the order of threads within a block is left to the compiler.
"""

from __future__ import annotations

import sys

import torch

ROWS, COLUMNS = 1000, 777


if not torch.cuda.is_available():  # Triton may not be there either
    print("triton_square.py needs a CUDA GPU, and torch finds none here", file=sys.stderr)
    sys.exit(3)

import triton  # noqa: E402
import triton.language as tl  # noqa: E402


@triton.jit
def square_rows(x, y, columns, BLOCK: tl.constexpr):  # noqa: N803
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < columns
    value = tl.load(x + row * columns + column, mask=inside)
    tl.store(y + row * columns + column, value * value, mask=inside)


def square(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)  # the op for the result
    square_rows[(len(x),)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


@torch.library.triton_op("gallery::square", mutates_args=())
def registered(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    kernel = torch.library.wrap_triton(square_rows)
    kernel[(len(x),)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(ROWS, COLUMNS, device="cuda")
    expected = x.square()
    for _ in range(3):
        plain = square(x)
    for _ in range(3):
        as_op = registered(x)
    torch.cuda.synchronize()
    print(f"as torch.square: {torch.equal(plain, expected)}, as an op: {torch.equal(as_op, expected)}")


if __name__ == "__main__":
    main()
