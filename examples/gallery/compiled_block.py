"""A GPT block, compiled: which line asked for which kernel, and what the compiler took.

    python examples/gallery/compiled_block.py
    tracer record examples/gallery/compiled_block.py

Attention and MLP with their norms and residuals, forward and backward, first as they are (steps 0 to 3),
then compiled (steps 4 to 7; compiling is in step 4). In the tree of a compiled step the matrix products are
hops as before, with the lines of the block; between them are the kernels that Inductor generated, each with
the ops that it computes and their lines. A kernel of the backward leads to the lines of the forward.

The section of compiled code has a row for each kernel and each region, and says what the compiler did all
the time. With `--eager` or `--compiled` the script runs one of the ways only: record each, and `tracer diff
eager.trace compiled.trace` says which ops each kernel replaced and what that saved.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn
from torch.nn import functional

import tracer

BATCH, LENGTH, WIDTH, HEADS = 4, 64, 128, 4
STEPS = 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm1(x)).split(WIDTH, dim=-1)
        query, key, value = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        hidden = functional.gelu(self.up(self.norm2(x)))
        return x + self.down(hidden)


def run(block: nn.Module, x: Tensor) -> Tensor:
    for _ in range(STEPS):
        out = block(x)
        out.square().mean().backward()
        tracer.step()
    return out


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    block = Block().to(device)
    x = torch.randn(BATCH, LENGTH, WIDTH, device=device)
    ways = {"--eager": block, "--compiled": torch.compile(block)}
    results = {name: run(way, x) for name, way in ways.items() if name in (sys.argv[1:] or ways)}
    if len(results) == 2:
        same = torch.allclose(*results.values(), atol=1e-4)
        print("the same numbers" if same else "OTHER NUMBERS")


if __name__ == "__main__":
    main()
