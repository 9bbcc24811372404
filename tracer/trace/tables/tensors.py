"""Which tensors op calls got and returned: the storage of each, and its version."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.arrays import lookup, low
from tracer.trace.bytes.definitions import Signature, TensorDefinition
from tracer.trace.bytes.events import EventBlock
from tracer.trace.bytes.nesting import innermost_at
from tracer.trace.bytes.threads import Span
from tracer.trace.tables.schema import MOST_TENSORS, TENSORS
from tracer.trace.tables.series import in_order, indices

Columns = dict[str, "NDArray[np.uint64] | NDArray[np.int64] | NDArray[np.int32] | NDArray[np.bool_]"]


def span_tensors(block: EventBlock, span: Span, signatures: dict[int, int]) -> Columns | None:
    """The columns of a span, None if it has none. Rows of hops count from the span's first.

    `signatures` has the codes of signatures. `count` is how many tensors were named together with this one.

    event        row: hop  result  number  count
    tensor s1         a    false   0       2
    tensor s2         a    false   1       2
    enter a
    exit a
    results (1)
    tensor s3         a    true    0       1
    """
    kind = block.kind[span.others]
    at = np.flatnonzero((kind == fmt.TENSOR) | (kind == fmt.RESULTS))
    if not len(at):
        return None
    is_tensor, word = kind[at] == fmt.TENSOR, block.first[span.others][at]
    before = block.before[span.others][at] - span.events.start
    heads = _heads(block.other_ticks[span.others][at], is_tensor, before, word >> np.uint64(32))
    depth, enter = block.depth[span.events].astype(np.int64), block.enter[span.events]

    # Those of results are of the hop that was left just before, the others of the one that is entered next.
    result = heads >= 0
    last, following = np.maximum(before - 1, 0), np.minimum(before, len(enter) - 1)
    hop = np.full(len(at), -1, np.int64)
    code = np.full(len(at), -1, np.int32)
    if len(enter):
        left = result & (before > 0) & ~enter[last]
        hop[left] = innermost_at(block.depth[span.events], enter, last[left], depth[last[left]] + 1)
        code[left] = lookup(signatures, low(word[heads[left]]))
        entered = ~result & (before < len(enter)) & enter[following]
        hop[entered] = (np.cumsum(enter) - 1)[following[entered]]
        code[entered] = lookup(signatures, block.signature[span.enters])[hop[entered]]
    kept = is_tensor & (hop >= 0)
    hop, result, word, code = hop[kept], result[kept], word[kept], code[kept]
    # Rows of one call follow each other.
    begins = np.flatnonzero(np.append(True, (hop[1:] != hop[:-1]) | (result[1:] != result[:-1])))[: len(hop)]
    sizes = np.diff(np.append(begins, len(hop)))
    return {
        "hop": hop,
        "result": result,
        "number": np.arange(len(hop)) - np.repeat(begins, sizes),
        "count": np.repeat(sizes, sizes),
        "signature": code,
        "storage": word & np.uint64(fmt.STORAGE_MASK),
        "version": word >> np.uint64(fmt.VERSION_SHIFT) & np.uint64(fmt.MOST_VERSIONS),
    }


def _heads(
    time: NDArray[np.int64],
    is_tensor: NDArray[np.bool_],
    before: NDArray[np.int64],
    counts: NDArray[np.uint64],
) -> NDArray[np.int64]:
    """Of each tensor of results the row of the event that announces it; -1: of arguments."""
    found = np.full(len(time), -1, np.int64)
    rows = np.flatnonzero(~is_tensor)
    sizes = np.minimum(counts[rows], np.uint64(MOST_TENSORS)).astype(np.int64)
    head = np.repeat(rows, sizes)
    member = head + 1 + np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    there = member < len(time)
    head, member = head[there], member[there]
    # All have one time. If one of them is lost, they are fewer than the signature has.
    there = is_tensor[member] & (before[member] == before[head]) & (time[member] == time[head])
    found[member[there]] = head[there]
    return found


def tensors_table(columns: Columns, signatures: list[Signature]) -> pl.DataFrame:
    """A row for each tensor of a call, in the order of hops; arguments come before results."""
    of_signatures = [sum(isinstance(one, TensorDefinition) for one in each) for each in signatures]
    wanted = np.append(np.array(of_signatures, np.int64), -1)[columns["signature"]]
    whole = (wanted == columns["count"]) | (wanted < 0)
    storage, version = columns["storage"][whole], columns["version"][whole]
    table = pl.DataFrame(
        {
            "hop": indices(columns["hop"][whole]),
            "result": columns["result"][whole],
            "signature": indices(columns["signature"][whole]),
            "number": columns["number"][whole].astype(np.uint32),
            "storage": pl.Series(storage).set(pl.Series(storage == 0), None),
            "version": pl.Series(version.astype(np.uint32) - 1).set(pl.Series(version == 0), None),
        }
    )
    return in_order(table.sort("hop", "result", maintain_order=True), TENSORS)


TENSOR_TYPES: dict[str, type] = {
    "hop": np.int64,
    "result": np.bool_,
    "number": np.int64,
    "count": np.int64,
    "signature": np.int32,
    "storage": np.uint64,
    "version": np.uint64,
}
