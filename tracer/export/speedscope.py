"""speedscope's format: a flame graph of hops for each thread, by self time.

https://www.speedscope.app/file-format-schema.json: evented profiles, in which each distinct path of hops
is opened once, for the self time of all hops at its end and the times of the paths below it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.analysis.phases import phase_of_hops
from tracer.analysis.source_lines import NO_LINE, SourceLines
from tracer.analysis.trees import levels
from tracer.base.numerals import number_of
from tracer.base.package import VERSION
from tracer.export.output import new_file
from tracer.export.tracks import Tracks
from tracer.trace import Trace
from tracer.trace.tables.series import numbers

ROOTS = ("line", "module")
SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def write(trace: Trace, path: Path, by: str | None = None) -> list[str]:
    """Writes the trace as `path`; raises OSError.

    With `by`, one of ROOTS, the outermost hops are below the line or the modules that called them.
    """
    frames, frame_of = _frames(trace.hops)
    roots = _Roots(trace, by, len(frames)) if by else None
    frames += roots.frames if roots else []
    paths = _Paths(trace.hops, frame_of, len(frames), roots)
    profiles = [_profile(paths, name, rows) for name, rows in _threads(trace)]
    busiest = max(range(len(profiles)), key=lambda place: profiles[place]["endValue"], default=None)
    document = {
        "$schema": SCHEMA,
        "exporter": f"tracer {VERSION}",
        "name": Path(trace.path).name,
        **({} if busiest is None else {"activeProfileIndex": busiest}),
        "shared": {"frames": frames},
        "profiles": profiles,
    }
    with new_file(path) as file:
        for piece in json.JSONEncoder().iterencode(document):
            file.write(piece.encode())
    return []


def _frames(hops: pl.DataFrame) -> tuple[list[dict[str, Any]], NDArray[np.int64]]:
    """(the frames, the frame of each hop); a frame is an op at a key with its kernel function.

    Its file and line are where the kernel was registered.
    """
    columns = ["op", "key", "kernel", "registered_at"]
    found = hops.select(columns).with_row_index("row").group_by(columns, maintain_order=True).agg("row")
    frame_of = np.empty(len(hops), np.int64)
    frame_of[found["row"].explode().to_numpy()] = np.repeat(
        np.arange(len(found)), found["row"].list.len().to_numpy()
    )
    return [_frame(*values) for values in found.select(pl.col(columns).cast(pl.String)).rows()], frame_of


def _frame(op: str | None, key: str | None, kernel: str | None, registered_at: str | None) -> dict[str, Any]:
    name = " ".join([op or "an unknown op", *([f"[{key}]"] if key else []), *([kernel] if kernel else [])])
    file, _, line = (registered_at or "").rpartition(":")
    if file and (number := number_of(line)) is not None:
        return {"name": name, "file": file, "line": number}
    return {"name": name, **({"file": registered_at} if registered_at else {})}


class _Roots:
    """What outermost hops are below: their phase, and there the line or modules."""

    def __init__(self, trace: Trace, by: str, first: int) -> None:
        """`first`: the number of the first of `frames`."""
        self.frames: list[dict[str, Any]] = []
        self._first, self._numbers = first, dict[str, int]()
        self._sources = SourceLines.of(trace)
        hops = trace.hops
        place = pl.col({"line": "source", "module": "module"}[by]).cast(pl.String)
        rows = hops.select(kind=phase_of_hops(trace), place=place)
        distinct = rows.unique(maintain_order=True)
        self.frames_of_root = [self._frames(kind, place, by) for kind, place in distinct.iter_rows()]
        """Numbers of frames, outermost first"""
        self.of_row: NDArray[np.int64] = (
            rows.join(
                distinct.with_row_index("root"),
                on=["kind", "place"],
                how="left",
                nulls_equal=True,
                maintain_order="left",
            )["root"]
            .cast(pl.Int64)
            .to_numpy()
        )

    def _frames(self, kind: str, place: str | None, by: str) -> list[int]:
        if place is None:
            below = [self._frame(NO_LINE if by == "line" else "no module")]
        elif by == "module":
            below = [self._frame(part) for part in place.split(".")]
        else:
            text = self._sources.text(place)
            file, _, line = place.rpartition(":")
            named = self._sources.name(place)
            number = number_of(line) or 0
            below = [self._frame(f"{named}  {text}" if text else named, file=file, line=number)]
        return [self._frame(kind), *below]

    def _frame(self, name: str, **place: str | int) -> int:
        if name not in self._numbers:
            self._numbers[name] = self._first + len(self.frames)
            self.frames.append({"name": name, **place})
        return self._numbers[name]


class _Paths:
    """The distinct paths of frames from an outermost hop; a path is its last frame below another path."""

    def __init__(
        self, hops: pl.DataFrame, frame_of: NDArray[np.int64], frames: int, roots: _Roots | None
    ) -> None:
        parent = numbers(hops["parent"])
        self.of_hop = np.full(len(hops), -1)
        self.self_ns = hops["self_ns"].to_numpy()
        self._above: list[int] = []
        self._frame: list[int] = []
        around = np.full(len(hops), -1)  # of the outermost hops
        if roots:
            around = np.array([self._chain(numbers) for numbers in roots.frames_of_root] or [-1])[
                roots.of_row
            ]
        for rows in levels(parent):
            above = np.where(parent[rows] >= 0, self.of_hop[parent[rows]], around[rows])
            key = (above + 1) * frames + frame_of[rows]
            distinct, of_row = np.unique(key, return_inverse=True)
            self.of_hop[rows] = of_row + len(self._above)
            self._above += (distinct // frames - 1).tolist()
            self._frame += (distinct % frames).tolist()

    def _chain(self, frames: list[int]) -> int:
        """A path of these frames, outermost first."""
        path = -1
        for frame in frames:
            self._above.append(path)
            self._frame.append(frame)
            path = len(self._frame) - 1
        return path

    def events(self, weights: dict[int, int]) -> list[dict[str, Any]]:
        """Opens each path that has a weight, or that one with a weight is below, once; closes it after these.

        So their number grows with the paths, and not with how deep they are, as that of samples does.
        """
        below: dict[int, list[int]] = {}
        seen: set[int] = set()
        for path in weights:
            while path >= 0 and path not in seen:
                seen.add(path)
                path = self._above[path]
        for path in sorted(seen, reverse=True):
            below.setdefault(self._above[path], []).append(path)
        events, at, left = list[dict[str, Any]](), 0, below.get(-1, [])
        while left:
            path = left.pop()
            if path < 0:
                events.append({"type": "C", "frame": self._frame[~path], "at": at})
                continue
            events.append({"type": "O", "frame": self._frame[path], "at": at})
            at += weights.get(path, 0)
            left += [~path, *below.get(path, [])]
        return events


def _threads(trace: Trace) -> list[tuple[str, NDArray[np.int64]]]:
    """(name, rows of hops) of each thread that has hops."""
    tracks = Tracks(trace)
    track_of = tracks.of_threads(trace.hops)
    several = len(tracks.processes) > 1
    names = [
        f"{track.name} ({track.thread})" + (f" of process {track.process.process}" if several else "")
        for track in tracks.tracks
    ]
    return [(names[track], np.flatnonzero(track_of == track)) for track in np.unique(track_of).tolist()]


def _profile(paths: _Paths, name: str, rows: NDArray[np.int64]) -> dict[str, Any]:
    found, of_row = np.unique(paths.of_hop[rows], return_inverse=True)
    weights = np.zeros(len(found), np.int64)
    np.add.at(weights, of_row, paths.self_ns[rows])
    return {
        "type": "evented",
        "name": name,
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": int(weights.sum()),
        "events": paths.events(dict(zip(found.tolist(), weights.tolist(), strict=True))),
    }
