"""Traces of ranks: each with a few ops and collective calls, at moments that a test chooses."""

from __future__ import annotations

import struct
from pathlib import Path

from synthetic import TraceWriter

from tracer.trace.bytes import format as fmt

GROUP = '{"process_group": "0"}'


def write_rank(
    path: Path,
    rank: int | None = 0,
    ranks: int = 2,
    *,
    host: str = "a",
    boot: str = "clock",
    began_ns: int = 5000,
    collectives: int = 3,
    ops: int = 1,
    late: int = 0,
    op: str = "aten::mm",
) -> Path:
    """A trace of one process: before each collective `ops` op calls of a line 1.

    Each takes a tick, 10 ns; `late` is how many ticks pass between line 1 and the collective, which line 2
    calls. Without a rank the trace says none.
    """
    writer = TraceWriter(header={"start_ns": began_ns, "last_ns": began_ns + 1000})
    add_rank(writer, 0, rank, ranks, host=host, boot=boot, collectives=collectives, ops=ops, late=late, op=op)
    path.parent.mkdir(parents=True, exist_ok=True)
    return writer.write(path)


def allreduce_of(group: str) -> tuple[bytes, bytes]:
    """The tensor and the scalars of a call's inputs: see Lane.define_signature."""
    tensor = struct.pack("<HBbBbBBQ", 0, 1, 6, 0, -1, 0, fmt.HAS_STRIDES, 0) + struct.pack("<2q", 4, 1)
    return tensor, struct.pack("<IH", 1, 1) + fmt.pack_string(group)


def add_rank(
    writer: TraceWriter,
    process: int,
    rank: int | None,
    ranks: int = 2,
    *,
    host: str = "a",
    boot: str = "clock",
    collectives: int = 3,
    ops: int = 1,
    late: int = 0,
    op: str = "aten::mm",
) -> None:
    """The process of a rank in a trace."""
    writer.process(process)
    if rank is not None:
        writer.json(process, "rank", {"rank": rank, "ranks": ranks, "host": host, "boot": boot})
    writer.hop(0, op, process=process)
    writer.hop(1, "c10d::allreduce_", process=process)
    lane = writer.lane(process=process, number=process, thread=1000 + process)
    lane.define_source(1, "/work/train.py", 1)
    lane.define_source(2, "/work/train.py", 2)
    tensor, scalars = allreduce_of(GROUP)
    lane.define_signature(1, tensor, scalars=scalars)
    for _ in range(collectives):
        for _ in range(ops):
            lane.enter(0, source=1)
            lane.exit()
        writer.ticks += late
        lane.enter(1, source=2, signature=1)
        lane.exit()
