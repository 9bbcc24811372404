"""The tracks of a timeline: threads, the streams of GPUs, and what is marked above them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.trace import Trace

_FIRST_STREAM_THREAD = 1 << 23  # above every OS thread id
RANKS = {"steps": -5, "modules": -4, "ranges": -3, "compiler phases": -2, "compiled code": -1}


@dataclass(frozen=True)
class Process:
    process: int
    pid: int
    name: str


@dataclass(frozen=True)
class Track:
    """A thread, a part of a GPU stream in which no two activities overlap, or marks: one of RANKS."""

    process: Process
    thread: int
    """The OS thread id; of another track a number above those"""
    name: str
    is_thread: bool
    rank: int = 0
    """Its place in its process: marks above threads, streams below"""


@dataclass(frozen=True)
class Activities:
    """GPU activities that have times: row and track of each, ordered by track and start."""

    row: NDArray[np.int64]
    track: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]


class Tracks:
    """All tracks of a trace; the number of a track is its place in `tracks`."""

    def __init__(self, trace: Trace) -> None:
        self.processes = _processes(trace)
        self.tracks: list[Track] = []
        self._threads = self._add_threads(trace)
        self.activities = self._add_streams(trace.gpu_activities)
        self._marked: dict[tuple[str, int, int | None, int], int] = {}

    def of_threads(self, table: pl.DataFrame) -> NDArray[np.int64]:
        """The track of each row of a table that has process and thread."""
        return np.searchsorted(self._threads, _thread_keys(table))

    def of_marks(self, kind: str, marks: pl.DataFrame) -> NDArray[np.int64]:
        """The track of each row of marks.MARKS; `kind` is one of RANKS. Tracks that are new are added."""
        places = marks.select("process", "thread", "lane")
        for process, thread, lane in places.unique(maintain_order=True).sort("lane").iter_rows():
            if (key := (kind, process, thread, lane)) not in self._marked:
                self._marked[key] = len(self.tracks)
                name = kind if thread is None else f"{kind} of {self._thread_name(process, thread)}"
                name += f" ({lane + 1})" if lane else ""
                number = _FIRST_STREAM_THREAD + len(self.tracks)
                self.tracks.append(Track(self.processes[process], number, name, False, RANKS[kind]))
        return np.array([self._marked[(kind, *place)] for place in places.iter_rows()], np.int64)

    def _thread_name(self, process: int, thread: int) -> str:
        place = int(np.searchsorted(self._threads, np.uint64(process << 32 | thread)))
        track = self.tracks[place] if place < len(self._threads) else None
        named = track is not None and track.name != f"thread {thread}"
        return f"{track.name} ({thread})" if track is not None and named else f"thread {thread}"

    def _add_threads(self, trace: Trace) -> NDArray[np.uint64]:
        tables = (trace.threads, trace.hops, trace.library_calls, trace.api_calls)
        keys = np.unique(np.concatenate([_thread_keys(table) for table in tables]))
        names = dict(zip(_thread_keys(trace.threads).tolist(), trace.threads["name"].to_list(), strict=True))
        for key in keys.tolist():
            process, thread = key >> 32, key & 0xFFFFFFFF
            name = names.get(key) or f"thread {thread}"
            self.tracks.append(Track(self.processes[process], thread, name, True))
        return keys

    def _add_streams(self, activities: pl.DataFrame) -> Activities:
        place = ["process", "device", "context", "stream"]
        table = activities.select(
            pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
            pl.col(place).cast(pl.Int64).fill_null(0),
            pl.col("start_ns", "end_ns"),
        ).drop_nulls("start_ns")
        table = table.sort(*place, "start_ns", maintain_order=True).with_columns(
            end_ns=pl.max_horizontal("start_ns", "end_ns"),
            group=pl.struct(place).rle_id(),
        )
        lane = _lanes(table)
        table = table.with_columns(lane=lane).sort("group", "lane", maintain_order=True)
        names = table.select(*place, "lane").unique(maintain_order=True)
        contexts = names.group_by("process", "device").agg(pl.col("context").n_unique().alias("contexts"))
        first = len(self.tracks)
        for row in names.join(contexts, on=["process", "device"], maintain_order="left").iter_rows(
            named=True
        ):
            name = f"GPU {row['device']} stream {row['stream']}"
            name += f" context {row['context']}" if row["contexts"] > 1 else ""
            name += f" ({row['lane'] + 1})" if row["lane"] else ""
            thread = _FIRST_STREAM_THREAD + len(self.tracks) - first
            rank = 1 + len(self.tracks) - first
            self.tracks.append(Track(self.processes[row["process"]], thread, name, False, rank))
        track = table.select(pl.struct("group", "lane").rle_id()).to_series().to_numpy() + first
        return Activities(
            table["row"].to_numpy(),
            track.astype(np.int64),
            table["start_ns"].to_numpy(),
            table["end_ns"].to_numpy(),
        )


def _processes(trace: Trace) -> dict[int, Process]:
    """number -> process; also those that only activities name."""
    processes = {
        process: Process(process, pid, command or f"process {process}")
        for process, pid, command in trace.processes.select("process", "pid", "command").iter_rows()
    }
    for table in (trace.threads, trace.hops, trace.api_calls, trace.library_calls, trace.gpu_activities):
        for process in table["process"].unique().to_list():
            processes.setdefault(process, Process(process, process + 1, f"process {process}"))
    return processes


def _thread_keys(table: pl.DataFrame) -> NDArray[np.uint64]:
    return (table["process"].cast(pl.UInt64) * (1 << 32) + table["thread"].cast(pl.UInt64)).to_numpy()


def _lanes(table: pl.DataFrame) -> pl.Series:
    """The lowest lane of its stream that is free when an activity starts.

    Activities of one stream overlap in the replay of a graph with branches, and where a kernel
    starts while the one before it ends.
    """
    before = pl.col("end_ns").cum_max().shift(1).over("group")
    overlaps = table.select((pl.col("start_ns") < before).any().over("group").fill_null(False)).to_series()
    lane = np.zeros(len(table), np.int64)
    places = np.flatnonzero(overlaps.to_numpy())
    busy: list[int] = []
    group = -1
    for place, number, start, end in zip(
        places.tolist(),
        *(table[name].gather(places) for name in ("group", "start_ns", "end_ns")),
        strict=True,
    ):
        if number != group:
            group, busy = number, []
        free = next((index for index, until in enumerate(busy) if until <= start), len(busy))
        busy[free : free + 1] = [end]
        lane[place] = free
    return pl.Series(lane)
