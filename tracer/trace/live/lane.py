"""The hops of one lane that is still written: those that ended, and what stays open until the next look."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.arrays import low, nearest
from tracer.trace.bytes.events import EventBlock
from tracer.trace.bytes.nesting import nest, sources_inside

Index = NDArray[np.int64]


@dataclass
class LiveRows:
    """Hops of a lane in the order they were entered, with ids as the events have them.

    `parent` is a row of these (-1: none); `end` of an open hop is the last tick that was read;
    `nested` are the ticks of the ended hops directly in it; `size` of an outermost hop counts the
    ended hops in it, and itself; `source` is its own, else that of the hop around it.
    """

    process: int
    lane: int
    hop: Index
    key_set: Index
    call_site: Index
    source: Index
    signature: Index
    node: Index
    module: Index
    thread: Index
    start: Index
    end: Index
    depth: Index
    parent: Index
    nested: Index
    size: Index
    raised: NDArray[np.bool_]
    open: NDArray[np.bool_]

    @classmethod
    def nothing(cls, process: int = 0, lane: int = 0) -> LiveRows:
        types = {"raised": np.bool_, "open": np.bool_}
        names = [known.name for known in fields(cls)[2:]]
        columns: dict[str, Any] = {name: np.empty(0, types.get(name, np.int64)) for name in names}
        return cls(process, lane, **columns)

    def take(self, chosen: np.ndarray) -> LiveRows:
        columns = {known.name: getattr(self, known.name)[chosen] for known in fields(self)[2:]}
        return LiveRows(self.process, self.lane, **columns)


class LiveLane:
    """Puts the events of a lane together, look after look."""

    def __init__(self, process: int, lane: int) -> None:
        self._open = LiveRows.nothing(process, lane)
        self._thread = self._node = self._module = 0

    def add(self, block: EventBlock) -> LiveRows:
        """The hops that were open before and those that were entered in these events."""
        before = self._open
        carried = len(before.start)
        enters = np.flatnonzero(block.enter)
        entered = self._entered(block, enters)
        enter = np.append(np.ones(carried, np.bool_), block.enter)
        ticks = np.append(before.start, block.ticks)
        nesting = nest(
            np.append(before.depth, block.depth).astype(np.uint16),
            enter,
            np.append(before.hop, block.hop).astype(np.uint32),
        )
        rows = LiveRows(
            before.process,
            before.lane,
            **{
                known.name: np.append(getattr(before, known.name), getattr(entered, known.name))
                for known in fields(LiveRows)[2:]
            },
        )
        ended = nesting.end >= 0
        last = max((int(values.max()) for values in (ticks, block.other_ticks) if len(values)), default=0)
        rows.end = np.maximum(np.where(ended, ticks[nesting.end], last), rows.start)
        rows.parent, rows.open = nesting.parent, ~ended
        exits = np.cumsum(~enter) - 1
        closed = nesting.exit >= 0
        rows.raised[closed] = block.raised[exits[nesting.exit[closed]]]
        rows.source = sources_inside(rows.source, rows.parent)
        inner = ended & (rows.parent >= 0)
        np.add.at(rows.nested, rows.parent[inner], (rows.end - rows.start)[inner])
        outermost = nearest(rows.parent, rows.parent < 0)
        rows.size += np.bincount(outermost[ended], minlength=len(rows.size))
        self._open = rows.take(rows.open)
        return rows

    def _entered(self, block: EventBlock, enters: Index) -> LiveRows:
        count = len(enters)
        zeros = np.zeros(count, np.int64)
        nodes = block.kind == fmt.NODE
        modules = block.kind == fmt.MODULE
        threads = block.kind == fmt.THREAD
        node = _latest(block.before[nodes], low(block.second[nodes]), enters, self._node)
        module = _latest(block.before[modules], low(block.first[modules]), enters, self._module)
        thread = _latest(block.before[threads], low(block.first[threads]), enters, self._thread)
        if nodes.any():
            self._node = int(low(block.second[nodes])[-1])
        if modules.any():
            self._module = int(low(block.first[modules])[-1])
        if threads.any():
            self._thread = int(low(block.first[threads])[-1])
        return LiveRows(
            self._open.process,
            self._open.lane,
            hop=block.hop[block.enter].astype(np.int64),
            key_set=block.key_set.astype(np.int64),
            call_site=block.call_site.astype(np.int64),
            source=block.source.astype(np.int64),
            signature=block.signature.astype(np.int64),
            node=node,
            module=module,
            thread=thread,
            start=block.ticks[block.enter],
            end=zeros,
            depth=block.depth[block.enter].astype(np.int64),
            parent=zeros,
            nested=zeros.copy(),
            size=zeros.copy(),
            raised=np.zeros(count, np.bool_),
            open=np.zeros(count, np.bool_),
        )


def _latest(before: Index, values: np.ndarray, enters: Index, known: int) -> Index:
    """For each enter the value that was said last before it; `known` where nothing was said."""
    place = np.searchsorted(before, enters, "right")
    return np.append(known, values.astype(np.int64))[place]
