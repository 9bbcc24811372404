"""What op calls returned: a hash of the values, and whether there is a NaN."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.events import EventBlock
from tracer.trace.bytes.nesting import innermost_at
from tracer.trace.bytes.threads import Span
from tracer.trace.tables.schema import VALUES
from tracer.trace.tables.series import in_order, indices

Columns = dict[str, "NDArray[np.uint64] | NDArray[np.int64]"]


def span_values(block: EventBlock, span: Span) -> Columns | None:
    """The columns of a span, None if it has none. Rows of hops count from the span's first."""
    at = np.flatnonzero(block.kind[span.others] == fmt.VALUE)
    if not len(at):
        return None
    first, second = block.first[span.others][at], block.second[span.others][at]
    depth = (second >> np.uint64(fmt.VALUE_DEPTH_SHIFT)).astype(np.int64) & fmt.MAX_DEPTH
    before = block.before[span.others][at] - span.events.start
    return {
        "hop": innermost_at(block.depth[span.events], block.enter[span.events], before, depth),
        "hash": first,
        "flags": second & np.uint64(7),
    }


def values_table(columns: Columns, definition: NDArray[np.int32], flags_of: Sequence[int]) -> pl.DataFrame:
    """A row for each hop that returned tensors, in the order of hops. What was not read is null.

    `definition` is the number of each hop's definition (-1: unknown), `flags_of` has the flags of each.
    `view`: the op may have returned an argument, or a view of one, whose values it did not write.
    """
    known = columns["hop"] >= 0
    of_hops = np.append(np.array(flags_of, np.int64), 0)[definition[columns["hop"][known]]]
    flags = columns["flags"][known]
    unread = pl.Series(flags & np.uint64(fmt.VALUE_UNREAD) != 0)
    left_out = pl.Series(columns["hash"][known] == 0)
    table = pl.DataFrame(
        {
            "hop": indices(columns["hop"][known]),
            "hash": pl.Series(columns["hash"][known]).set(unread | left_out, None),
            "nan": pl.Series(flags & np.uint64(fmt.VALUE_NAN) != 0).set(unread, None),
            "infinite": pl.Series(flags & np.uint64(fmt.VALUE_INFINITE) != 0).set(unread, None),
            "view": of_hops & fmt.VIEW_HOP != 0,
        }
    )
    return in_order(table.sort("hop", maintain_order=True), VALUES)


VALUE_TYPES: dict[str, type] = {"hop": np.int64, "hash": np.uint64, "flags": np.uint64}
