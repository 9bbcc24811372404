"""The blocks of memory that torch's allocators gave out and took back, of all threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.arrays import Codes, concatenate, lookup, low
from tracer.trace.bytes.events import EventBlock
from tracer.trace.bytes.nesting import innermost_at
from tracer.trace.bytes.threads import Span
from tracer.trace.names.keys import KeyNames
from tracer.trace.tables.schema import MEMORY
from tracer.trace.tables.series import categories, in_order, indices, named, nanoseconds, nullable
from tracer.trace.tables.steps import Steps, steps_of_rows

Index = NDArray[np.int64]


@dataclass
class MemoryColumns:
    """One row for each block that was given out or taken back, ordered by process and time."""

    process: NDArray[np.uint32]
    thread: NDArray[np.uint32]
    time: Index
    """In ticks"""
    hop: Index
    """Row of the innermost hop that was open; -1: none"""
    address: Index
    bytes: Index
    """0: not known"""
    freed: NDArray[np.bool_]
    device: Index
    """DeviceType, and from bit 7 on the index + 1"""
    source: Codes
    """The line of a block that no hop asked for; -1: none"""

    def __len__(self) -> int:
        return len(self.time)


def span_memory(block: EventBlock, span: Span, sources: dict[int, int]) -> dict[str, np.ndarray] | None:
    """The columns of a span, None if it has none. Rows of hops count from the span's first.

    `sources` has the codes of lines.
    """
    kind, words = block.kind[span.others], block.first[span.others]
    at = np.flatnonzero(kind == fmt.MEMORY)
    if not len(at):
        return None
    first, second = words[at], block.second[span.others][at]
    lines = np.where((at > 0) & (kind[at - 1] == fmt.MEMORY_LINE), low(words[at - 1]), np.uint32(0))
    depth = (first >> np.uint64(fmt.MEMORY_DEPTH_SHIFT)).astype(np.int64) & fmt.MAX_DEPTH
    before = block.before[span.others][at] - span.events.start
    return {
        "time": block.other_ticks[span.others][at],
        "hop": innermost_at(block.depth[span.events], block.enter[span.events], before, depth),
        "address": (first & np.uint64(fmt.MEMORY_ADDRESS_MASK)).astype(np.int64),
        "bytes": (second & np.uint64(fmt.MEMORY_SIZE_MASK)).astype(np.int64),
        "freed": (first >> np.uint64(fmt.MEMORY_FREED_SHIFT) & np.uint64(1)).astype(np.bool_),
        "device": (second >> np.uint64(fmt.MEMORY_DEVICE_TYPE_SHIFT)).astype(np.int64),
        "source": lookup(sources, lines),
    }


def join_memory(parts: list[tuple[Span, int, dict[str, np.ndarray]]]) -> MemoryColumns:
    """Puts the columns of spans together; each part has the row of its first hop."""
    for _, first_hop, columns in parts:
        columns["hop"][columns["hop"] >= 0] += first_hop
    sizes = [len(columns["time"]) for _, _, columns in parts]
    joined = {
        name: concatenate([columns[name] for _, _, columns in parts], dtype)
        for name, dtype in _COLUMN_TYPES.items()
    }
    process = np.repeat(np.array([span.process for span, _, _ in parts], np.uint32), sizes)
    thread = np.repeat(np.array([span.thread for span, _, _ in parts], np.uint32), sizes)
    order = np.lexsort((joined["time"], process))
    return MemoryColumns(process[order], thread[order], **{name: joined[name][order] for name in joined})


def memory_table(
    columns: MemoryColumns,
    keys: Mapping[int, KeyNames],
    sources: list[str],
    steps: dict[int, Steps],
    to_ns: float,
) -> pl.DataFrame:
    """A row for each block that was given out (`bytes` above 0) or taken back (below 0, null: not known)."""
    allocated_by = _allocations(columns)
    known = allocated_by >= 0
    size = columns.bytes.copy()
    size[known] = columns.bytes[allocated_by[known]]
    size = np.where(columns.freed, -size, size)
    time = nanoseconds(columns.time, to_ns)
    step, _ = steps_of_rows(steps, columns.process, time)
    table = pl.DataFrame(
        {
            "id": pl.Series(np.arange(len(columns), dtype=np.uint32)),
            "hop": indices(columns.hop),
            "process": columns.process,
            "thread": columns.thread,
            "time_ns": time,
            "device": _devices(columns, keys),
            "address": columns.address,
            "bytes": pl.Series(size).set(pl.Series(size == 0), None) if len(size) else size,
            "allocated_by": indices(allocated_by),
            "source": named(sources, columns.source),
            "step": nullable(step),
        }
    )
    return in_order(table, MEMORY)


def _allocations(columns: MemoryColumns) -> Index:
    """For each block that was taken back the row that gave it out; -1: it was not recorded."""
    found = np.full(len(columns), -1, np.int64)
    order = np.lexsort((np.arange(len(columns)), columns.address, columns.device, columns.process))
    previous = order[:-1]
    same = columns.freed[order[1:]] & ~columns.freed[previous]
    for column in (columns.address, columns.device, columns.process):
        same &= column[order[1:]] == column[previous]
    found[order[1:][same]] = previous[same]
    return found


def _devices(columns: MemoryColumns, keys: Mapping[int, KeyNames]) -> pl.Series:
    distinct, codes = np.unique(columns.process.astype(np.int64) << 16 | columns.device, return_inverse=True)
    names: list[str | None] = []
    for number in distinct.tolist():
        kind, index = number & fmt.MEMORY_DEVICE_TYPE_MASK, (number >> 7 & fmt.MEMORY_DEVICE_INDEX_MASK) - 1
        known = keys.get(number >> 16) or KeyNames.nothing()
        names.append(known.device(kind, index))
    return categories(names).gather(codes.astype(np.uint32))


_COLUMN_TYPES = {
    "time": np.int64,
    "hop": np.int64,
    "address": np.int64,
    "bytes": np.int64,
    "freed": np.bool_,
    "device": np.int64,
    "source": np.int32,
}
