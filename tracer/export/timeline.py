"""A trace as a timeline: nested slices on tracks, with arguments and arrows, in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.memory_use import of_recorded_blocks
from tracer.export.fields import (
    Shape,
    activity_fields,
    api_fields,
    hop_fields,
    library_fields,
    mark_fields,
)
from tracer.export.flows import activity_flows, backward_flows
from tracer.export.marks import compiled_marks, module_marks, phase_marks, range_marks, step_marks
from tracer.export.nesting import entry_order
from tracer.export.tracks import Process, Tracks
from tracer.trace import Trace
from tracer.trace.tables.series import numbers

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


@dataclass(frozen=True)
class Counter:
    """A number that changes, of a process: how many bytes of a device are in use."""

    process: Process
    name: str
    times: list[int]
    values: list[int]


class Timeline:
    """Slices are numbered: hops, library calls, API calls, each by its id, GPU activities, marks."""

    def __init__(self, trace: Trace) -> None:
        self.tracks = Tracks(trace)
        self._trace = trace
        hops, libraries, calls = trace.hops, trace.library_calls, trace.api_calls
        self._marks = {
            "steps": step_marks(trace),
            "modules": module_marks(trace),
            "ranges": range_marks(trace),
            "compiler phases": phase_marks(trace),
            "compiled code": compiled_marks(trace),
        }
        self._track_of_marks = {
            kind: self.tracks.of_marks(kind, marks) for kind, marks in self._marks.items()
        }
        tables = (hops, libraries, calls, trace.gpu_activities, *self._marks.values())
        self._firsts = np.cumsum([0, *map(len, tables)])[:-1]
        self._fields = [hop_fields(trace), library_fields(trace), api_fields(trace), activity_fields(trace)]
        self._fields += [mark_fields(kind.removesuffix("s"), marks) for kind, marks in self._marks.items()]
        self._backward = backward_flows(trace)
        self._activity = activity_flows(trace.gpu_activities, self.tracks.activities.row)

    @property
    def slices(self) -> int:
        marks = sum(map(len, self._marks.values()))
        return int(self._firsts[_ACTIVITIES]) + len(self.tracks.activities.row) + marks

    def remarks(self) -> list[str]:
        """What the timeline lacks, one line each."""
        left_out = len(self._trace.gpu_activities) - len(self.tracks.activities.row)
        return [f"{left_out:,} GPU activities have no times, so the timeline omits them"] if left_out else []

    @property
    def flows(self) -> int:
        return len(self._backward) + len(self._activity)

    def blocks(self) -> Iterator[Block]:
        """All slices: marks and those of threads, ordered by track and start, then those of GPU streams."""
        yield from self._mark_blocks()
        yield from self._host_blocks()
        yield from self._gpu_blocks()

    def counters(self) -> Iterator[Counter]:
        """The memory of each device that was recorded, from the start of the recording on."""
        known = self._trace.memory.filter(of_recorded_blocks())
        for (process, device), rows in known.partition_by(
            "process", "device", as_dict=True, maintain_order=True
        ).items():
            name = f"memory of {device} (bytes)"
            times, values = rows["time_ns"].to_list(), rows["bytes"].cum_sum().to_list()
            yield Counter(self.tracks.processes[int(process)], name, times, values)

    def _mark_blocks(self) -> Iterator[Block]:
        for place, (kind, marks) in enumerate(self._marks.items()):
            parent, track = numbers(marks["parent"]), self._track_of_marks[kind]
            start, end = (numbers(marks[name]) for name in _TIMES)
            order = entry_order(parent, track, start, end)
            base = int(self._firsts[_ACTIVITIES + 1 + place])
            for first in range(0, len(order), BLOCK):
                row = order[first : first + BLOCK]
                around = np.where(parent[row] >= 0, parent[row] + base, -1)
                yield self._block(row + base, around, track[row], start[row], end[row])

    def _host_blocks(self) -> Iterator[Block]:
        hops, libraries, calls = self._trace.hops, self._trace.library_calls, self._trace.api_calls
        tables = (hops, libraries, calls)
        track = np.concatenate([self.tracks.of_threads(table) for table in tables])
        start, end = (np.concatenate([numbers(table[name]) for table in tables]) for name in _TIMES)
        parent = self._parents()
        order = entry_order(parent, track, start, end)
        for first in range(0, len(order), BLOCK):
            number = order[first : first + BLOCK]
            yield self._block(number, parent[number], track[number], start[number], end[number])

    def _gpu_blocks(self) -> Iterator[Block]:
        gpu = self.tracks.activities
        for first in range(0, len(gpu.row), BLOCK):
            part = slice(first, first + BLOCK)
            number = gpu.row[part] + self._firsts[_ACTIVITIES]
            yield self._block(
                number, np.full(len(number), -1), gpu.track[part], gpu.start[part], gpu.end[part]
            )

    def _parents(self) -> NDArray[np.int64]:
        """The parent of an API call: the call that encloses it, else the library call, else the hop."""
        hops, libraries, calls = self._trace.hops, self._trace.library_calls, self._trace.api_calls
        _, first_library, first_call, *_ = self._firsts.tolist()
        of_library = numbers(libraries["parent"])
        of_library = np.where(of_library >= 0, of_library + first_library, numbers(libraries["hop"]))
        call_hop, library = numbers(calls["hop"]), numbers(calls["library_call_id"])
        in_library = (library >= 0) & (np.append(numbers(libraries["hop"]), -1)[library] == call_hop)
        of_call = np.where(in_library, library + first_library, call_hop)
        outer = numbers(calls["parent"])
        of_call = np.where(outer >= 0, outer + first_call, of_call)
        return np.concatenate([numbers(hops["parent"]), of_library, of_call])

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
_ACTIVITIES = 3  # the place of their numbers, behind hops, library calls and API calls
