"""API and library calls of all threads, put together from the events in the stream of hops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.arrays import Codes, concatenate, lookup, low, take
from tracer.trace.bytes.definitions import Definitions
from tracer.trace.bytes.events import EventBlock, argument_words
from tracer.trace.bytes.nesting import innermost_at, nest
from tracer.trace.bytes.threads import Span

Index = NDArray[np.int64]


@dataclass
class CallColumns:
    """One row for each call, ordered by process, thread and start. -1: none."""

    process: NDArray[np.uint32]
    thread: NDArray[np.uint32]
    function: Codes
    """Index into the functions; -1: undefined"""
    number: NDArray[np.uint32]
    """What the events have for the function: bits 0..15 function, bits 16..17 FunctionDomain"""
    hop: Index
    """Row of the innermost hop that was open"""
    parent: Index
    """Row of the innermost call that was open"""
    start: Index
    end: Index
    correlation: NDArray[np.uint32]
    """0 of a library call"""
    stack: Codes
    kernel: Codes
    called_from: Codes
    """The call's own line, where no hop was open"""
    returned: NDArray[np.bool_]
    """Whether its exit was recorded"""
    result: NDArray[np.int64]
    captured: NDArray[np.bool_]
    open: NDArray[np.bool_]
    """Whether nothing shows that it ended"""
    enter_words: Words
    exit_words: Words

    def __len__(self) -> int:
        return len(self.process)

    @property
    def is_library(self) -> NDArray[np.bool_]:
        return self.number >> np.uint32(16) == fmt.LIBRARY

    @property
    def is_driver(self) -> NDArray[np.bool_]:
        return self.number >> np.uint32(16) == fmt.DRIVER

    def enclosing(self, wanted: NDArray[np.bool_]) -> Index:
        """For each call the row of the innermost call around it that is among `wanted`; -1: none."""
        around = self.parent.copy()
        passed = np.flatnonzero((around >= 0) & ~take(wanted, around, False))
        while len(passed):
            around[passed] = self.parent[around[passed]]
            passed = passed[(around[passed] >= 0) & ~wanted[around[passed]]]
        return around

    def outermost(self, wanted: NDArray[np.bool_]) -> Index:
        """For each call the row of the outermost one among `wanted` that encloses it, else its own."""
        around = self.enclosing(wanted)
        found = np.where(around >= 0, around, np.arange(len(self)))
        inner = np.flatnonzero(around >= 0)
        while len(inner):
            inner = inner[around[found[inner]] >= 0]
            found[inner] = around[found[inner]]
        return found


@dataclass
class Words:
    """Argument words of calls: those of row i are `words[start[i] : start[i] + count[i]]`."""

    start: Index
    count: Index
    words: NDArray[np.uint64]

    def rows(self, rows: Index) -> NDArray[np.uint64]:
        """(rows, most words) of some calls; 0 where a call has fewer."""
        count = self.count[rows]
        width = int(count.max(initial=0))
        nth = np.arange(width)
        at = np.minimum(self.start[rows][:, None] + nth, max(len(self.words) - 1, 0))
        if not width:
            return np.zeros((len(rows), 0), np.uint64)
        found: NDArray[np.uint64] = np.where(nth < count[:, None], self.words[at], np.uint64(0))
        return found


@dataclass
class CallIds:
    """From the ids that the call events of a lane use to codes."""

    functions: dict[int, int]
    stacks: dict[int, int]
    sources: dict[int, int]
    names: dict[int, int]


@dataclass
class Functions:
    """What the codes in CallColumns.function index."""

    numbers: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """(process that defined it, domain, function) -> code"""
    _codes: dict[tuple[int, ...], dict[int, int]] = field(default_factory=dict)
    """the processes that a process has its functions from -> what `of_process` returns"""

    def of_process(self, definitions: Definitions, process: int) -> dict[int, int]:
        """Function and domain as in CallColumns.number -> code; forked processes share their parent's."""
        owners = tuple(owner for owner in definitions.lineage(process) if definitions.functions.get(owner))
        if owners not in self._codes:
            self._codes[owners] = self._codes_of(definitions, owners)
        return self._codes[owners]

    def _codes_of(self, definitions: Definitions, owners: tuple[int, ...]) -> dict[int, int]:
        codes: dict[int, int] = {}
        for owner in reversed(owners):
            for domain, function in definitions.functions[owner]:
                code = self.numbers.setdefault((owner, domain, function), len(self.numbers))
                codes[function | domain << 16] = code
        return codes


@dataclass
class SpanCalls:
    """The calls of one stretch of a lane."""

    columns: dict[str, np.ndarray]
    arguments: NDArray[np.uint64]
    unmatched_exits: int


def span_calls(block: EventBlock, span: Span, ids: CallIds, last: int) -> SpanCalls | None:
    """The calls of a span, None if it has none; `last` is the last tick of its thread.

    Rows of hops and calls count from the span's first.
    """
    first, end = np.searchsorted(block.call, [span.others.start, span.others.stop]).tolist()
    if first == end:
        return None
    at = block.call[first:end]
    kind, call, second = block.kind[at], block.first[at], block.second[at]
    ticks = block.other_ticks[at]
    third, words_before = block.third[first:end], block.words_before[first:end]
    enter = (kind == fmt.API_ENTER) | (kind == fmt.LIBRARY_ENTER)
    of_library = (kind == fmt.LIBRARY_ENTER) | (kind == fmt.LIBRARY_EXIT)
    domain = np.where(of_library, fmt.LIBRARY, call >> np.uint64(fmt.CALL_DRIVER_SHIFT) & np.uint64(1))
    number = (call & np.uint64(fmt.CALL_FUNCTION_MASK)).astype(np.uint32)
    number |= domain.astype(np.uint32) << np.uint32(16)
    nesting = nest((call >> np.uint64(fmt.CALL_CALLS_SHIFT)).astype(np.uint16), enter, number)
    hop = innermost_at(
        block.depth[span.events],
        block.enter[span.events],
        block.before[at][enter] - span.events.start,
        (call[enter] >> np.uint64(fmt.CALL_DEPTH_SHIFT)).astype(np.int64) & fmt.MAX_DEPTH,
    )
    ended, returned = nesting.end >= 0, nesting.exit >= 0
    left = nesting.exit[returned]
    counts = argument_words(call)

    def at_exit(values: np.ndarray, missing: int) -> np.ndarray:
        column = np.full(len(returned), missing, values.dtype)
        column[returned] = values[left]
        return column

    start = ticks[enter]
    kernel, source = low(third[enter]), (third[enter] >> np.uint64(32)).astype(np.uint32)
    columns: dict[str, np.ndarray] = {
        "function": lookup(ids.functions, number[enter]),
        "number": number[enter],
        "hop": hop,
        "parent": nesting.parent,
        "start": start,
        "end": np.maximum(np.where(ended, ticks[nesting.end], last), start),
        "correlation": low(second[enter]),
        "stack": lookup(ids.stacks, (second[enter] >> np.uint64(32)).astype(np.uint32)),
        "kernel": lookup(ids.names, kernel),
        "called_from": lookup(ids.sources, source),
        "returned": returned,
        "result": at_exit(low(second).view(np.int32).astype(np.int64), 0),
        "captured": at_exit((second >> np.uint64(fmt.CALL_CAPTURED_SHIFT)).astype(np.bool_), 0),
        "open": ~ended,
        "enter_start": words_before[enter],
        "enter_count": counts[enter],
        "exit_start": at_exit(words_before, 0),
        "exit_count": at_exit(counts, 0),
    }
    stop = int(words_before[-1] + counts[-1])
    base = int(words_before[0])
    columns["enter_start"] -= base
    columns["exit_start"][returned] -= base
    return SpanCalls(columns, block.arguments[base:stop], nesting.unmatched_exits)


def join_calls(parts: list[tuple[Span, SpanCalls]], first_hops: Mapping[int, int]) -> CallColumns:
    """Puts the calls of spans, in the order of the table, one after the other.

    `first_hops`: the row of the first hop of each span, by its place in `parts`.
    """
    rows = words = 0
    for number, (_, calls) in enumerate(parts):
        columns = calls.columns
        columns["hop"][columns["hop"] >= 0] += first_hops[number]
        columns["parent"][columns["parent"] >= 0] += rows
        columns["enter_start"] += words
        columns["exit_start"] += words
        rows += len(columns["start"])
        words += len(calls.arguments)
    sizes = np.array([len(calls.columns["start"]) for _, calls in parts], np.int64)
    joined = {
        name: concatenate([calls.columns[name] for _, calls in parts], dtype)
        for name, dtype in _COLUMN_TYPES.items()
    }
    arguments = concatenate([calls.arguments for _, calls in parts], np.uint64)
    return CallColumns(
        process=np.repeat(np.array([span.process for span, _ in parts], np.uint32), sizes),
        thread=np.repeat(np.array([span.thread for span, _ in parts], np.uint32), sizes),
        enter_words=Words(joined.pop("enter_start"), joined.pop("enter_count"), arguments),
        exit_words=Words(joined.pop("exit_start"), joined.pop("exit_count"), arguments),
        **joined,
    )


_COLUMN_TYPES = {
    "function": np.int32,
    "number": np.uint32,
    "hop": np.int64,
    "parent": np.int64,
    "start": np.int64,
    "end": np.int64,
    "correlation": np.uint32,
    "stack": np.int32,
    "kernel": np.int32,
    "called_from": np.int32,
    "returned": np.bool_,
    "result": np.int64,
    "captured": np.bool_,
    "open": np.bool_,
    "enter_start": np.int64,
    "enter_count": np.int64,
    "exit_start": np.int64,
    "exit_count": np.int64,
}
