"""A recording that grows as the recorder writes it: chunks of full size, zeros where nothing is yet."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

from synthetic import PROCESS_LANE, Lane, TraceWriter, chunk

STATE_OFFSET, ATTACHED_OFFSET, NEXT_OFFSET = 16, 84, 32
CHUNK = 1 << 16


@dataclass
class _LaneFile:
    """The chunks of one stream of a lane."""

    sequence: int = 0
    at: int = 0
    """Offset of the chunk that is written; 0: none"""
    used: int = 0


@dataclass
class Growing:
    """Writes the events of a TraceWriter bit by bit, as many of each lane as is asked for.

    `room`: bytes for events in a chunk of hops.
    """

    writer: TraceWriter
    path: Path
    room: int = 512
    _written: dict[int, int] = field(default_factory=dict)
    _lanes: dict[int, _LaneFile] = field(default_factory=dict)
    _end: int = 4096

    def __post_init__(self) -> None:
        self.writer.header = {"state": 0, "attached": len(self.writer.pids)}
        data = self.writer.data()[:4096]
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.pwrite(self.file, data, 0)

    def define(self) -> None:
        """Writes all definitions, the next chunk of each lane being claimed before it is used."""
        for process, records in self.writer.process_definitions.items():
            self._put(2, process, PROCESS_LANE, 0, 0, b"".join(records))
        for lane in self.writer.lanes:
            if lane.definitions:
                self._put(2, lane.process, lane.number, 0, lane.thread, b"".join(lane.definitions))

    def write(self, number: int, count: int, *, torn: bool = False) -> None:
        """`count` more events of the lane at this place in writer.lanes; torn: half of one more."""
        lane = self.writer.lanes[number]
        first = self._written.get(number, 0)
        for thread, words in lane.events[first : first + count]:
            self._event(number, lane, thread, words)
        self._written[number] = first + count
        if torn and first + count < len(lane.events):
            thread, words = lane.events[first + count]
            self._event(number, lane, thread, [0, *words[1:]], keep=False)

    def left(self, number: int) -> int:
        return max(len(self.writer.lanes[number].events) - self._written.get(number, 0), 0)

    def stop(self) -> None:
        """As an orderly stop does."""
        for lane in self._lanes.values():
            os.pwrite(self.file, struct.pack("<I", lane.used), lane.at + 8)
        os.pwrite(self.file, struct.pack("<I", 1), STATE_OFFSET)
        os.pwrite(self.file, struct.pack("<I", 0), ATTACHED_OFFSET)
        self.die()

    def die(self) -> None:
        if self.file >= 0:
            os.close(self.file)
        self.file = -1

    def _event(self, number: int, lane: Lane, thread: int, words: list[int], *, keep: bool = True) -> None:
        own = self._lanes.setdefault(number, _LaneFile())
        data = struct.pack(f"<{len(words)}Q", *words)
        if not own.at or own.used + len(data) > 64 + self.room:
            if own.at:
                os.pwrite(self.file, struct.pack("<I", own.used), own.at + 8)
            self._end += CHUNK  # claimed by another lane, and not in use yet
            own.at = self._put(1, lane.process, lane.number, own.sequence, thread, b"", closed=False)
            own.sequence += 1
            own.used = 64
        os.pwrite(self.file, data, own.at + own.used)
        own.used += len(data) if keep else 0

    def _put(
        self,
        stream: int,
        process: int,
        lane: int,
        sequence: int,
        thread: int,
        payload: bytes,
        closed: bool = True,
    ) -> int:
        size = -(-(64 + len(payload)) // CHUNK) * CHUNK
        at = self._end
        data = chunk(
            stream,
            process,
            self.writer.pids[process],
            lane,
            sequence,
            thread,
            payload,
            closed=closed,
            capacity=size,
        )
        os.pwrite(self.file, data, at)
        self._end += size
        return at
