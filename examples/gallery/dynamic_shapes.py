"""Dynamic shapes: a new size compiles again, once.

    python examples/gallery/dynamic_shapes.py
    tracer record examples/gallery/dynamic_shapes.py

A compiled function is called with 8, 16, 32 and 64 rows, twice each. The first size makes graph `0/0`,
which is for that size only. At the second size its guard fails, torch.compile compiles again with the
number of rows as a symbol, and graph `0/1` serves all later sizes. The table of regions says which guard
failed.

Another dtype fails a guard too, and makes `0/2`: what is not a size never becomes a symbol.
"""

from __future__ import annotations

import torch
from torch import Tensor

import tracer

COLUMNS = 256


def normalised(x: Tensor) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    compiled = torch.compile(normalised)
    inputs = [torch.randn(rows, COLUMNS, device=device) for rows in (8, 16, 32, 64)]
    inputs.append(inputs[0].double())
    for x in inputs:
        for _ in range(2):
            out = compiled(x)
            tracer.step()
        same = torch.allclose(out, normalised(x), atol=1e-5)
        print(f"{len(x)} rows, {x.dtype}: {'the same numbers' if same else 'OTHER NUMBERS'}")


if __name__ == "__main__":
    main()
