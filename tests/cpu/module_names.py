"""Models, and the modules of their hops."""

from __future__ import annotations

import polars as pl
import torch
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).relu()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block()])
        self.heads = nn.ModuleDict({"a": nn.Sequential(nn.Linear(4, 4), nn.Tanh())})

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.heads["a"](x).exp()

    def encode(self, x: Tensor) -> Tensor:
        return self.layers[1](x)


def modules(hops: pl.DataFrame, *ops: str) -> list[str | None]:
    """The modules of the outermost hops of these ops (no op: of all), in order."""
    outermost = hops.filter(pl.col("parent").is_null())
    if ops:
        outermost = outermost.filter(pl.col("op").cast(pl.String).is_in([f"aten::{op}" for op in ops]))
    return outermost["module"].cast(pl.String).to_list()


def inputs() -> Tensor:
    return torch.linspace(-1, 1, 8).view(2, 4)
