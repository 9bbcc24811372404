"""Reads one step of a recording: the chunks of hops that hold it, and from the other chunks only the marks.

Marks are threads, autograd nodes, ranges and ends of steps: what the hops of a step need to know of
the time before it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.arrays import low
from tracer.trace.bytes.contents import Contents
from tracer.trace.bytes.events import EventBlock, join_blocks, outermost_enters, parse_events, parse_marks
from tracer.trace.bytes.reader import ChunkFile, Place, read_chunks
from tracer.trace.bytes.trace_errors import MissingStepError
from tracer.trace.tables.gather import gather_hops
from tracer.trace.tables.steps import StepEnds

Lane = tuple[int, int]
"""(process, lane)"""
Chunk = tuple[fmt.ChunkHeader, EventBlock]


@dataclass(frozen=True)
class _Node:
    """An autograd node that was evaluated in the step."""

    torch_thread: int
    """The thread, as torch numbers it, whose forward op made the node"""
    sequence: int


def read_step(path: str | os.PathLike[str], step: int) -> Contents:
    """Reads what holds the hops of this step, of every process that has it.

    Also reads the op calls around them and the forward hops of the backward hops among them.

    Raises TraceError as read_recording does, and where no process has the step.
    """
    places: dict[tuple[Lane, int], Place] = {}

    def parse(words: np.ndarray, _: dict[int, int], header: fmt.ChunkHeader, place: Place) -> EventBlock:
        places.setdefault(((header.process, header.lane), header.sequence), place)
        return parse_marks(words)

    with ChunkFile(os.fspath(path)) as file:
        recording = read_chunks(file, parse)
        ends = gather_hops(replace(recording, lanes=_copied(recording.lanes))).steps
        _check(ends, step, recording.path)
        for process, times in ends.items():
            if span := times.span(step):
                _Window(file, recording, places, process, *span).read()
    return recording


def _copied(lanes: dict[Lane, dict[int, Chunk]]) -> dict[Lane, dict[int, Chunk]]:
    """The same columns in blocks of their own, which are emptied when they are put together."""
    return {
        lane: {sequence: (header, replace(block)) for sequence, (header, block) in chunks.items()}
        for lane, chunks in lanes.items()
    }


def _check(ends: dict[int, StepEnds], step: int, path: str) -> None:
    numbers = np.concatenate([known.numbers for known in ends.values()]) if ends else np.empty(0, np.int64)
    if not len(numbers):
        raise MissingStepError(
            f"no step ended in {path}: let the script call tracer.step() after each iteration"
        )
    if not any(known.span(step) for known in ends.values()):
        first = min(known.first for known in ends.values())
        raise MissingStepError(f"{path} has no step {step}; choose {first} to {numbers.max() - 1}")


class _Window:
    """Some ticks of a process. Reading them replaces marks by all events, chunk by chunk."""

    def __init__(
        self,
        file: ChunkFile,
        recording: Contents,
        places: dict[tuple[Lane, int], Place],
        process: int,
        begin: int,
        end: int,
    ) -> None:
        self._file, self._recording, self._places = file, recording, places
        self._begin, self._end = begin, end
        lanes = recording.lanes
        self._marks = {lane: dict(lanes[lane]) for lane in lanes if lane[0] == process}

    def read(self) -> None:
        nodes = {node for lane in self._marks for node in self._nodes(lane)}
        for lane in self._marks:
            self._read_lane(lane, self._begin)
        for node in nodes:
            for lane in self._marks:
                if self._was_used_by(lane, node.torch_thread):
                    self._read_forward(lane, node.sequence)

    def _read_lane(self, lane: Lane, begin: int) -> None:
        """The op calls of a lane that ran or began from `begin` to the end of the window."""
        marks = self._marks[lane]
        sequences = sorted(marks)
        headers = [marks[sequence][0] for sequence in sequences]
        opened = np.array([header.ticks for header in headers])
        # A chunk has what was written from when it was opened until the next one was.
        first = max(int(np.searchsorted(opened, begin, "right")) - 1, 0)
        words = self._words(lane, sequences[first])
        cut = _last_before(words, begin)
        while cut < 0 and first > 0 and headers[first].depth:
            first -= 1
            words = self._words(lane, sequences[first])
            cut = _last_before(words, begin)
        place, done = first, False
        while place < len(sequences) and not done:
            if place > first:
                words = self._words(lane, sequences[place])
                if headers[place].ticks >= self._end and not headers[place].depth:
                    break
            start, stop = max(cut, 0) if place == first else 0, _first_from(words, self._end)
            done = stop < len(words)
            self._put(lane, sequences[place], words, start, stop)
            place += 1

    def _words(self, lane: Lane, sequence: int) -> np.ndarray:
        header, _ = self._marks[lane][sequence]
        payload = self._file.payload(header, self._places[lane, sequence])
        return np.frombuffer(payload, "<u8", len(payload) // 8)

    def _put(self, lane: Lane, sequence: int, words: np.ndarray, start: int, stop: int) -> None:
        """All events of these words of a chunk, and the marks of its other words."""
        recording = self._recording
        block = parse_events(words[start:stop], recording.key_sets)
        parts = [parse_marks(words[:start]), block, parse_marks(words[stop:])]
        joined = join_blocks(parts)
        joined.torn, joined.damaged = block.torn, block.damaged
        recording.lanes[lane][sequence] = self._marks[lane][sequence][0], joined

    def _nodes(self, lane: Lane) -> set[_Node]:
        """The oldest node of each thread among those that a lane evaluated in the window."""
        oldest: dict[int, int] = {}
        for _, block in self._marks[lane].values():
            at = (block.kind == fmt.NODE) & (block.other_ticks >= self._begin)
            at &= block.other_ticks < self._end
            at &= (low(block.second) != 0) & (block.first != fmt.ACCUMULATE_GRAD)
            makers = (block.second[at] >> np.uint64(32)).astype(np.int64)
            for maker in np.unique(makers).tolist():
                sequence = int(block.first[at][makers == maker].min())
                oldest[maker] = min(oldest.get(maker, sequence), sequence)
        return {_Node(maker, sequence) for maker, sequence in oldest.items()}

    def _was_used_by(self, lane: Lane, torch_thread: int) -> bool:
        return any(
            bool((block.first[block.kind == fmt.THREAD] >> np.uint64(32) == torch_thread).any())
            for _, block in self._marks[lane].values()
        )

    def _read_forward(self, lane: Lane, wanted: int) -> None:
        """Reads back from the window until a hop at an autograd key has at most this number."""
        opened = np.sort([header.ticks for header, _ in self._marks[lane].values()])
        first = int(np.searchsorted(opened, self._begin, "right")) - 1
        back = 1
        while first >= 0 and self._least(lane) > wanted:
            self._read_lane(lane, int(opened[first]))
            first = max(first - back, 0) if first else -1
            back *= 2

    def _least(self, lane: Lane) -> int:
        """The smallest autograd sequence number of the hops that were read; NO_SEQUENCE: there is none."""
        blocks = (block for _, block in self._recording.lanes[lane].values())
        return min(int(block.sequence.min(initial=fmt.NO_SEQUENCE)) for block in blocks)


def _last_before(words: np.ndarray, ticks: int) -> int:
    """The place of the last outermost op call that began before these ticks; -1: there is none."""
    heads, began = outermost_enters(words)
    found = int(np.searchsorted(began, ticks, "left")) - 1
    return int(heads[found]) if found >= 0 else -1


def _first_from(words: np.ndarray, ticks: int) -> int:
    """The place of the first outermost op call that began at or after these ticks; else the end."""
    heads, began = outermost_enters(words)
    found = int(np.searchsorted(began, ticks, "left"))
    return int(heads[found]) if found < len(heads) else len(words)
