"""CUDA graphs: `mode="reduce-overhead"` replays all kernels of a step with one call.

    python examples/gallery/cuda_graphs.py        (needs a CUDA GPU)
    tracer record examples/gallery/cuda_graphs.py

The same compiled function twice: by default each kernel is launched from Python, and with `reduce-overhead`
they are captured into a CUDA graph (in one of the first calls), which later calls replay with
`cudaGraphLaunch`. For kernels as small as these, launching takes longer than running.

Look at the tree of a replaying step: below `cudaGraphLaunch` are the graph's kernels. Each still leads to
its region and to the lines whose ops it computes, because tracer saw the capture.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

import tracer

if not torch.cuda.is_available():
    print("cuda_graphs.py needs a CUDA GPU, and torch finds none here", file=sys.stderr)
    sys.exit(3)

STEPS = 6


def layers(x: Tensor, weights: list[Tensor]) -> Tensor:
    for weight in weights:
        x = torch.nn.functional.gelu(x @ weight)
        x = x / x.norm(dim=-1, keepdim=True)
    return x


def main() -> None:
    torch.manual_seed(0)
    x, *weights = torch.randn(5, 64, 64, device="cuda")
    results = []
    for mode in ("default", "reduce-overhead"):
        compiled = torch.compile(layers, mode=mode)
        for _ in range(STEPS):
            out = compiled(x, weights).clone()  # the graph's own memory is written again by the next call
            torch.cuda.synchronize()
            tracer.step()
        results.append(out)
        torch._dynamo.reset()
    print("the same numbers" if torch.allclose(*results, atol=1e-5) else "OTHER NUMBERS")


if __name__ == "__main__":
    main()
