"""A trace as a timeline: nested slices on tracks, with arguments and arrows, in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.export.fields import Shape, activity_fields, api_fields, hop_fields, library_fields
from tracer.export.flows import activity_flows, backward_flows
from tracer.export.nesting import entry_order
from tracer.export.tracks import Tracks
from tracer.trace import Trace

BLOCK = 1 << 14  # slices


@dataclass(frozen=True)
class Block:
    """Slices that follow each other, each after the one that encloses it; lists have one element a slice."""

    shapes: list[Shape]
    shape: list[int]
    """Which of `shapes`"""
    own: list[tuple[Any, ...]]
    """The values of Shape.own"""
    number: list[int]
    parent: list[int]
    """The number of the slice that encloses it; -1: none"""
    track: list[int]
    start: list[int]
    end: list[int]
    leaving: dict[int, list[int]]
    """place in the block -> ids of the flows from there"""
    arriving: dict[int, int]
    """place in the block -> id of the flow to there"""


class Timeline:
    """Slices are numbered: hops, library calls, API calls, each by its id, then GPU activities."""

    def __init__(self, trace: Trace) -> None:
        self.tracks = Tracks(trace)
        self._trace = trace
        hops, libraries, calls = trace.hops, trace.library_calls, trace.api_calls
        self._firsts = np.cumsum([0, len(hops), len(libraries), len(calls)])
        self._fields = [hop_fields(trace), library_fields(trace), api_fields(trace), activity_fields(trace)]
        self._backward = backward_flows(trace)
        self._activity = activity_flows(trace.gpu_activities, self.tracks.activities.row)

    @property
    def slices(self) -> int:
        return int(self._firsts[-1]) + len(self.tracks.activities.row)

    def remarks(self) -> list[str]:
        """What the timeline lacks, one line each."""
        left_out = len(self._trace.gpu_activities) - len(self.tracks.activities.row)
        return [f"{left_out:,} GPU activities have no times, so the timeline omits them"] if left_out else []

    @property
    def flows(self) -> int:
        return len(self._backward) + len(self._activity)

    def blocks(self) -> Iterator[Block]:
        """All slices: those of threads, ordered by track and start, then those of GPU streams."""
        yield from self._host_blocks()
        yield from self._gpu_blocks()

    def _host_blocks(self) -> Iterator[Block]:
        hops, libraries, calls = self._trace.hops, self._trace.library_calls, self._trace.api_calls
        tables = (hops, libraries, calls)
        track = np.concatenate([self.tracks.of_threads(table) for table in tables])
        start, end = (np.concatenate([_integers(table, name) for table in tables]) for name in _TIMES)
        parent = self._parents()
        order = entry_order(parent, track, start, end)
        for first in range(0, len(order), BLOCK):
            number = order[first : first + BLOCK]
            yield self._block(number, parent[number], track[number], start[number], end[number])

    def _gpu_blocks(self) -> Iterator[Block]:
        gpu = self.tracks.activities
        for first in range(0, len(gpu.row), BLOCK):
            part = slice(first, first + BLOCK)
            number = gpu.row[part] + self._firsts[3]
            yield self._block(
                number, np.full(len(number), -1), gpu.track[part], gpu.start[part], gpu.end[part]
            )

    def _parents(self) -> NDArray[np.int64]:
        """Of an API call: the one that encloses it, else the library call, else the hop."""
        hops, libraries, calls = self._trace.hops, self._trace.library_calls, self._trace.api_calls
        _, first_library, first_call, _ = self._firsts.tolist()
        of_library = _integers(libraries, "parent")
        of_library = np.where(of_library >= 0, of_library + first_library, _integers(libraries, "hop"))
        call_hop, library = _integers(calls, "hop"), _integers(calls, "library_call_id")
        in_library = (library >= 0) & (np.append(_integers(libraries, "hop"), -1)[library] == call_hop)
        of_call = np.where(in_library, library + first_library, call_hop)
        outer = _integers(calls, "parent")
        of_call = np.where(outer >= 0, outer + first_call, of_call)
        return np.concatenate([_integers(hops, "parent"), of_library, of_call])

    def _block(
        self,
        number: NDArray[np.int64],
        parent: NDArray[np.int64],
        track: NDArray[np.int64],
        start: NDArray[np.int64],
        end: NDArray[np.int64],
    ) -> Block:
        shapes: list[Shape] = []
        shape = np.empty(len(number), np.int64)
        own: list[tuple[Any, ...]] = [()] * len(number)
        table = np.searchsorted(self._firsts, number, side="right") - 1
        rows = number - self._firsts[table]
        for which, fields in enumerate(self._fields):
            places = np.flatnonzero(table == which)
            if len(places):
                found, of_row, values = fields.shapes(rows[places])
                shape[places] = of_row + len(shapes)
                shapes += found
                for place, value in zip(places.tolist(), values, strict=True):
                    own[place] = value
        hop, call, activity = (np.where(table == which, rows, -1) for which in (0, 2, 3))
        return Block(
            shapes,
            shape.tolist(),
            own,
            number.tolist(),
            parent.tolist(),
            track.tolist(),
            start.tolist(),
            end.tolist(),
            self._backward.leaving(hop) | self._activity.leaving(call),
            self._backward.arriving(hop) | self._activity.arriving(activity),
        )


_TIMES = ("start_ns", "end_ns")


def _integers(table: pl.DataFrame, column: str) -> NDArray[np.int64]:
    """-1 where it is null."""
    return table[column].cast(pl.Int64).fill_null(-1).to_numpy()
