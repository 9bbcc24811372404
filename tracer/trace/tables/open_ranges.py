"""Which ranges of torch.profiler.record_function are open where: of one thread, at each moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, groupby, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.arrays import concatenate, low, take
from tracer.trace.bytes.contents import Contents
from tracer.trace.bytes.events import EventBlock
from tracer.trace.bytes.nesting import innermost_open
from tracer.trace.bytes.threads import Span

Index = NDArray[np.int64]
NONE, CROSSED = -1, -2
"""In place of a range: there is none; two cross here, and either may be the one that was meant"""
_NEVER = np.iinfo(np.int64).max


class Ends(NamedTuple):
    """The numbered ends of ranges of a process, ordered by number."""

    number: NDArray[np.uint64]
    tick: Index

    @classmethod
    def of(cls, blocks: list[EventBlock]) -> Ends:
        rows = [block.kind == fmt.RANGE_END for block in blocks]
        number = concatenate([block.first[at] for block, at in zip(blocks, rows, strict=True)], np.uint64)
        tick = concatenate([block.other_ticks[at] for block, at in zip(blocks, rows, strict=True)], np.int64)
        return cls.sorted(number, tick)

    @classmethod
    def sorted(cls, number: NDArray[np.uint64], tick: Index) -> Ends:
        order = np.argsort(number, kind="stable")
        return cls(number[order], tick[order])

    def when(self, number: NDArray[np.uint64]) -> Index:
        """When each of these ended; -1: not known."""
        if not len(self.number):
            return np.full(len(number), -1, np.int64)
        at = np.minimum(np.searchsorted(self.number, number), len(self.number) - 1)
        return np.where((self.number[at] == number) & (number > 0), self.tick[at], -1)


@dataclass
class OpenRanges:
    """The ranges of a span, in the order in which they began.

    `parent` is a place among the ranges, `end` is -1 where it is not known. `before` and `innermost` say
    which of the program's ranges is innermost from a number of enters and exits of the lane on; or NONE,
    CROSSED.
    """

    rows: Index
    """Of their begins, among the other events of the block"""
    number: NDArray[np.uint64]
    end: Index
    parent: Index
    before: Index
    innermost: Index


def open_ranges(block: EventBlock, span: Span, ends: Ends, own: list[int]) -> OpenRanges | None:
    """None if the span has no range. `own`: the ids of the names of tracer's own."""
    events = _Events.of(block, span)
    if not len(events.begin):
        return None
    number = events.number[events.begin]
    end, left = ends.when(number), events.left_at(number)
    pairs = events.unnumbered_pairs()
    left, end = np.where(number > 0, left, pairs), np.where(number > 0, end, take(events.ticks, pairs))
    walk = _Walk(events, end, left, np.isin(events.name[events.begin], own))
    before, innermost, parent = walk.nested() if walk.nests() else walk.crossing(block, span)
    return OpenRanges(events.rows[events.begin], number, end, parent, before, innermost)


@dataclass
class _Events:
    """The begins, ends and contexts of a span, without begins that were said before."""

    rows: Index
    """Of the block"""
    kind: NDArray[np.uint8]
    before: Index
    ticks: Index
    name: NDArray[np.uint32]
    number: NDArray[np.uint64]
    context: NDArray[np.uint64]
    """In which the thread was"""
    around: NDArray[np.uint64]
    """The one in which that was entered"""
    begin: Index

    @classmethod
    def of(cls, block: EventBlock, span: Span) -> _Events:
        kind = block.kind[span.others]
        wanted = (kind == fmt.RANGE_BEGIN) | (kind == fmt.RANGE_END) | (kind == fmt.CONTEXT)
        rows = np.flatnonzero(wanted)
        begins = rows[kind[rows] == fmt.RANGE_BEGIN]
        numbers = block.second[span.others][begins]
        _, first = np.unique(numbers, return_index=True)
        again = np.ones(len(begins), np.bool_)
        again[first] = False
        rows = np.setdiff1d(rows, begins[again & (numbers > 0)], assume_unique=True)
        kind = kind[rows]
        first_word, second = block.first[span.others][rows], block.second[span.others][rows]
        is_context, is_begin = kind == fmt.CONTEXT, kind == fmt.RANGE_BEGIN
        last = np.maximum.accumulate(np.where(is_context, np.arange(len(rows)), -1)) if len(rows) else rows
        return cls(
            rows=rows + span.others.start,
            kind=kind,
            before=block.before[span.others][rows],
            ticks=block.other_ticks[span.others][rows],
            name=low(first_word),
            number=np.where(is_begin, second, first_word),
            context=take(first_word, last, 0),
            around=take(second, last, 0),
            begin=np.flatnonzero(is_begin),
        )

    def left_at(self, number: NDArray[np.uint64]) -> Index:
        """The event that ends each of these; -1: none of the span does."""
        rows = np.flatnonzero(self.kind == fmt.RANGE_END)
        return Ends.sorted(self.number[rows], rows).when(number)

    def unnumbered_pairs(self) -> Index:
        """For each begin the event that ends it if ends have no numbers: that of the innermost; -1: none."""
        of_range = np.flatnonzero((self.number == 0) & (self.kind != fmt.CONTEXT))
        pairs = np.full(len(self.kind), -1, np.int64)
        enter = self.kind[of_range] == fmt.RANGE_BEGIN
        around = np.append(-1, innermost_open(np.where(enter, 1, -1)))[: len(of_range)]
        leaves = np.flatnonzero(~enter & (around >= 0))
        pairs[of_range[around[leaves]]] = of_range[leaves]
        return pairs[self.begin]


@dataclass
class _Walk:
    events: _Events
    end: Index
    """Of each begin, in ticks; -1: not known"""
    left: Index
    """The event that ended it; -1: none of this thread"""
    own: NDArray[np.bool_]
    """Whether it is tracer's"""

    def nests(self) -> bool:
        """Whether the thread was in one context, and each of its ends was the innermost's."""
        events, elsewhere = self.events, (self.end >= 0) & (self.left < 0)
        if elsewhere.any() or (events.context != events.context[0]).any():
            return False
        change, begun = self._changes()
        inner = np.append(-1, innermost_open(change))[: len(change)]
        leaves = np.flatnonzero(change < 0)
        return bool((inner[leaves] == begun[leaves]).all())

    def nested(self) -> tuple[Index, Index, Index]:
        """`before`, `innermost` and `parent` of OpenRanges."""
        change, begun = self._changes()
        of_begin = np.full(len(change) + 1, -1, np.int64)
        of_begin[self.events.begin] = np.arange(len(self.events.begin))
        inner = innermost_open(change)
        parent = of_begin[np.append(-1, inner)[self.events.begin]]
        program = np.append(~self.own, False)[np.where(begun >= 0, of_begin[begun], -1)]
        innermost = innermost_open(np.where(program, change, 0))
        changed = np.flatnonzero(program)
        return self.events.before[changed], of_begin[innermost[changed]], parent

    def _changes(self) -> tuple[Index, Index]:
        """Of each event whether it begins a range (1) or ends one (-1), and the event that began that."""
        change, begun = (
            np.zeros(len(self.events.kind), np.int64),
            np.full(len(self.events.kind), -1, np.int64),
        )
        known = self.left >= 0
        change[self.events.begin], begun[self.events.begin] = 1, self.events.begin
        change[self.left[known]], begun[self.left[known]] = -1, self.events.begin[known]
        return change, begun

    def crossing(self, block: EventBlock, span: Span) -> tuple[Index, Index, Index]:
        """The same of ranges that cross, of several contexts, or with ends in other threads."""
        tasks = _Tasks(np.where(self.end >= 0, self.end, _NEVER).tolist(), self.own.tolist(), self._strayed())
        before, innermost = list[int](), list[int]()
        for position, context, around, begun, ended in self._moments(block, span):
            tasks.run(context, around)
            if begun >= 0:
                tasks.begin(begun)
            if ended >= 0:
                tasks.end(ended)
            before.append(position)
            innermost.append(tasks.innermost())
        in_order = np.maximum.accumulate(np.array(before, np.int64))
        return in_order, np.array(innermost, np.int64), np.array(tasks.parent, np.int64)

    def _strayed(self) -> list[bool]:
        """Which begins are of a task that did not end them: it may be gone, and another have its context."""
        events = self.events
        context = events.context[events.begin]
        ended = np.where(self.left >= 0, events.context[self.left], 0)
        strayed: list[bool] = ((context != 0) & (self.end >= 0) & (ended != context)).tolist()
        return strayed

    def _moments(self, block: EventBlock, span: Span) -> Iterator[tuple[int, ...]]:
        """Enters and exits before, context, the one around it, which range begins, which ends (-1: none)."""
        events = self.events
        elsewhere = np.flatnonzero((self.end >= 0) & (self.left < 0))
        ticks = self.end[elsewhere]
        place = np.searchsorted(np.maximum.accumulate(events.ticks), ticks, "right")
        last = np.maximum(place - 1, 0)
        begun, ended = (np.full(len(events.kind), -1, np.int64) for _ in range(2))
        begun[events.begin] = np.arange(len(events.begin))
        ended[self.left[self.left >= 0]] = np.flatnonzero(self.left >= 0)
        columns = (
            (events.before, np.searchsorted(block.ticks[span.events], ticks) + span.events.start),
            (events.context, events.context[last]),
            (events.around, events.around[last]),
            (begun, -1),
            (ended, elsewhere),
        )
        yield from zip(*(np.insert(own, place, other).tolist() for own, other in columns), strict=True)


_MOST_OPEN = 256
"""Open ranges, and contexts in each other, that are looked at for an event: the innermost ones"""


class _Tasks:
    """The open ranges of each context. A context is in those in which it was entered."""

    def __init__(self, end: list[int], own: list[bool], strayed: list[bool]) -> None:
        self._end, self._own, self._strayed = end, own, strayed
        self._open: dict[int, dict[int, None]] = {}
        """Rows as they began"""
        self._around: dict[int, int] = {}
        self._of: dict[int, int] = {}
        self._context = 0
        self.parent = [NONE] * len(end)

    def run(self, context: int, around: int) -> None:
        self._context = context
        self._around[context] = around

    def begin(self, begun: int) -> None:
        around = (row for row in self._outwards() if self._end[row] >= self._end[begun])
        self.parent[begun] = next(around, NONE)
        if not self._strayed[begun]:
            self._of[begun] = self._context
            self._open.setdefault(self._context, {})[begun] = None

    def end(self, begun: int) -> None:
        self._open.get(self._of.pop(begun, -1), {}).pop(begun, None)

    def innermost(self) -> int:
        """The program's; CROSSED if another one that is open in its context ends before it."""
        for _, rows in groupby(self._outwards(), key=self._of.get):
            of_program = [row for row in rows if not self._own[row]]
            if of_program:
                ends = self._end[of_program[0]]
                return CROSSED if any(self._end[row] < ends for row in of_program) else of_program[0]
        return NONE

    def _outwards(self) -> Iterator[int]:
        """The open ranges of the context and of those around it, innermost first."""
        rows = (reversed(self._open.get(context, {})) for context in self._contexts())
        return islice(chain.from_iterable(rows), _MOST_OPEN)

    def _contexts(self) -> Iterator[int]:
        seen, context = set[int](), self._context
        while context not in seen and len(seen) < _MOST_OPEN:
            seen.add(context)
            yield context
            context = self._around.get(context, 0)


def ends_of_ranges(recording: Contents) -> dict[int, Ends]:
    """Those of each process: a thread may end what another one began."""
    blocks: dict[int, list[EventBlock]] = {}
    for (process, _), chunks in recording.lanes.items():
        blocks.setdefault(process, []).extend(block for _, block in chunks.values())
    return {process: Ends.of(of_process) for process, of_process in blocks.items()}
