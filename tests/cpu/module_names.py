"""The modules of hops, and inputs of the models in own_models.py."""

from __future__ import annotations

import polars as pl
from lazily import torch


def modules(hops: pl.DataFrame, *ops: str) -> list[str | None]:
    """The modules of the outermost hops of these ops (no op: of all), in order."""
    outermost = hops.filter(pl.col("parent").is_null())
    if ops:
        outermost = outermost.filter(pl.col("op").cast(pl.String).is_in([f"aten::{op}" for op in ops]))
    return outermost["module"].cast(pl.String).to_list()


def inputs() -> torch.Tensor:
    return torch.linspace(-1, 1, 8).view(2, 4)
