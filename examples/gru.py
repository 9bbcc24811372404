"""A GRU forward and backward: on a GPU, cuDNN's fused one; a GRU cell; one time step.

python examples/gru.py
tracer record examples/gru.py --device cuda --time 32 --batch 64 --input 256 --hidden 512
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn


def train_step(gru: nn.GRU, optimiser: torch.optim.Optimizer, x: Tensor) -> Tensor:
    output, last = gru(x)
    loss = output.square().mean() + last.square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss.detach()


@torch.no_grad()
def infer(gru: nn.GRU, cell: nn.GRUCell, x: Tensor) -> Tensor:
    """The whole sequence at once, one time step alone, and one time step of a cell."""
    output, last = gru(x)
    gru(x[:1], last)
    return cell(x[0], last[-1]) + output[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a GRU forward and backward.")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1...")
    parser.add_argument("--time", type=int, default=16, help="time steps in a sequence")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--input", type=int, default=32, help="input features")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--bidirectional", action="store_true")
    parser.add_argument("--bf16", action="store_true", help="weights and inputs in bfloat16")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    dtype = torch.bfloat16 if options.bf16 else torch.float32
    where = {"device": options.device, "dtype": dtype}
    gru = nn.GRU(options.input, options.hidden, options.layers, bidirectional=options.bidirectional, **where)
    cell = nn.GRUCell(options.input, options.hidden, **where)
    optimiser = torch.optim.AdamW(gru.parameters(), lr=1e-3)
    x = torch.randn(options.time, options.batch, options.input).to(**where)
    for step in range(1, options.steps + 1):
        loss = train_step(gru, optimiser, x)
        print(f"step {step}: loss {loss.item():.4f}")
    if not options.bidirectional:
        print(f"inferred {tuple(infer(gru, cell, x).shape)}")


if __name__ == "__main__":
    main()
