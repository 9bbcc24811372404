"""Graph breaks: where torch.compile leaves a function, and why.

    python examples/gallery/graph_breaks.py
    tracer record examples/gallery/graph_breaks.py

A function with three things that cannot be in a graph: a `print`, a number of a tensor that Python reads,
and a branch that depends on it. Each ends a graph, and what follows is another one. So one call of the
function is several regions, with Python between them.

Look at the table of graph breaks in the section of compiled code: the line, the reason in torch's words,
and how often. The table of regions has what is left of the function, each with its own number: `0/0` is the
function, the others are what continues behind a break. The same function without the three is one region.
"""

from __future__ import annotations

import torch
from torch import Tensor

import tracer


def broken(x: Tensor) -> Tensor:
    x = torch.nn.functional.gelu(x)
    print("gelu is done")
    if x.sum().item() > 0:
        x = x - x.mean()
    return x.softmax(-1)


def whole(x: Tensor) -> Tensor:
    x = torch.nn.functional.gelu(x)
    x = torch.where(x.sum() > 0, x - x.mean(), x)
    return x.softmax(-1)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(64, 256, device="cuda" if torch.cuda.is_available() else "cpu")
    results = []
    for function in (broken, whole):
        compiled = torch.compile(function)
        for _ in range(3):
            out = compiled(x)
            tracer.step()
        results.append(out)
    print("the same numbers" if torch.allclose(*results, atol=1e-6) else "OTHER NUMBERS")


if __name__ == "__main__":
    main()
