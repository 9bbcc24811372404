"""The order in which nested rows of several tables begin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.trees import levels


def entry_order(
    parent: NDArray[np.int64],
    track: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The rows by track, each after the one that encloses it and before what starts after it.

    Siblings do not overlap, so one that takes no time comes before one that starts at that time.
    """
    count = len(parent)
    by_depth = levels(parent)
    size = np.ones(count, np.int64)
    for rows in reversed(by_depth[1:]):
        np.add.at(size, parent[rows], size[rows])
    siblings = np.lexsort((np.arange(count), end, start, track, parent))
    before = np.cumsum(size[siblings]) - size[siblings]
    first = np.flatnonzero(np.diff(parent[siblings], prepend=-2))
    before -= np.repeat(before[first], np.diff(first, append=count))
    position = np.empty(count, np.int64)
    position[siblings] = before
    for rows in by_depth[1:]:
        position[rows] += position[parent[rows]] + 1
    return np.argsort(position, kind="stable")
