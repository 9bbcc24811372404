"""daxpy and softmax, op by op and fused: by torch.compile, and by the JIT.

    python examples/gallery/fusion.py
    tracer record examples/gallery/fusion.py

Written out, each op is a kernel that reads its inputs from memory and writes its result back: softmax
over rows of an M x N matrix reads 5 MN + 2 M numbers and writes 3 MN + 2 M. One kernel would read MN and
write MN. `torch.compile` makes such a kernel, in C++ on a CPU and in Triton on a GPU.

Compiling comes first, and is step 0. Then each of the six runs is a step, between two marks that
`record_function` makes: daxpy as it is (1), compiled (2), by the JIT (3), then softmax (4, 5, 6).
Look at what a step's tree has: for a compiled function no op, but one kernel in a call of compiled code, with
the ops that it computes and the lines that asked for them. It is C++ on a CPU and Triton on a GPU. The JIT
fuses only on a GPU, after it has watched one run, and only neighbours that work element by element; on a CPU
it calls the same ops as the eager function does.

Tables of the whole run also count the compiling of step 0 and the comparison of the results at the end
(`allclose` in the script: `aten::all`, `aten::sub` of two matrices, `aten::le` and more).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.profiler import record_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import tracer

SIDE = 1823  # rows and columns: no power of two


def daxpy(alpha: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return alpha * x + y


def softmax(x: Tensor) -> Tensor:
    shifted = x - x.amax(dim=1, keepdim=True)
    exponentials = torch.exp(shifted)
    return exponentials / exponentials.sum(dim=1, keepdim=True)


class Traffic(TorchDispatchMode):
    """Counts ops, and the bytes of their inputs and results; none of the ops here is a view."""

    def __init__(self) -> None:
        super().__init__()
        self.ops, self.bytes = 0, 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        result = op(*args, **(kwargs or {}))
        self.ops += 1
        self.bytes += traffic_of(args, result)
        return result


def traffic_of(inputs: object, results: object) -> int:
    return sum(leaf.nbytes for leaf in tree_leaves((inputs, results)) if isinstance(leaf, Tensor))


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    alpha = torch.rand(1, device=device)
    x, y = torch.randn(2, SIDE, SIDE, device=device)
    runs: list[tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = [(daxpy, (alpha, x, y)), (softmax, (x,))]
    ways = {}
    for function, inputs in runs:
        ways[function] = {"compiled": torch.compile(function), "JIT": torch.jit.script(function)}
        for fast in ways[function].values():
            for _ in range(3):  # the JIT watches the first run and compiles at the second
                fast(*inputs)
    for function, inputs in runs:
        with Traffic() as eager:
            function(*inputs)
        least = traffic_of(inputs, x)
        print(
            f"{function.__name__}: {eager.ops} ops move {eager.bytes / 1e6:.1f} MB, "
            f"one kernel would move {least / 1e6:.1f} MB"
        )
    results = {}
    tracer.step()
    for function, inputs in runs:
        for name, way in {"eager": function, **ways[function]}.items():
            with record_function(f"{function.__name__}, {name}"):
                results[function, name] = way(*inputs)
            tracer.step()
    for (function, name), result in results.items():
        same = torch.allclose(result, results[function, "eager"], atol=1e-6)
        print(f"{function.__name__}, {name}: {'the same numbers' if same else 'OTHER NUMBERS'}")


if __name__ == "__main__":
    main()
