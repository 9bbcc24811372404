"""Helpers for numpy columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tracer.trace.bytes import format as fmt

T = TypeVar("T")
Codes = NDArray[np.int32]
"""Indices into a list; -1: none"""


@dataclass
class Numbering(Generic[T]):
    """Numbers values from 0 in the order in which they appear."""

    numbers: dict[T, int] = field(default_factory=dict)

    def __call__(self, value: T) -> int:
        return self.numbers.setdefault(value, len(self.numbers))


def lookup(table: Mapping[int, int], ids: NDArray[np.uint32]) -> Codes:
    """table[id] for each id; -1 where it has none."""
    if not table or not len(ids):
        return np.full(len(ids), -1, np.int32)
    keys = np.array(sorted(table), np.int64)
    codes = np.array([table[key] for key in keys.tolist()], np.int32)
    at = np.minimum(np.searchsorted(keys, ids), len(keys) - 1)
    return np.where(keys[at] == ids, codes[at], np.int32(-1))


def concatenate(parts: list[np.ndarray], dtype: type) -> np.ndarray:
    if len(parts) == 1:
        return parts[0].astype(dtype, copy=False)
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.empty(0, dtype)


def take(values: np.ndarray, at: np.ndarray, missing: Any = -1) -> np.ndarray:
    """values[at]; `missing` where `at` is -1."""
    if not len(values):
        return np.full(len(at), missing, values.dtype)
    taken: np.ndarray = np.where(at >= 0, values[at], values.dtype.type(missing))
    return taken


def low(words: NDArray[np.uint64]) -> NDArray[np.uint32]:
    return (words & np.uint64(fmt.LOW_32)).astype(np.uint32)
