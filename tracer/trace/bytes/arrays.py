"""Helpers for numpy columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    if len(ids) < len(table):  # as in each of many short lanes, which share a table
        return np.array([table.get(number, -1) for number in ids.tolist()], np.int32)
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


def nearest(parent: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For each row itself or the innermost row around it that is wanted; -1: none.

        parent  -1  0  1  2  2      wanted  no  yes  no  no  yes      nearest  -1  1  1  1  4

    Pointers are doubled, so there are as many rounds as the depth has bits, not as there are levels.
    """
    jump = np.append(np.where(wanted, np.arange(len(parent)), parent), -1)
    for _ in doublings(parent):
        further = jump[jump]
        if np.array_equal(further, jump):
            break
        jump = further
    found: np.ndarray = jump[:-1]
    return found


def doublings(parent: np.ndarray) -> range:
    """As many rounds as pointers need to be doubled to the outermost row: more never end in a circle."""
    return range(len(parent).bit_length() + 1)


def unlooped(parent: np.ndarray) -> np.ndarray:
    """Parents without circles: rows in one, and in rows of one, are outermost (-1).

    By time a hop can be in a call that is in the hop: a clock of a damaged trace goes back.
    """
    jump = np.where(parent >= 0, parent, np.arange(len(parent), dtype=parent.dtype))
    for _ in doublings(parent):
        further = jump[jump]
        if np.array_equal(further, jump):
            break
        jump = further
    return np.where(parent[jump] >= 0, np.array(-1, parent.dtype), parent)


def climb(parent: np.ndarray, row: np.ndarray, passes: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """From each row outwards to the first that does not pass; -1: all do. `row` -1 stays.

    `passes` says of a row for each place of `row` whether to go on; what encloses a row that does not pass
    must not pass either. Steps of half the depth come first, so there are as many as it has bits.
    """
    above = [np.append(parent, -1)]
    for _ in doublings(parent):
        if not (above[-1] >= 0).any():
            break
        above.append(above[-1][above[-1]])
    going = (row >= 0) & passes(np.maximum(row, 0))
    for up in reversed(above):
        further = up[row]
        step = going & (further >= 0) & passes(np.maximum(further, 0))
        row = np.where(step, further, row)
    reached: np.ndarray = np.where(going, above[0][row], row)
    return reached


def low(words: NDArray[np.uint64]) -> NDArray[np.uint32]:
    return (words & np.uint64(fmt.LOW_32)).astype(np.uint32)
