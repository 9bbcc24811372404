"""The ranges that torch.profiler.record_function marked, of all threads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.arrays import concatenate, lookup, low, nearest, take
from tracer.trace.bytes.events import EventBlock
from tracer.trace.bytes.threads import Span, thread_order
from tracer.trace.tables.open_ranges import OpenRanges
from tracer.trace.tables.schema import RANGES
from tracer.trace.tables.series import in_order, indices, named, nanoseconds, nullable
from tracer.trace.tables.steps import PHASES, Steps, steps_of_rows

Columns = dict[str, np.ndarray]


def span_ranges(
    block: EventBlock, found: OpenRanges, names: Mapping[int, int], sources: Mapping[int, int], last: int
) -> Columns:
    """The ranges of a span, whose rows `parent` counts from 0; `last` is the last tick of its thread."""
    begun = block.first[found.rows]
    start = block.other_ticks[found.rows]
    return {
        "name": lookup(names, low(begun)),
        "source": lookup(sources, (begun >> np.uint64(32)).astype(np.uint32)),
        "parent": found.parent,
        "start": start,
        "end": np.maximum(np.where(found.end >= 0, found.end, last), start),
        "open": found.end < 0,
        "number": found.number,
    }


def join_ranges(parts: list[tuple[Span, Columns]], main_threads: Mapping[int, int]) -> Columns:
    """Puts the ranges of spans together, each once, by process, thread (the main one first) and start."""
    sizes = [len(columns["start"]) for _, columns in parts]
    offset = 0
    for (_, columns), size in zip(parts, sizes, strict=True):
        columns["parent"][columns["parent"] >= 0] += offset
        offset += size
    joined = {
        name: concatenate([columns[name] for _, columns in parts], dtype) for name, dtype in _TYPES.items()
    }
    for name in ("process", "thread"):
        joined[name] = np.repeat(np.array([getattr(span, name) for span, _ in parts], np.uint32), sizes)
    later = [thread_order(span, main_threads)[1] for span, _ in parts]
    number = joined.pop("number")
    first = _first_of_each(joined["process"], number)
    order = np.lexsort((joined["start"], joined["thread"], np.repeat(later, sizes), joined["process"]))
    order = order[first[order] == order]
    row = np.full(offset + 1, -1, np.int64)
    row[order] = np.arange(len(order))
    parent = row[np.append(first, -1)[joined["parent"]]]
    return {name: values[order] for name, values in {**joined, "parent": parent}.items()}


def _first_of_each(process: NDArray[np.uint32], number: NDArray[np.uint64]) -> NDArray[np.int64]:
    """For each row the first with its process and number; itself where it has no number."""
    first = np.arange(len(number))
    numbered = np.flatnonzero(number > 0)
    order = numbered[np.lexsort((numbered, number[numbered], process[numbered]))]
    same = (number[order[1:]] == number[order[:-1]]) & (process[order[1:]] == process[order[:-1]])
    begins = np.flatnonzero(np.append(True, ~same)) if len(order) else order
    first[order] = np.repeat(order[begins], np.diff(np.append(begins, len(order))))
    return first


def ranges_table(columns: Columns, names: list[str], steps: dict[int, Steps], to_ns: float) -> pl.DataFrame:
    """A row for each range, ordered by process, thread and start."""
    start = nanoseconds(columns["start"], to_ns)
    process: NDArray[np.uint32] = columns["process"]
    step, phase = steps_of_rows(steps, process, start)
    table = pl.DataFrame(
        {
            "id": pl.Series(np.arange(len(start), dtype=np.uint32)),
            "name": named(names, columns["name"]),
            "process": process,
            "thread": columns["thread"],
            "parent": indices(columns["parent"]),
            "start_ns": start,
            "end_ns": nanoseconds(columns["end"], to_ns),
            "step": nullable(step),
            "phase": named(PHASES, phase),
            "open": columns["open"],
        }
    )
    return in_order(table, RANGES)


def split(columns: Columns, names: list[str]) -> tuple[Columns, Columns]:
    """The ranges of the program, and tracer's own; the parent of each is among those of its kind."""
    own_names = np.array([name.startswith(OWN) for name in names], np.bool_)
    is_own = np.append(own_names, False)[columns["name"]]
    if not is_own.any():
        return columns, {name: values[:0] for name, values in columns.items()}
    above = columns["parent"]
    parent = np.where(is_own, take(nearest(above, is_own), above), take(nearest(above, ~is_own), above))
    halves = []
    for kept in (~is_own, is_own):
        rows = np.cumsum(kept) - 1
        half = {name: values[kept] for name, values in columns.items()}
        halves.append({**half, "parent": take(rows, parent[kept])})
    return halves[0], halves[1]


OWN = chr(fmt.OWN_RANGE)
_TYPES = {
    "name": np.int32,
    "source": np.int32,
    "parent": np.int64,
    "start": np.int64,
    "end": np.int64,
    "open": np.bool_,
    "number": np.uint64,
}
