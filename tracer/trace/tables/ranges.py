"""The ranges that torch.profiler.record_function marked, of all threads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.arrays import concatenate, lookup, low, nearest, take
from tracer.trace.bytes.events import EventBlock
from tracer.trace.bytes.nesting import innermost_open
from tracer.trace.bytes.threads import Span
from tracer.trace.tables.schema import RANGES
from tracer.trace.tables.series import in_order, indices, named, nanoseconds, nullable
from tracer.trace.tables.steps import PHASES, Steps, steps_of_rows

Columns = dict[str, np.ndarray]


def span_ranges(
    block: EventBlock, span: Span, names: Mapping[int, int], sources: Mapping[int, int], last: int
) -> Columns | None:
    """The ranges of a span, None if it has none; `last` is the last tick of its thread.

    Rows of parents count from the span's first range. An end without a begin, as when the recording began
    within a range, is passed over.
    """
    kind = block.kind[span.others]
    events = np.flatnonzero((kind == fmt.RANGE_ENTER) | (kind == fmt.RANGE_EXIT))
    enter = kind[events] == fmt.RANGE_ENTER
    if not enter.any():
        return None
    ticks = block.other_ticks[span.others][events]
    innermost = innermost_open(np.where(enter, 1, -1))
    around = np.append(-1, innermost[:-1])  # the event that began what was innermost before each event
    leaves = np.flatnonzero(~enter & (around >= 0))
    end = np.full(len(events), -1, np.int64)
    end[around[leaves]] = ticks[leaves]
    rows = np.cumsum(enter) - 1
    begun = block.first[span.others][events[enter]]
    return {
        "name": lookup(names, low(begun)),
        "source": lookup(sources, (begun >> np.uint64(32)).astype(np.uint32)),
        "parent": take(rows, around[enter]),
        "start": ticks[enter],
        "end": np.where(end[enter] >= 0, end[enter], last),
        "open": end[enter] < 0,
    }


def join_ranges(parts: list[tuple[Span, Columns]]) -> Columns:
    """Puts the ranges of spans, in the order of the table, one after the other."""
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
    return joined


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
}
