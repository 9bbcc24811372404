"""Chrome's trace event format: JSON, for chrome://tracing and the tools that read it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tracer.export.about import about
from tracer.export.export_errors import ExportError
from tracer.export.fields import Shape
from tracer.export.output import new_file
from tracer.export.timeline import Block, Timeline
from tracer.export.tracks import Track
from tracer.trace import Trace

MOST_EVENTS = 2_000_000


def write(trace: Trace, path: Path) -> list[str]:
    """Writes `path` and returns remarks; raises OSError, and ExportError if there are too many events."""
    timeline = Timeline(trace)
    events = timeline.slices + 2 * timeline.flows
    if events > MOST_EVENTS:
        raise ExportError(
            f"{trace.path} makes {events:,} events, and viewers of Chrome's JSON take up to "
            f"{MOST_EVENTS:,}; use --to perfetto"
        )
    with new_file(path) as file:
        head = json.dumps({"displayTimeUnit": "ns", "otherData": about(trace)})
        file.write(f'{head[:-1]}, "traceEvents": [\n'.encode())
        file.write(",\n".join(_names(timeline)).encode())
        for block in timeline.blocks():
            for event in _events(timeline.tracks.tracks, block):  # each has the texts of its op
                file.write(f",\n{event}".encode())
        file.write(b"\n]}\n")
    return timeline.remarks()


def _names(timeline: Timeline) -> Iterator[str]:
    for process in timeline.tracks.processes.values():
        yield _metadata("process_name", process.pid, 0, name=process.name)
    for track in timeline.tracks.tracks:
        yield _metadata("thread_name", track.process.pid, track.thread, name=track.name)
        if not track.is_thread:
            yield _metadata("thread_sort_index", track.process.pid, track.thread, sort_index=track.rank)
    for counter in timeline.counters():
        head = f'{{"name":{_json(counter.name)},"ph":"C","pid":{counter.process.pid},"tid":0'
        for time, value in zip(counter.times, counter.values, strict=True):
            yield f'{head},"ts":{_microseconds(time)},"args":{{"bytes":{value}}}}}'


def _metadata(kind: str, pid: int, tid: int, **arguments: str | int) -> str:
    return _json({"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": arguments})


def _events(tracks: list[Track], block: Block) -> Iterator[str]:
    """Complete events (X), and for each arrow its start (s) and its finish (f)."""
    shapes = [_shape(shape) for shape in block.shapes]
    places = [f'"pid":{track.process.pid},"tid":{track.thread}' for track in tracks]
    slices = zip(block.shape, block.own, block.track, block.start, block.end, strict=True)
    for place, (shape, own, track, start, end) in enumerate(slices):
        head, arguments, labels = shapes[shape]
        time = f'{places[track]},"ts":{_microseconds(start)}'
        values = "".join(
            f"{label}{value if isinstance(value, int) else _json(value)}"
            for label, value in zip(labels, own, strict=True)
            if label is not None
        )
        arguments = f"{arguments}{values}".lstrip(",")
        yield f'{{{head},{time},"dur":{_microseconds(end - start)},"args":{{{arguments}}}}}'
        for flow in block.leaving.get(place, ()):
            yield f'{{"name":"flow","cat":"flow","ph":"s","id":{flow},{time}}}'
        if place in block.arriving:
            yield f'{{"name":"flow","cat":"flow","ph":"f","bp":"e","id":{block.arriving[place]},{time}}}'


def _shape(shape: Shape) -> tuple[str, str, list[str | None]]:
    """(the JSON of name, category and phase, that of its arguments, those before its own values)."""
    head = f'"name":{_json(shape.name)},"cat":"{shape.category}","ph":"X"'
    arguments = ",".join(f"{_json(label)}:{_json(value)}" for label, value in shape.arguments)
    return head, arguments, [label and f",{_json(label)}:" for label in shape.own]


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _microseconds(ns: int) -> str:
    """All digits: a float would round the times of long recordings."""
    return f"{ns // 1000}.{ns % 1000:03d}"
