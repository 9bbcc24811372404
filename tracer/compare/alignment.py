"""Two dispatch chains side by side: which lines are the same, and where they part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_SAME, _OTHER_KERNEL, _OTHER_KEY = 8, 5, 1


@dataclass(frozen=True)
class Link:
    """One line of a chain: a hop, a library or API call, or what the GPU did.

    `kernel` of an API call: the names of what it made the GPU do. `count` is how often the line appears
    there among its siblings.
    """

    kind: str
    op: str
    key: str = ""
    kernel: str = ""
    count: int = 1


@dataclass(frozen=True)
class Pair:
    """Positions in the two chains; None where the other chain has nothing that goes with it."""

    stock: int | None
    override: int | None
    same: bool


def align(stock: Sequence[Link], override: Sequence[Link]) -> list[Pair]:
    """Every line of both chains, in order, paired where they go together.

    Equal lines go together, else hops of one op at one key (another kernel function), else those of
    one op; hops of different ops never do, nor calls that launch different kernels. Of all alignments
    it is the one with the largest sum of such likeness.
    """
    start = 0
    while start < min(len(stock), len(override)) and stock[start] == override[start]:
        start += 1
    end = 0
    while end < min(len(stock), len(override)) - start and stock[-1 - end] == override[-1 - end]:
        end += 1
    middle = _best(stock[start : len(stock) - end], override[start : len(override) - end])
    pairs = [Pair(i, i, True) for i in range(start)]
    for i, j in middle:
        left, right = (None if i is None else start + i), (None if j is None else start + j)
        same = left is not None and right is not None and stock[left] == override[right]
        pairs.append(Pair(left, right, same))
    for k in range(end, 0, -1):
        pairs.append(Pair(len(stock) - k, len(override) - k, True))
    return pairs


def first_difference(pairs: Sequence[Pair]) -> int | None:
    """The place of the first pair that is not the same on both sides; None where all are."""
    return next((place for place, pair in enumerate(pairs) if not pair.same), None)


def likeness(stock: Link, override: Link) -> int:
    """0: they do not go together."""
    if stock == override:
        return _SAME
    if (stock.kind in _HOPS) != (override.kind in _HOPS) or stock.op != override.op:
        return 0
    if stock.kind not in _HOPS and stock.kernel != override.kernel:
        return 0
    return _OTHER_KERNEL if stock.key == override.key else _OTHER_KEY


_HOPS = ("call", "redispatch")


def _best(stock: Sequence[Link], override: Sequence[Link]) -> list[tuple[int | None, int | None]]:
    """The alignment with the largest likeness in all (a weighted longest common subsequence)."""
    rows, columns = len(stock), len(override)
    if not rows or not columns:
        return [(i, None) for i in range(rows)] + [(None, j) for j in range(columns)]
    number = {link: place for place, link in enumerate(dict.fromkeys([*stock, *override]))}
    table = np.array([[likeness(left, right) for right in number] for left in number], np.int32)
    weight = table[np.ix_([number[link] for link in stock], [number[link] for link in override])]
    best = np.zeros((rows + 1, columns + 1), np.int32)
    for i in range(1, rows + 1):
        paired = best[i - 1, :-1] + weight[i - 1]
        best[i, 1:] = np.maximum.accumulate(np.maximum(best[i - 1, 1:], paired))
    pairs: list[tuple[int | None, int | None]] = []
    i, j = rows, columns
    while i or j:
        # Backwards, so of lines that only one has, those of stock come out first.
        if i and j and weight[i - 1, j - 1] and best[i, j] == best[i - 1, j - 1] + weight[i - 1, j - 1]:
            i, j = i - 1, j - 1
            pairs.append((i, j))
        elif j and best[i, j] == best[i, j - 1]:
            j -= 1
            pairs.append((None, j))
        else:
            i -= 1
            pairs.append((i, None))
    return pairs[::-1]
