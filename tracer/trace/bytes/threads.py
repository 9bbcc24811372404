"""Splits a lane's events by the thread that wrote them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.events import EventBlock, join_blocks

UNKNOWN_THREAD = -1
PIECE_EVENTS = 1 << 19
_LOOK_AHEAD = 1 << 12


@dataclass(frozen=True)
class Span:
    """A stretch of a lane that one thread wrote without a gap.

    `events`, `enters`, `exits` and `others` select its rows in the columns of an EventBlock.
    """

    process: int
    lane: int
    thread: int
    """OS thread id"""
    torch_thread: int
    """torch's number of the thread; UNKNOWN_THREAD if it was not read"""
    events: slice
    enters: slice
    exits: slice
    others: slice


def thread_order(span: Span, main_threads: Mapping[int, int]) -> tuple[int, bool, int]:
    """By process and thread, the main thread first: the system's numbers of threads begin again at a limit.

    `main_threads`: of each process, the OS thread id of its main thread.
    """
    return span.process, span.thread != main_threads.get(span.process), span.thread


@dataclass(frozen=True)
class Piece:
    """Consecutive enters and exits of a span: few enough to fit into the cache of a processor."""

    span: Span
    """Its `others` are those of the whole span"""
    is_last: bool


def pieces(block: EventBlock, span: Span) -> Iterator[Piece]:
    """Cuts a span where an outermost hop was left and the next one is entered."""
    begin, enters, exits = span.events.start, span.enters.start, span.exits.start
    while True:
        end = _next_cut(block, begin + PIECE_EVENTS, span.events.stop)
        inside = int(np.count_nonzero(block.enter[begin:end]))
        outside = end - begin - inside
        part = replace(
            span,
            events=slice(begin, end),
            enters=slice(enters, enters + inside),
            exits=slice(exits, exits + outside),
        )
        yield Piece(part, end == span.events.stop)
        if end == span.events.stop:
            return
        begin, enters, exits = end, enters + inside, exits + outside


def _next_cut(block: EventBlock, at: int, stop: int) -> int:
    """The first place from `at` on where a cut can be; `stop` if there is none before it."""
    while at < stop:
        window = slice(at - 1, min(at + _LOOK_AHEAD, stop))
        outermost, enter = block.depth[window] == 0, block.enter[window]
        found = np.flatnonzero(outermost[:-1] & ~enter[:-1] & outermost[1:] & enter[1:])
        if len(found):
            return at + int(found[0])
        at += _LOOK_AHEAD
    return stop


def split_lane(
    process: int, lane: int, chunks: dict[int, tuple[fmt.ChunkHeader, EventBlock]]
) -> tuple[EventBlock, list[Span]]:
    """Joins the chunks of a lane by sequence and finds the threads that used it."""
    sequences = sorted(chunks)
    starts = _chunk_starts(sequences, chunks)
    block = join_blocks([chunks[sequence][1] for sequence in sequences])  # empties those of the chunks
    for row in np.flatnonzero(block.kind == fmt.THREAD).tolist():
        word = int(block.first[row])
        place = int(block.before[row]), row
        starts.append((*place, word & fmt.LOW_32, word >> 32 & fmt.HIGH_31, False))
    starts.sort(key=lambda start: (start[0], start[1]))

    spans: list[Span] = []
    enters_before = np.append(0, np.cumsum(block.enter))
    thread, torch_thread, other_thread = starts[0][2], UNKNOWN_THREAD, False
    ends = [start[:2] for start in starts[1:]] + [(len(block.ticks), len(block.kind))]
    for (event, other, new_thread, new_torch_thread, gap), (event_end, other_end) in zip(
        starts, ends, strict=True
    ):
        known = UNKNOWN_THREAD not in (torch_thread, new_torch_thread)
        other_thread |= gap or new_thread != thread or (known and new_torch_thread != torch_thread)
        if new_torch_thread != UNKNOWN_THREAD or new_thread != thread:
            torch_thread = new_torch_thread
        thread = new_thread
        if (event, other) == (event_end, other_end):
            continue
        if spans and not other_thread:
            event, other = spans[-1].events.start, spans[-1].others.start
            spans.pop()
        other_thread = False
        first, last = int(enters_before[event]), int(enters_before[event_end])
        spans.append(
            Span(
                process,
                lane,
                thread,
                torch_thread,
                events=slice(event, event_end),
                enters=slice(first, last),
                exits=slice(event - first, event_end - last),
                others=slice(other, other_end),
            )
        )
    return block, spans


def _chunk_starts(
    sequences: list[int], chunks: dict[int, tuple[fmt.ChunkHeader, EventBlock]]
) -> list[tuple[int, int, int, int, bool]]:
    """(events before, other events before, thread, torch thread, whether chunks are missing)."""
    starts = []
    events = others = 0
    previous = -1
    for sequence in sequences:
        header, block = chunks[sequence]
        starts.append((events, others, header.thread, UNKNOWN_THREAD, sequence != previous + 1))
        events += len(block.ticks)
        others += len(block.kind)
        previous = sequence
    return starts
