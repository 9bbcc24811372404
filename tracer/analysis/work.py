"""The work of an op call: bytes that it must move and operations that it must do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tracer.analysis.dtypes import item_bytes


@dataclass(frozen=True)
class Tensor:
    shape: tuple[int, ...]
    dtype: str
    elements: int
    """How many elements its memory holds; an expanded tensor has fewer than its shape says"""

    @classmethod
    def of(cls, row: dict[str, Any]) -> Tensor | None:
        """From a row of `signatures`; None of an undefined tensor."""
        shape, stride = row["shape"], row["stride"]
        if shape is None or row["dtype"] is None:
            return None
        stored = _stored(shape, stride) if stride else prod(shape)
        return cls(tuple(shape), str(row["dtype"]).removeprefix("torch."), stored)

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def item(self) -> int:
        return item_bytes(self.dtype)

    @property
    def bytes(self) -> int:
        return self.elements * self.item


@dataclass(frozen=True)
class Work:
    """`output`: the shape of the first output, None if unknown. `matrix`: it may use tensor cores.

    `written`: the dtype of what `bytes` has for the output, where it is that of an op of its kind.
    """

    family: str
    bytes: int | None
    flops: int
    dtype: str
    output: tuple[int, ...] | None = None
    matrix: bool = False
    note: str = ""
    written: str = ""


Inputs = list[Tensor | None]
Outputs = dict[Any, tuple[int, ...]]
"""Shapes of outputs by what determines them (see outputs_of_backward)"""
Model = Callable[[Inputs], Work | None]


def _stored(shape: Sequence[int], stride: Sequence[int]) -> int:
    """How many places of memory elements with these strides have: those that overlap count once.

    An unfold of 10 elements, (7, 4) with strides (1, 1): 10 places, not 28. Places that repeat at a
    distance of `unit` are a level; a stride that is a whole number of units and leaves no gap makes the
    level longer, one beyond everything so far begins the next level.
    """
    if 0 in shape:
        return 0
    below, unit, length, extent = 1, 1, 1, 1
    for step, count in sorted((s, n) for s, n in zip(stride, shape, strict=True) if s and n > 1):
        if step % unit == 0 and step // unit <= length:
            length += step // unit * (count - 1)
        elif step >= extent:
            below, unit, length = below * length, step, count
        else:  # neither: at most all places between the first and the last
            everything = 1 + sum(s * (n - 1) for s, n in zip(stride, shape, strict=True))
            return min(prod(n for n, s in zip(shape, stride, strict=True) if s), everything)
        extent += step * (count - 1)
    return below * length


def defined(inputs: Inputs) -> list[Tensor]:
    return [tensor for tensor in inputs if tensor is not None]


def bytes_read(inputs: Inputs) -> int:
    return sum(tensor.bytes for tensor in defined(inputs))
