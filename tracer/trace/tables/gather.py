"""Puts the events of all threads together into the columns of the table of hops."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.base import progress
from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.arrays import Codes, Numbering, concatenate, lookup, low, take
from tracer.trace.bytes.contents import Contents
from tracer.trace.bytes.definitions import (
    Definitions,
    ModulePath,
    ProgramCounters,
    PythonStack,
    Signature,
    ThreadKeys,
)
from tracer.trace.bytes.endings import DUMPED
from tracer.trace.bytes.events import EventBlock
from tracer.trace.bytes.nesting import nest, sources_inside
from tracer.trace.bytes.threads import Piece, Span, pieces, split_lane, thread_order
from tracer.trace.tables.backward import (
    Nodes,
    forward_hops,
    forward_sources,
    node_rows,
    take_modules_of_forward,
)
from tracer.trace.tables.calls import CallColumns, CallIds, Functions, SpanCalls, join_calls, span_calls
from tracer.trace.tables.memory import MemoryColumns, join_memory, span_memory
from tracer.trace.tables.open_ranges import CROSSED, OpenRanges, ends_of_ranges, open_ranges
from tracer.trace.tables.ranges import OWN, join_ranges, span_ranges
from tracer.trace.tables.series import join_columns
from tracer.trace.tables.steps import StepEnds, said_steps
from tracer.trace.tables.tensors import TENSOR_TYPES, span_tensors
from tracer.trace.tables.tensors import Columns as TensorColumns
from tracer.trace.tables.unmarked_steps import unmarked_steps
from tracer.trace.tables.values import VALUE_TYPES, span_values
from tracer.trace.tables.values import Columns as ValueColumns

_OTHER = "(other)"
"""Replaces the strings that a ring had no space for"""


@dataclass
class Vocabulary:
    """What the codes in HopColumns and CallColumns index."""

    definitions: Numbering[tuple[int, int]] = field(default_factory=Numbering)
    """(process, hop id)"""
    sources: Numbering[str] = field(default_factory=Numbering)
    signatures: Numbering[Signature] = field(default_factory=Numbering)
    names: Numbering[str] = field(default_factory=Numbering)
    functions: Functions = field(default_factory=Functions)
    stacks: Numbering[tuple[int, ProgramCounters]] = field(default_factory=Numbering)
    """(process, program counters)"""
    modules: Numbering[ModulePath] = field(default_factory=Numbering)
    python_stacks: Numbering[PythonStack] = field(default_factory=Numbering)
    thread_keys: Numbering[tuple[int, ThreadKeys]] = field(default_factory=Numbering)
    """(process, keys)"""


@dataclass
class HopColumns:
    """One row for each hop, by process, thread (the main one first) and start. Rows are hop ids; -1: none."""

    process: NDArray[np.uint32]
    thread: NDArray[np.uint32]
    parent: NDArray[np.int64]
    definition: Codes
    key_set: NDArray[np.uint32]
    call_site: NDArray[np.uint8]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    signature: Codes
    called_from: Codes
    source: Codes
    module: Codes
    python_stack: Codes
    range: Codes
    sequence: NDArray[np.int64]
    node: Codes
    forward: NDArray[np.int64]
    raised: NDArray[np.bool_]
    open: NDArray[np.bool_]
    thread_keys: Codes | None
    """None: they were not recorded"""

    def taken(self, name: str) -> NDArray[Any]:
        """A column, which is empty here from now on."""
        column: NDArray[Any] = getattr(self, name)
        setattr(self, name, column[:0].copy())
        return column


@dataclass
class Gathered:
    hops: HopColumns
    calls: CallColumns
    memory: MemoryColumns
    values: ValueColumns
    tensors: TensorColumns
    ranges: dict[str, np.ndarray]
    """Those of tables.ranges"""
    steps: dict[int, StepEnds]
    """process -> when its steps ended, in ticks"""
    vocabulary: Vocabulary
    threads: set[tuple[int, int]]
    """(process, OS thread id)"""
    in_crossing_ranges: int
    """Hops in two ranges that cross, so that neither is known to be theirs"""
    lost_exits: int
    unmatched_exits: int
    lost_call_exits: int
    unmatched_call_exits: int


@dataclass
class _LaneIds:
    """From the ids that the events of a lane use to codes."""

    hops: dict[int, int]
    sources: dict[int, int]
    signatures: dict[int, int]
    modules: dict[int, int]
    python_stacks: dict[int, int]
    names: dict[int, int]
    thread_keys: dict[int, int]
    own_ranges: list[int]
    """Which `names` are of tracer's own ranges"""
    calls: CallIds


@dataclass
class _Part:
    """The hops, calls and blocks of memory of one stretch of a lane."""

    span: Span
    first: int
    """Its first tick; later pieces of a span follow the first one"""
    columns: dict[str, np.ndarray]
    calls: SpanCalls | None
    memory: dict[str, np.ndarray] | None
    values: ValueColumns | None
    tensors: TensorColumns | None


def gather_hops(recording: Contents) -> Gathered:
    """Empties `recording.lanes`: its memory is needed for the columns."""
    vocabulary = Vocabulary()
    nodes = Nodes()
    parts: list[_Part] = []
    counted: dict[int, list[StepEnds]] = {}
    threads: set[tuple[int, int]] = set()
    ranges: list[tuple[Span, dict[str, np.ndarray]]] = []
    unmatched = unmatched_calls = in_crossing = 0
    lanes = len(recording.lanes)
    ends = ends_of_ranges(recording)
    why = bool(recording.definitions.thread_keys)
    # What is open in a dump was so until then, though its thread wrote nothing more.
    header = recording.header
    dumped = header.last_ticks - header.start_ticks if recording.ended == DUMPED else None
    while recording.lanes:
        number = lanes - len(recording.lanes)
        (process, lane), chunks = recording.lanes.popitem()
        block, spans = split_lane(process, lane, chunks)
        del chunks
        ids = _lane_ids(recording.definitions, process, lane, vocabulary)
        for span in spans:
            threads.add((process, span.thread))
            first, last = _first_and_last(block, span)
            if dumped is not None and span is spans[-1]:
                last = max(last, dumped)
            opened = open_ranges(block, span, ends[process], ids.own_ranges)
            changes = _Changes.of(block, span, ids, nodes, opened)
            if opened is not None:
                marked = span_ranges(block, opened, ids.names, ids.sources, last)
                ranges.append((span, marked))
                in_crossing += _entered_in(block, span, opened, CROSSED)
            calls, blocks = span_calls(block, span, ids.calls, last), span_memory(block, span, ids.sources)
            returned, tensors = span_values(block, span), span_tensors(block, span, ids.signatures)
            unmatched_calls += calls.unmatched_exits if calls else 0
            for piece in pieces(block, span):
                with progress.portion(number / lanes, (number + 1) / lanes):
                    progress.done(piece.span.events.start, len(block.ticks))
                columns, exits = _piece_columns(
                    block, piece, ids, changes, last if piece.is_last else None, why
                )
                parts.append(_Part(piece.span, first, columns, calls, blocks, returned, tensors))
                # Theirs are of the whole span, behind its first hop.
                first, calls, blocks, returned, tensors = first + 1, None, None, None, None
                unmatched += exits
        if (block.kind == fmt.STEP).any():
            counted.setdefault(process, []).extend(said_steps(block, span) for span in spans)
        del block
    steps = {process: StepEnds.of_counted(said) for process, said in counted.items()}
    main_threads = {number: process.pid for number, process in recording.definitions.processes.items()}
    joined_ranges = join_ranges(ranges, main_threads)
    names = list(vocabulary.names.numbers)
    steps |= unmarked_steps(joined_ranges, names, recording.definitions, frozenset(steps))
    parts.sort(key=lambda part: (*thread_order(part.span, main_threads), part.first))
    spans = [part.span for part in parts]
    sizes = np.array([len(part.columns["start"]) for part in parts], np.int64)
    offsets = np.cumsum(sizes) - sizes
    joined_calls, memory = _join_calls(parts, offsets), _join_memory(parts, offsets)
    values, tensors = (
        join_columns([(offset, columns) for offset, _, columns in _having(parts, offsets, name)], types)
        for name, types in (("values", VALUE_TYPES), ("tensors", TENSOR_TYPES))
    )
    joined = _join([part.columns for part in parts], offsets)
    processes = np.repeat(np.array([span.process for span in spans], np.uint32), sizes)
    forward_of_node = forward_hops(nodes, spans, offsets, joined)
    node = joined.pop("node")
    joined.pop("made")
    forward = take(forward_of_node, node)
    take_modules_of_forward(joined["module"], forward)
    if vocabulary.python_stacks.numbers:
        joined["python_stack"] = forward_sources(joined["python_stack"], forward)
    lost = joined.pop("lost")
    hops = HopColumns(
        process=processes,
        thread=np.repeat(np.array([span.thread for span in spans], np.uint32), sizes),
        node=take(concatenate(nodes.name, np.int32), node),
        forward=forward,
        source=forward_sources(joined["called_from"], forward),
        thread_keys=joined.pop("thread_keys", None),
        **joined,
    )
    return Gathered(
        hops=hops,
        calls=joined_calls,
        memory=memory,
        values=values,
        tensors=tensors,
        ranges=joined_ranges,
        steps=steps,
        vocabulary=vocabulary,
        threads=threads,
        in_crossing_ranges=in_crossing,
        lost_exits=int(lost.sum()),
        unmatched_exits=unmatched,
        lost_call_exits=int((~joined_calls.returned & ~joined_calls.open).sum()),
        unmatched_call_exits=unmatched_calls,
    )


def _lane_ids(definitions: Definitions, process: int, lane: int, vocabulary: Vocabulary) -> _LaneIds:
    scope = process, lane
    sources = definitions.sources.get(scope, {})
    signatures = definitions.signatures.get(scope, {})
    names = definitions.strings.get(scope, {})
    stacks = definitions.stacks.get(scope, {})
    source_codes = {number: vocabulary.sources(source) for number, source in sources.items()}
    name_codes = {number: vocabulary.names(name) for number, name in names.items()}
    if definitions.left_out:
        source_codes[fmt.OTHER] = vocabulary.sources(_OTHER)
        name_codes[fmt.OTHER] = vocabulary.names(_OTHER)
    return _LaneIds(
        hops={hop: vocabulary.definitions((process, hop)) for hop in definitions.hops[process]},
        sources=source_codes,
        signatures={number: vocabulary.signatures(value) for number, value in signatures.items()},
        modules={
            number: vocabulary.modules(path) for number, path in definitions.modules.get(process, {}).items()
        },
        python_stacks={
            number: vocabulary.python_stacks(stack)
            for number, stack in definitions.python_stacks.get(scope, {}).items()
        },
        names=name_codes,
        thread_keys={
            number: vocabulary.thread_keys((process, value))
            for number, value in definitions.thread_keys.get(scope, {}).items()
        },
        own_ranges=[number for number, name in names.items() if name.startswith(OWN)],
        calls=CallIds(
            functions=vocabulary.functions.of_process(definitions, process),
            stacks={number: vocabulary.stacks((process, stack)) for number, stack in stacks.items()},
            sources=source_codes,
            names=name_codes,
        ),
    )


def _first_and_last(block: EventBlock, span: Span) -> tuple[int, int]:
    """The ticks of a span's first and last event.

    Ranges may begin before a window of the recording and end after it: these times count only if there are
    no others.
    """
    hops, others, kind = block.ticks[span.events], block.other_ticks[span.others], block.kind[span.others]

    def without(of_range: int) -> NDArray[np.int64]:
        found = np.concatenate([hops, others[kind != of_range]])
        return found if len(found) else others

    return int(without(fmt.RANGE_BEGIN).min()), int(without(fmt.RANGE_END).max())


@dataclass
class _Changing:
    """A value of a thread that changes between its enters and exits."""

    before: NDArray[np.int64]
    """Enters and exits of the lane before each change"""
    codes: Codes
    """The value from there on"""

    def at(self, position: NDArray[np.int64]) -> Codes:
        """The value at each of these enters and exits; -1: none yet."""
        return take(self.codes, np.searchsorted(self.before, position, "right") - 1)


@dataclass
class _Changes:
    """What other events of a span say of the hops that follow them."""

    ranges: _Changing
    """The name of the innermost range"""
    modules: _Changing
    """The module that was being called; it changes at outermost hops only"""
    nodes: _Changing
    """The row in `Nodes` of the node that is evaluated"""
    thread_keys: _Changing

    @classmethod
    def of(
        cls, block: EventBlock, span: Span, ids: _LaneIds, nodes: Nodes, opened: OpenRanges | None
    ) -> _Changes:
        """Adds the span's autograd nodes to `nodes`."""
        kind, before, first = block.kind[span.others], block.before[span.others], block.first[span.others]
        modules = np.flatnonzero(kind == fmt.MODULE)
        evaluated = np.flatnonzero(kind == fmt.NODE)
        keys = np.flatnonzero(kind == fmt.THREAD_KEYS)
        return cls(
            _range_names(block, ids, opened),
            _Changing(before[modules], lookup(ids.modules, low(first[modules]))),
            _Changing(before[evaluated], node_rows(block, span, evaluated, ids.names, nodes)),
            _Changing(before[keys], lookup(ids.thread_keys, low(first[keys]))),
        )


def _piece_columns(
    block: EventBlock, piece: Piece, ids: _LaneIds, changes: _Changes, last: int | None, why: bool
) -> tuple[dict[str, np.ndarray], int]:
    """The columns of the hops of a piece, and the exits without an enter.

    `last`: the last tick of the thread, for the hops that are open; None: its last event ended all of them.
    """
    span = piece.span
    ticks, enter = block.ticks[span.events], block.enter[span.events]
    hop = block.hop[span.events]
    nesting = nest(block.depth[span.events], enter, hop)
    start = ticks[enter]
    ended = nesting.end >= 0
    open_hops = ~ended if last is not None else np.zeros(len(start), np.bool_)
    end = np.where(ended, ticks[nesting.end], ticks[-1] if last is None else last)
    exits = np.cumsum(~enter) - 1
    closed = nesting.exit >= 0
    raised, made = np.zeros(len(start), np.bool_), np.zeros(len(start), np.uint32)
    leaves = exits[nesting.exit[closed]]
    raised[closed] = block.raised[span.exits][leaves]
    made[closed] = block.made[span.exits][leaves]

    source = block.source[span.enters]
    line = sources_inside(source, nesting.parent)
    sequence = block.sequence[span.enters].astype(np.int64)
    sequence[sequence == fmt.NO_SEQUENCE] = -1
    position = np.flatnonzero(enter) + span.events.start
    columns: dict[str, np.ndarray] = {
        "parent": nesting.parent,
        "definition": lookup(ids.hops, hop[enter]),
        "key_set": block.key_set[span.enters],
        "call_site": block.call_site[span.enters],
        "start": start,
        "end": np.maximum(end, start),
        "signature": lookup(ids.signatures, block.signature[span.enters]),
        "called_from": lookup(ids.sources, line),
        "module": changes.modules.at(position),
        "python_stack": lookup(ids.python_stacks, line),
        "range": changes.ranges.at(position),
        "sequence": sequence,
        "node": changes.nodes.at(position),
        "made": made,
        "raised": raised,
        "open": open_hops,
        **({"thread_keys": changes.thread_keys.at(position)} if why else {}),
        "lost": ~open_hops & ~closed,
    }
    return columns, nesting.unmatched_exits


def _range_names(block: EventBlock, ids: _LaneIds, opened: OpenRanges | None) -> _Changing:
    if opened is None:
        return _Changing(np.empty(0, np.int64), np.empty(0, np.int32))
    names = lookup(ids.names, low(block.first[opened.rows]))
    return _Changing(opened.before, take(names, opened.innermost))


def _entered_in(block: EventBlock, span: Span, opened: OpenRanges, innermost: int) -> int:
    """How many hops were entered while the innermost range was this."""
    if not (opened.innermost == innermost).any():
        return 0
    enters = np.append(0, np.cumsum(block.enter[span.events]))
    begins = enters[np.append(opened.before, span.events.stop) - span.events.start]
    return int(np.diff(begins)[opened.innermost == innermost].sum())


def _having(parts: list[_Part], offsets: NDArray[np.int64], name: str) -> list[tuple[int, _Part, Any]]:
    """Of the parts that have columns of this name: the row of their first hop, the part, and the columns."""
    found = (
        (offset, part, getattr(part, name)) for part, offset in zip(parts, offsets.tolist(), strict=True)
    )
    return [each for each in found if each[2] is not None]


def _join_calls(parts: list[_Part], offsets: NDArray[np.int64]) -> CallColumns:
    having = _having(parts, offsets, "calls")
    first_hops = {number: offset for number, (offset, _, _) in enumerate(having)}
    return join_calls([(part.span, calls) for _, part, calls in having], first_hops)


def _join_memory(parts: list[_Part], offsets: NDArray[np.int64]) -> MemoryColumns:
    return join_memory(
        [(part.span, offset, rows) for offset, part, rows in _having(parts, offsets, "memory")]
    )


def _join(parts: list[dict[str, np.ndarray]], offsets: NDArray[np.int64]) -> dict[str, np.ndarray]:
    """Concatenates columns and makes the rows of parents global; empties `parts`."""
    for columns, offset in zip(parts, offsets.tolist(), strict=True):
        if offset:
            columns["parent"][columns["parent"] >= 0] += offset
    return {
        name: concatenate([columns.pop(name) for columns in parts], dtype)
        for name, dtype in _COLUMN_TYPES.items()
        if not parts or name in parts[0]
    }


_COLUMN_TYPES = {
    "parent": np.int64,
    "definition": np.int32,
    "key_set": np.uint32,
    "call_site": np.uint8,
    "start": np.int64,
    "end": np.int64,
    "signature": np.int32,
    "called_from": np.int32,
    "module": np.int32,
    "python_stack": np.int32,
    "range": np.int32,
    "sequence": np.int64,
    "made": np.uint32,
    "node": np.int32,
    "raised": np.bool_,
    "open": np.bool_,
    "thread_keys": np.int32,
    "lost": np.bool_,
}
