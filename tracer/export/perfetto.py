"""Perfetto's format: track events in packets, through the package `perfetto`.

Names and texts are written once and numbered (interned). A packet is made once for all slices that
are the same and filled in for each, so that memory does not grow with the trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tracer.export.about import about
from tracer.export.export_errors import ExportError
from tracer.export.fields import Shape
from tracer.export.output import new_file
from tracer.export.timeline import Block, Counter, Timeline
from tracer.export.tracks import Track
from tracer.trace import Trace

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackDescriptor

MISSING = (
    "--to perfetto needs the package perfetto, the extra dispatch-tracer[perfetto]: pip install perfetto"
)
_SEQUENCE = 1
_LABELS = ("written_by", "time_origin", "certificate")
_LARGEST_ID = (1 << 31) - 1  # of Linux it is 4,194,304; a damaged trace may have more
_MOST_TEMPLATES = 1 << 14
_WIDEST_STREAM = 5  # digits


def check() -> None:
    """Raises ExportError if the package is missing."""
    try:
        import perfetto.protos.perfetto.trace.perfetto_trace_pb2
        import perfetto.trace_builder.proto_builder  # noqa: F401
    except ImportError:
        raise ExportError(MISSING) from None


def write(trace: Trace, path: Path) -> list[str]:
    """Writes `path` and returns remarks; raises OSError, and ExportError if the package is missing."""
    check()
    timeline = Timeline(trace)
    with new_file(path) as file:
        writer = _Writer(file)
        writer.tracks(trace, timeline)
        for block in timeline.blocks():
            writer.block(block)
        writer.close()
    return timeline.remarks()


class _Writer:
    def __init__(self, file: BinaryIO) -> None:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos
        from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

        self._protos = protos
        self._builder = StreamingTraceProtoBuilder(file)
        self._interned = _Interned(self._new_packet)
        self._templates: dict[Shape, tuple[TracePacket, list[Any]]] = {}
        self._end = self._new_packet()
        self._end.track_event.type = protos.TrackEvent.TYPE_SLICE_END
        self._open: list[tuple[int, int, int]] = []
        """(number, track, end) of the slices that are not ended, outermost first"""
        self._uuids: list[int] = []

    def tracks(self, trace: Trace, timeline: Timeline) -> None:
        """The first packets: what the sequence is, processes, threads and streams."""
        packet = self._new_packet()
        packet.sequence_flags = self._protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        self._builder.write_packet(packet)
        uuids = count(1)
        processes = self._process_tracks(trace, timeline, uuids)
        numbers = [next(uuids) for _ in timeline.tracks.tracks]
        above = _first_threads(timeline.tracks.tracks, numbers)
        for line, number in zip(timeline.tracks.tracks, numbers, strict=True):
            track = self._track(number)
            track.parent_uuid = processes[line.process.process]
            if line.is_thread:
                track.thread.pid = line.process.pid & _LARGEST_ID
                track.thread.tid = line.thread & _LARGEST_ID
                track.thread.thread_name = line.name
            elif line.rank < 0 and line.process.process in above:
                first, track.parent_uuid = above[line.process.process]
                track.name = _above(line.name.removesuffix(f" ({first.thread})"), line.rank)
            else:
                track.name = _in_numeric_order(line.name)
            self._uuids.append(track.uuid)
            self._write_track(track)
        for counter in timeline.counters():
            track = self._track(next(uuids))
            track.parent_uuid = processes[counter.process.process]
            track.name = counter.name
            track.counter.unit = self._protos.CounterDescriptor.UNIT_SIZE_BYTES
            self._write_track(track)
            self._counter(track.uuid, counter)

    def _process_tracks(self, trace: Trace, timeline: Timeline, uuids: Iterator[int]) -> dict[int, int]:
        """The number of the track of each process."""
        processes: dict[int, int] = {}
        facts = about(trace)
        for process in timeline.tracks.processes.values():
            track = self._track(next(uuids))
            track.process.pid = process.pid & _LARGEST_ID
            track.process.process_name = process.name
            track.process.process_labels.extend(facts[name] for name in _LABELS if facts[name])
            processes[process.process] = track.uuid
            self._write_track(track)
        return processes

    def _counter(self, uuid: int, counter: Counter) -> None:
        packet = self._new_packet()
        packet.track_event.type = self._protos.TrackEvent.TYPE_COUNTER
        packet.track_event.track_uuid = uuid
        for time, value in zip(counter.times, counter.values, strict=True):
            packet.timestamp, packet.track_event.counter_value = time, value
            self._builder.write_packet(packet)

    def block(self, block: Block) -> None:
        templates = [self._template(shape) for shape in block.shapes]
        for packet in self._interned.packets():
            self._builder.write_packet(packet)
        write, opened, uuids = self._builder.write_packet, self._open, self._uuids
        slices = zip(
            block.shape,
            block.own,
            block.number,
            block.parent,
            block.track,
            block.start,
            block.end,
            strict=True,
        )
        for place, (shape, own, number, parent, track, start, end) in enumerate(slices):
            while opened and opened[-1][0] != parent:
                self._close_innermost()
            packet, values = templates[shape]
            packet.timestamp = start
            event = packet.track_event
            event.track_uuid = uuids[track]
            for annotation, value in zip(values, own, strict=True):
                if annotation is None:
                    continue
                if isinstance(value, int):
                    _set_number(annotation, value)
                else:
                    annotation.string_value = value
            if place in block.leaving or place in block.arriving:
                event.flow_ids.extend(block.leaving.get(place, ()))
                if place in block.arriving:
                    event.terminating_flow_ids.append(block.arriving[place])
                write(packet)
                event.ClearField("flow_ids")
                event.ClearField("terminating_flow_ids")
            else:
                write(packet)
            opened.append((number, track, end))

    def close(self) -> None:
        while self._open:
            self._close_innermost()

    def _close_innermost(self) -> None:
        _, track, end = self._open.pop()
        self._end.timestamp = end
        self._end.track_event.track_uuid = self._uuids[track]
        self._builder.write_packet(self._end)

    def _template(self, shape: Shape) -> tuple[TracePacket, list[Any]]:
        """A packet that begins a slice of this shape, and its annotations for the slice's own values."""
        if shape in self._templates:
            return self._templates[shape]
        if len(self._templates) >= _MOST_TEMPLATES:
            self._templates.clear()
        packet = self._new_packet()
        packet.sequence_flags = self._protos.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        event = packet.track_event
        event.type = self._protos.TrackEvent.TYPE_SLICE_BEGIN
        event.name_iid = self._interned.number("event_names", "name", shape.name)
        event.category_iids.append(self._interned.number("event_categories", "name", shape.category))
        own: list[Any] = []
        for label in shape.own:
            own.append(None if label is None else event.debug_annotations.add())
            if label is not None:
                own[-1].name_iid = self._interned.number("debug_annotation_names", "name", label)
        for label, value in shape.arguments:
            annotation = event.debug_annotations.add()
            annotation.name_iid = self._interned.number("debug_annotation_names", "name", label)
            if isinstance(value, bool):
                annotation.bool_value = value
            elif isinstance(value, int):
                _set_number(annotation, value)
            else:
                text = self._interned.number("debug_annotation_string_values", "str", value)
                annotation.string_value_iid = text
        self._templates[shape] = packet, own
        return packet, own

    def _track(self, uuid: int) -> TrackDescriptor:
        track = self._protos.TrackDescriptor()
        track.uuid = uuid
        return track

    def _write_track(self, track: TrackDescriptor) -> None:
        packet = self._new_packet()
        packet.track_descriptor.CopyFrom(track)
        self._builder.write_packet(packet)

    def _new_packet(self) -> TracePacket:
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet


def _first_threads(tracks: Sequence[Track], uuids: Sequence[int]) -> dict[int, tuple[Track, int]]:
    """Of each process the thread that the page has first, the main one if it is there, and its number.

    The page has threads before all other tracks of a process, but tracks of a thread before its calls.
    """
    threads = [pair for pair in zip(tracks, uuids, strict=True) if pair[0].is_thread]
    threads.sort(key=lambda pair: (pair[0].thread == pair[0].process.pid, -pair[0].thread))
    return {track.process.process: (track, uuid) for track, uuid in threads}


def _above(name: str, rank: int) -> str:
    """The page sorts them by name, shows no spaces before it, and adds the number of their thread."""
    return " " * -rank + name


def _in_numeric_order(name: str) -> str:
    """`GPU 0 stream  13`: the page sorts tracks by name, and shows several spaces as one."""
    return re.sub(r"(?<= stream )(\d+)", lambda number: f"{number[1]:>{_WIDEST_STREAM}}", name)


def _set_number(annotation: Any, value: int) -> None:
    if value < 1 << 63:
        annotation.int_value = value
    else:
        annotation.uint_value = value


class _Interned:
    """Numbers of texts, from 1, in each of the lists of perfetto's InternedData."""

    def __init__(self, new_packet: Any) -> None:
        self._new_packet = new_packet
        self._numbers: dict[str, dict[str, int]] = {}
        self._new: list[tuple[str, str, str, int]] = []

    def number(self, entries: str, field: str, text: str) -> int:
        """The number of a text, which packets() then defines."""
        numbers = self._numbers.setdefault(entries, {})
        number = numbers.get(text)
        if number is None:
            number = numbers[text] = len(numbers) + 1
            self._new.append((entries, field, text, number))
        return number

    def packets(self) -> Iterator[TracePacket]:
        """Defines what was numbered since the last call: in one packet, or in none."""
        if not self._new:
            return
        packet = self._new_packet()
        for entries, field, text, number in self._new:
            entry = getattr(packet.interned_data, entries).add()
            entry.iid = number
            setattr(entry, field, text.encode() if field == "str" else text)
        self._new.clear()
        yield packet
