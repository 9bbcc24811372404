"""Reads exported timelines back: slices with their nesting, arguments and arrows."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(eq=False)
class Slice:
    """`around` is the slice that encloses it on its track."""

    track: tuple[Any, ...]
    category: str
    name: str
    start: int
    arguments: dict[str, Any]
    around: Slice | None = None
    end: int = -1
    leaving: list[int] = field(default_factory=list)
    arriving: list[int] = field(default_factory=list)

    @property
    def id(self) -> tuple[str, int]:
        """(category, row in its table)."""
        label = {"hop": "hop", "library": "library_call", "api": "api_call", "gpu": "activity"}
        return self.category, self.arguments[label[self.category]]


def perfetto_slices(path: Path) -> list[Slice]:
    """Replays the packets as Perfetto does: in order of time, and of the file where times are equal.

    A track is ("thread", pid, tid, name) or ("stream", pid, name).
    """
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

    trace = protos.Trace()
    data = path.read_bytes()
    trace.ParseFromString(gzip.decompress(data) if path.suffix == ".gz" else data)
    interned: dict[str, dict[int, Any]] = defaultdict(dict)
    described: dict[int, Any] = {}
    events = []
    cleared = False
    for packet in trace.packet:
        cleared |= bool(packet.sequence_flags & protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED)
        if packet.HasField("track_descriptor"):
            described[packet.track_descriptor.uuid] = packet.track_descriptor
        for entries, values in packet.interned_data.ListFields():
            for entry in values:
                text = entry.str.decode() if entries.name.endswith("string_values") else entry.name
                assert interned[entries.name].setdefault(entry.iid, text) == text
        if packet.HasField("track_event"):
            assert cleared
            # what a packet names by number was defined before it
            events.append((packet.timestamp, packet.track_event, _named(packet.track_event, interned)))
    tracks = {uuid: _track(described, uuid) for uuid in described}
    slices: list[Slice] = []
    opened: dict[int, list[Slice]] = defaultdict(list)
    for time, event, (name, category, arguments) in sorted(events, key=lambda event: event[0]):
        stack = opened[event.track_uuid]
        if event.type == protos.TrackEvent.TYPE_COUNTER:
            continue
        if event.type == protos.TrackEvent.TYPE_SLICE_END:
            stack.pop().end = time
            continue
        around = stack[-1] if stack else None
        begun = Slice(tracks[event.track_uuid], category, name, time, arguments, around)
        begun.leaving += event.flow_ids
        begun.arriving += event.terminating_flow_ids
        slices.append(begun)
        stack.append(begun)
    assert not any(opened.values())
    return slices


def _named(event: Any, interned: dict[str, dict[int, Any]]) -> tuple[str, str, dict[str, Any]]:
    if not event.name_iid:
        return "", "", {}
    arguments = {}
    for annotation in event.debug_annotations:
        kind = annotation.WhichOneof("value")
        value = getattr(annotation, kind)
        if kind == "string_value_iid":
            value = interned["debug_annotation_string_values"][value]
        arguments[interned["debug_annotation_names"][annotation.name_iid]] = value
    (category,) = event.category_iids
    return interned["event_names"][event.name_iid], interned["event_categories"][category], arguments


def _track(described: dict[int, Any], uuid: int) -> tuple[Any, ...]:
    track = described[uuid]
    if track.HasField("process"):
        return "process", track.process.pid, track.process.process_name
    if track.HasField("thread"):
        return "thread", track.thread.pid, track.thread.tid, track.thread.thread_name
    above = described[track.parent_uuid]
    name = " ".join(track.name.split())
    if above.HasField("thread"):  # whose number the page adds
        own = above.thread.thread_name != f"thread {above.thread.tid}"
        own &= name.endswith(f" of {above.thread.thread_name}")
        return "stream", above.thread.pid, f"{name} ({above.thread.tid})" if own else name
    return "stream", above.process.pid, name


def chrome_slices(path: Path) -> list[Slice]:
    """The complete events, nested by their times, with the arrows that begin and end at them."""
    data = path.read_bytes()
    document = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    names = {}
    threads: dict[tuple[int, int], list[Slice]] = defaultdict(list)
    last: dict[tuple[int, int], Slice] = {}
    ahead: dict[tuple[int, int], list[int]] = defaultdict(list)
    for event in document["traceEvents"]:
        place = event["pid"], event["tid"]
        if event["ph"] == "M":
            names[place, event["name"]] = event["args"]
        elif event["ph"] == "C":
            continue
        elif event["ph"] == "X":
            start = round(event["ts"] * 1000)
            track = (*place, names[place, "thread_name"]["name"])
            last[place] = Slice(track, event["cat"], event["name"], start, event["args"])
            last[place].end = start + round(event["dur"] * 1000)
            last[place].arriving += ahead.pop(place, [])
            threads[place].append(last[place])
        else:
            assert round(event["ts"] * 1000) == last[place].start
            if event["ph"] == "f" and event.get("bp") != "e":  # the format binds it to the next slice
                ahead[place].append(event["id"])
                continue
            ids = last[place].leaving if event["ph"] == "s" else last[place].arriving
            ids.append(event["id"])
    for slices in threads.values():
        stack: list[Slice] = []
        for inner in sorted(slices, key=lambda inner: (inner.start, -inner.end)):
            while stack and not (stack[-1].start <= inner.start and inner.end <= stack[-1].end):
                stack.pop()
            inner.around = stack[-1] if stack else None
            stack.append(inner)
    return [inner for slices in threads.values() for inner in slices]
