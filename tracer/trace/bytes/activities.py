"""The GPU activities, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tracer.trace.bytes import format as fmt

if TYPE_CHECKING:
    from tracer.trace.bytes.contents import Contents

Words = NDArray[np.uint64]

_COPIES = ("", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
_MEMORIES = (
    "",
    "pageable",
    "pinned",
    "device",
    "array",
    "managed",
    "static device",
    "static managed",
)
_HEAD_BITS = fmt.EVENT_BIT | 3 << fmt.ACTIVITY_KIND_SHIFT | 0xFFFF << 32 | fmt.LOW_32
"""The bits that a first word may have."""
_LATEST = np.uint64(fmt.TICKS_MASK)


@dataclass
class Activities:
    """One row per activity, ordered by process and start. -1: none.

    The columns from `grid` on apply only to some kinds of activities; the rest have 0 there.
    """

    process: NDArray[np.uint32]
    kind: NDArray[np.uint8]
    device: NDArray[np.uint32]
    correlation: NDArray[np.uint32]
    start: NDArray[np.int64]
    """In ticks since the recording began; 0: unknown"""
    end: NDArray[np.int64]
    stream: NDArray[np.uint32]
    context: NDArray[np.uint32]
    name: NDArray[np.uint32]
    """String id of the process's own lane; 0: none"""
    graph: NDArray[np.uint32]
    """0: none"""
    graph_node: NDArray[np.uint64]
    """0: none"""
    bytes: NDArray[np.int64]
    grid: NDArray[np.int64]
    """(rows, 3)"""
    block: NDArray[np.int64]
    cluster: NDArray[np.int64]
    registers: NDArray[np.int64]
    static_shared_bytes: NDArray[np.int64]
    dynamic_shared_bytes: NDArray[np.int64]
    shared_bytes: NDArray[np.int64]
    local_bytes: NDArray[np.int64]
    copy: NDArray[np.int64]
    """Index into `copy_names`"""

    def __len__(self) -> int:
        return len(self.process)


def parse_activities(words: Words) -> tuple[Words, int, bool]:
    """The records in the payload of a chunk, a row each.

    Also returns how many are not whole, and whether one of them is not the last, so that it was
    not a kill that tore it.
    """
    size = len(words) // fmt.ACTIVITY_WORDS * fmt.ACTIVITY_WORDS
    records = words[:size].reshape(-1, fmt.ACTIVITY_WORDS)
    heads = records[:, 0]
    kinds = heads >> np.uint64(fmt.ACTIVITY_KIND_SHIFT) & np.uint64(7)
    whole = (heads >> np.uint64(63) == 1) & (kinds >= fmt.GPU_KERNEL) & (kinds <= fmt.GPU_MEMSET)
    whole &= heads & ~np.uint64(_HEAD_BITS) == 0
    written = records.any(axis=1)
    torn = np.flatnonzero(written & ~whole)
    after = np.flatnonzero(whole)
    damaged = len(torn) > 0 and len(after) > 0 and bool(torn[0] < after[-1])
    return records[whole], len(torn) + bool(words[size:].any()), damaged


def gather_activities(recording: Contents) -> Activities:
    """Empties `recording.activities`."""
    processes, parts = [], []
    while recording.activities:
        (number, _), chunks = recording.activities.popitem()
        records = np.concatenate([chunks[sequence] for sequence in sorted(chunks)])
        processes.append(np.full(len(records), number, np.uint32))
        parts.append(records)
    records = np.concatenate(parts) if parts else np.empty((0, fmt.ACTIVITY_WORDS), np.uint64)
    process = np.concatenate(processes) if processes else np.empty(0, np.uint32)
    order = np.lexsort((records[:, 1], process))
    return _columns(records[order], process[order])


def copy_names() -> list[str]:
    """Names by index: `memcpy HtoD (pinned -> device)`."""
    names = []
    for number in range(16 * 16 * 16):
        copy, source, destination = number >> 8, number >> 4 & 15, number & 15
        kind = _COPIES[copy] if copy < len(_COPIES) else f"kind {copy}"
        memories = [
            _MEMORIES[memory] if memory < len(_MEMORIES) else f"memory kind {memory}"
            for memory in (source, destination)
        ]
        name = f"memcpy {kind}".rstrip()
        names.append(f"{name} ({memories[0]} -> {memories[1]})" if all(memories) else name)
    return names


def _columns(records: Words, process: NDArray[np.uint32]) -> Activities:
    kind = (records[:, 0] >> np.uint64(fmt.ACTIVITY_KIND_SHIFT)).astype(np.uint8) & np.uint8(7)
    is_kernel, is_copy = kind == fmt.GPU_KERNEL, kind == fmt.GPU_MEMCPY

    def half(word: int, high: bool) -> NDArray[np.uint32]:
        return (records[:, word] >> np.uint64(32 * high) & np.uint64(fmt.LOW_32)).astype(np.uint32)

    def of_kernels(word: int, high: bool) -> NDArray[np.int64]:
        return np.where(is_kernel, half(word, high).astype(np.int64), 0)

    copies = [
        np.minimum(records[:, 7] >> np.uint64(shift) & np.uint64(mask), np.uint64(15)).astype(np.int64)
        for shift, mask in ((0, fmt.LOW_32), (32, 0xFF), (40, 0xFF))
    ]
    return Activities(
        process=process,
        kind=kind,
        device=half(0, True) & np.uint32(0xFFFF),
        correlation=half(0, False),
        start=np.minimum(records[:, 1], _LATEST).astype(np.int64),
        end=np.minimum(records[:, 2], _LATEST).astype(np.int64),
        stream=half(3, False),
        context=half(3, True),
        name=half(4, False),
        graph=half(4, True),
        graph_node=records[:, 5].copy(),
        bytes=np.where(is_kernel, 0, records[:, 6].astype(np.int64)),
        grid=np.stack([of_kernels(7, False), of_kernels(7, True), of_kernels(8, False)], axis=1),
        block=np.stack([of_kernels(8, True), of_kernels(9, False), of_kernels(9, True)], axis=1),
        cluster=np.stack([of_kernels(12, False), of_kernels(12, True), of_kernels(13, False)], axis=1),
        registers=of_kernels(10, False),
        static_shared_bytes=of_kernels(10, True),
        dynamic_shared_bytes=of_kernels(11, False),
        local_bytes=of_kernels(11, True),
        shared_bytes=of_kernels(13, True),
        copy=np.where(is_copy, copies[0] << 8 | copies[1] << 4 | copies[2], 0),
    )
