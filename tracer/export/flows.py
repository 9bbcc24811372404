"""Arrows of a timeline: from an API call to what the GPU did, from a forward hop to its backward hops."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.trace import Trace
from tracer.trace.tables.series import numbers

_FIRST_BACKWARD = 1 << 33  # flows of activities have lower ids


@dataclass(frozen=True)
class Flows:
    """One flow per arrow: row of a table -> row of a table, with its own id."""

    source: NDArray[np.int64]
    """In ascending order"""
    target: NDArray[np.int64]
    id: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.source)

    def leaving(self, rows: NDArray[np.int64]) -> dict[int, list[int]]:
        """place in `rows` -> ids of the flows from there"""
        first = np.searchsorted(self.source, rows)
        last = np.searchsorted(self.source, rows, side="right")
        return {
            int(place): self.id[first[place] : last[place]].tolist() for place in np.flatnonzero(last > first)
        }

    def arriving(self, rows: NDArray[np.int64]) -> dict[int, int]:
        """place in `rows` -> id of the flow to there; a row is the target of one at most"""
        if not len(self):
            return {}
        order = self._by_target
        place = np.minimum(np.searchsorted(self.target, rows, sorter=order), len(self) - 1)
        found = np.flatnonzero(self.target[order[place]] == rows)
        return dict(zip(found.tolist(), self.id[order[place[found]]].tolist(), strict=True))

    @cached_property
    def _by_target(self) -> NDArray[np.int64]:
        return np.argsort(self.target)


def activity_flows(activities: pl.DataFrame, shown: NDArray[np.int64]) -> Flows:
    """API call -> GPU activity, for the rows of activities that are shown."""
    call = numbers(activities["api_call"])
    target = np.sort(shown[call[shown] >= 0])
    return _sorted(call[target], target, target + 1)


def backward_flows(trace: Trace) -> Flows:
    """Forward hop -> each outermost hop of the backward node that it made."""
    forward = numbers(trace.hops["forward_hop"])
    parent = numbers(trace.hops["parent"])
    target = np.flatnonzero(forward >= 0)
    outer = np.where(parent[target] >= 0, forward[parent[target]], -1)
    target = target[outer != forward[target]]
    return _sorted(forward[target], target, target + _FIRST_BACKWARD)


def _sorted(source: NDArray[np.int64], target: NDArray[np.int64], ids: NDArray[np.int64]) -> Flows:
    order = np.argsort(source, kind="stable")
    return Flows(source[order], target[order], ids[order])
