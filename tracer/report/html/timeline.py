"""The timeline of a page: the calls of some steps, thread by thread, and the GPU work that they started."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.analysis.memory_use import curve, memory_use
from tracer.analysis.ranges import lanes
from tracer.analysis.step_times import Claims, gpu_busy, waits
from tracer.analysis.trees import Forest
from tracer.base.visible import LONGEST, visible
from tracer.report.html.columns import packed
from tracer.report.reading import Reading
from tracer.trace.tables.schema import GPU_KINDS

MOST_STEPS = 12
MOST_RANGES = 1_000  # of a step
MOST_EVENTS = 60_000  # of all steps
MOST_PIECES = 1_000  # of a step's parts, and of its waits
BUCKETS = 300  # of a curve over a step
LEAST_EVENTS = 2_000  # of a step, if it has as many


def packed_timeline(reading: Reading, forest: Forest, node_of: NDArray[np.int64]) -> str:
    """The text for the page: `meta` has the steps with their ranges, and the tracks.

    Columns, an element for each call or GPU work: start and length (ns from the start of the step), node
    (row of the tree's nodes), parent (place within the step, -1: outermost), track.
    """
    steps = reading.step_times
    chosen = _chosen(steps)
    events, measured = _Events(reading, forest, node_of), _Measured(reading)
    most = max(LEAST_EVENTS, MOST_EVENTS // max(len(chosen), 1))
    several = steps["process"].n_unique() > 1
    parts: list[dict[str, NDArray[np.int64]]] = []
    shown: list[dict[str, Any]] = []
    first = 0
    for step in chosen.iter_rows(named=True):
        part, left_out, untimed = events.of_step(
            step["process"], step["start_ns"], step["start_ns"] + step["wall_ns"], most
        )
        if not len(part["start"]):
            continue
        name = f"step {step['name']}" if step["step"] is not None else step["name"]
        shown.append(
            {
                "name": f"process {step['process']}, {name}" if several else name,
                "step": step["name"],
                "wall_ns": step["wall_ns"],
                "phase": step["phase"] or "",
                "first": first,
                "count": len(part["start"]),
                "left_out": left_out,
                "untimed": untimed,
                **measured.of_step(step["process"], step["start_ns"], step["start_ns"] + step["wall_ns"]),
                **_ranges_of_step(reading.trace.ranges, step, events.track_of_thread),
            }
        )
        parts.append(part)
        first += len(part["start"])
    names = ("start", "length", "node", "parent", "track")
    columns = {
        name: np.concatenate([part[name] for part in parts] or [np.empty(0, np.int64)]) for name in names
    }
    meta = {"steps": shown, "all_steps": len(steps), "tracks": events.tracks}
    return packed(columns, meta)


def _chosen(steps: pl.DataFrame) -> pl.DataFrame:
    """All steps, or of many the longest and those nearest to the median, in order."""
    if len(steps) <= MOST_STEPS:
        return steps
    steps = steps.with_row_index("row")
    longest = steps.sort("wall_ns", descending=True, maintain_order=True).head(MOST_STEPS // 2)
    rest = steps.join(longest, on="row", how="anti")
    median = steps["wall_ns"].median()
    usual = rest.sort((pl.col("wall_ns") - median).abs(), maintain_order=True).head(MOST_STEPS - len(longest))
    return pl.concat([longest, usual]).sort("row").drop("row")


def _ranges_of_step(
    ranges: pl.DataFrame, step: dict[str, Any], tracks: dict[tuple[int, int], int]
) -> dict[str, Any]:
    """What ran of each range of record_function in a step, the longest of too many, and how many more.

    Times are ns from the start of the step; `parent` is a place in the list (-1: none). Ranges of one lane do
    not overlap but for those in each other.
    """
    end = step["start_ns"] + step["wall_ns"]
    process = step["process"]
    inside = ranges.filter(
        (pl.col("process") == process)
        & (pl.col("start_ns") < end)
        & (pl.col("end_ns").fill_null(end) > step["start_ns"])
    ).with_columns(
        start=pl.col("start_ns").clip(step["start_ns"]),
        end=pl.col("end_ns").fill_null(end).clip(upper_bound=end),
    )
    own = {thread: track for (number, thread), track in tracks.items() if number == process}
    threads = pl.DataFrame({"thread": list(own), "track": list(own.values())})
    drawn = (
        inside.join(threads.cast({"thread": pl.UInt32}), on="thread", how="inner")
        .sort(pl.col("end") - pl.col("start"), "id", descending=[True, False])
        .head(MOST_RANGES)  # a range is as long as those in it, and comes before them
        .sort("id")
    )
    lane, around = lanes(drawn.with_columns(start_ns="start", end_ns="end"))
    names = drawn["name"].cast(pl.String).fill_null("?")
    rows = zip(names, *(drawn[name] for name in ("start", "end", "track")), lane, around, strict=True)
    return {
        "ranges": [
            {
                "name": visible(name, LONGEST),
                "start": start - step["start_ns"],
                "length": max(end - start, 0),
                "parent": parent,
                "track": track,
                "lane": lane,
            }
            for name, start, end, track, lane, parent in rows
        ],
        "ranges_left_out": len(inside) - len(drawn),
    }


class _Measured:
    """What is known of each moment of a step: its part, waits for the GPU, how busy that is, the memory."""

    def __init__(self, reading: Reading) -> None:
        self._trace = reading.trace
        self._claims = {number: Claims.of(reading.trace, number) for number in _processes(reading)}
        self._busy = {number: gpu_busy(reading.trace, number) for number in self._claims}
        self._memory = {
            (use.process, use.device): curve(reading.trace, use.process, use.device)
            for use in memory_use(reading.trace)
        }

    def of_step(self, process: int, begin: int, end: int) -> dict[str, Any]:
        """Times are ns from its start. `parts` and `waits`: name, start, length; of too many the longest,
        and how many parts more.

        `busy`: of each BUCKETS-th of the step, how many ns the GPU was busy; [] without work of one.
        `memory`: by device, the most bytes given out in each.
        """
        pieces = self._claims[process].pieces(begin, end)
        waited = waits(self._trace, process).filter((pl.col("start_ns") < end) & (pl.col("end_ns") > begin))
        waited = waited.select("name", pl.col("start_ns", "end_ns").clip(begin, end))
        edges = np.linspace(begin, end, BUCKETS + 1).astype(np.int64)
        busy = self._busy[process].within(edges[:-1], edges[1:])
        return {
            "parts": _longest(pieces, begin),
            "parts_left_out": max(len(pieces) - MOST_PIECES, 0),
            "waits": _longest(waited, begin),
            "busy": busy.tolist() if busy.any() else [],
            "memory": {
                visible(device, 200): highest(changes, edges)
                for (number, device), changes in self._memory.items()
                if number == process
            },
        }


def _processes(reading: Reading) -> list[int]:
    return [int(number) for number in reading.step_times["process"].unique()]


def _longest(pieces: pl.DataFrame, begin: int) -> list[tuple[str, int, int]]:
    """Name, start and length of MOST_PIECES of rows with a name, a start and an end, in their order."""
    length = pl.col("end_ns") - pl.col("start_ns")
    kept = pieces.sort(length, descending=True, maintain_order=True).head(MOST_PIECES).sort("start_ns")
    return [
        (visible(name or "?", 200), first - begin, last - first) for name, first, last in kept.iter_rows()
    ]


def highest(changes: pl.DataFrame, edges: NDArray[np.int64]) -> list[int]:
    """The most bytes in each bucket: after a change in it, or before the first one."""
    times, given = changes["time_ns"].to_numpy(), np.append(0, changes["bytes"].to_numpy())
    first, last = (np.searchsorted(times, at, "left") for at in (edges[:-1], edges[1:]))
    return [int(given[low : high + 1].max()) for low, high in zip(first, last, strict=True)]


class _Events:
    """The rows of a forest as events of a timeline."""

    def __init__(self, reading: Reading, forest: Forest, node_of: NDArray[np.int64]) -> None:
        rows = forest.hops
        self._forest, self._node_of = forest, node_of
        self._start = rows["start_ns"].to_numpy()
        self._end = np.maximum(rows["end_ns"].fill_null(0).to_numpy(), self._start)
        self._process = rows["process"].to_numpy()
        self._on_gpu = rows["kind"].cast(pl.String).is_in(GPU_KINDS).to_numpy()
        self._timed = np.ones(len(rows), bool)
        self.tracks: list[dict[str, Any]] = []
        self.track_of_thread: dict[tuple[int, int], int] = {}
        self._track = self._tracks(reading, rows)
        self._root_start = self._start[forest.root]
        self._weight = self._weights()

    def of_step(
        self, process: int, begin: int, end: int, most: int
    ) -> tuple[dict[str, NDArray[np.int64]], int, int]:
        """The events whose outermost call began in this time, how many more, how many without times.

        Of too many the longest are kept, with the calls around them and those that launched GPU work.
        """
        inside = (self._process == process) & (self._root_start >= begin) & (self._root_start < end)
        untimed = int((inside & ~self._timed).sum())
        rows = np.flatnonzero(inside & self._timed)
        left_out = max(len(rows) - most, 0)
        if left_out:
            # Those around a row weigh as much as it and come first, so none of them is left out.
            order = np.lexsort((self._forest.depth[rows], -self._weight[rows]))
            rows = np.sort(rows[order[:most]])
        place = np.full(len(self._start) + 1, -1)
        place[rows] = np.arange(len(rows))
        part = {
            "start": self._start[rows] - begin,
            "length": self._end[rows] - self._start[rows],
            "node": self._node_of[rows],
            "parent": place[self._forest.parent[rows]],
            "track": self._track[rows],
        }
        return part, left_out, untimed

    def _weights(self) -> NDArray[np.int64]:
        """The length of each event, or of the longest below it."""
        weight = self._end - self._start
        for rows in reversed(list(self._forest.levels())[1:]):
            np.maximum.at(weight, self._forest.parent[rows], weight[rows])
        return weight

    def _tracks(self, reading: Reading, rows: pl.DataFrame) -> NDArray[np.int64]:
        """The track of each row; fills `tracks`, threads before streams, and `track_of_thread`."""
        places = rows.select(pl.col("process", "thread").cast(pl.Int64)).with_columns(
            gpu=pl.Series(self._on_gpu), stream=pl.lit(None, pl.Int64), device=pl.lit(None, pl.Int64)
        )
        if self._on_gpu.any():
            activities = reading.trace.gpu_activities
            own = rows["activity"]
            for name in ("stream", "device"):
                places = places.with_columns(activities[name].cast(pl.Int64).gather(own).alias(name))
            places = places.with_columns(
                thread=pl.when("gpu").then(pl.lit(-1)).otherwise("thread"),
            )
            known = activities["start_ns"].is_not_null().gather(own).fill_null(True)
            self._timed = known.to_numpy()
        keys = ["process", "gpu", "device", "stream", "thread"]
        distinct = places.select(keys).unique().sort(keys, nulls_last=False)
        found = places.join(
            distinct.with_row_index("track"), on=keys, how="left", nulls_equal=True, maintain_order="left"
        )
        self.tracks = list(_names(reading, distinct))
        self.track_of_thread = {
            (row["process"], row["thread"]): number
            for number, row in enumerate(distinct.iter_rows(named=True))
            if not row["gpu"]
        }
        return found["track"].cast(pl.Int64).to_numpy()


def _names(reading: Reading, distinct: pl.DataFrame) -> Iterator[dict[str, Any]]:
    threads = {
        (process, thread): name
        for process, thread, name in reading.trace.threads.select("process", "thread", "name").iter_rows()
    }
    several = distinct["process"].n_unique() > 1
    for row in distinct.iter_rows(named=True):
        if row["gpu"]:
            name = f"GPU {row['device']} stream {row['stream']}"
        else:
            own = threads.get((row["process"], row["thread"]))
            name = f"{own} ({row['thread']})" if own else f"thread {row['thread']}"
        yield {
            "name": visible(f"process {row['process']}: {name}" if several else name, 200),
            "gpu": bool(row["gpu"]),
        }
