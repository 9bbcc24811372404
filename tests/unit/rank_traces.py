"""Traces of ranks: each with a few ops and collective calls, at moments that a test chooses."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from synthetic import Lane, TraceWriter

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


def allreduce_of(group: str, waits: bool = False) -> tuple[bytes, bytes]:
    """The tensor and the scalars of a call's inputs: see Lane.define_signature. `waits`: async_op=False."""
    tensor = struct.pack("<HBbBbBBQ", 0, 1, 6, 0, -1, 0, fmt.HAS_STRIDES, 0) + struct.pack("<2q", 4, 1)
    flag = fmt.pack_string("false" if waits else "true")
    return tensor, struct.pack("<IH", 2, 1) + fmt.pack_string(group) + struct.pack("<H", 4) + flag


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


MS = 100_000
"""Ticks of 10 ns"""


class Rank:
    """The trace of a rank, which a test leads from moment to moment (in ms since all began)."""

    def __init__(
        self,
        rank: int,
        ranks: int,
        groups: Sequence[str] = ("0",),
        boot: str = "clock",
        op: str = "aten::mm",
        collective: str = "c10d::allreduce_",
        described: dict[str, str] | None = None,
        restarts: int = 0,
    ) -> None:
        self.writer = TraceWriter(ticks=1000)
        self.writer.process(0)
        place: dict[str, object] = {"rank": rank, "ranks": ranks, "host": boot, "boot": boot}
        place |= {"restarts": restarts} if restarts else {}
        members = {"ranks": list(range(ranks))}
        place["groups"] = {name: {**members, "description": of} for name, of in (described or {}).items()}
        self.writer.json(0, "rank", place)
        self.writer.hop(0, op)
        self.writer.hop(1, collective)
        self.rank = rank
        self.kernels: dict[str, int] = {}
        self.launched = 0
        self.lane: Lane = self.writer.lane(thread=100)  # the main thread of process 100
        self.groups = {group: number for number, group in enumerate(groups, 1)}
        for group, number in self.groups.items():
            for flag in range(2):
                tensor, scalars = allreduce_of(GROUP.replace("0", group), waits=bool(flag))
                self.lane.define_signature(2 * number + flag, tensor, scalars=scalars)
        for line in range(1, 5):
            self.lane.define_source(line, "/work/train.py", line)

    def at(self, ms: float) -> Rank:
        self.writer.ticks = max(self.writer.ticks, 1000 + int(ms * MS))
        return self

    def calls(self, group: str = "0", line: int = 2, waits: bool = False) -> Rank:
        self.lane.enter(1, source=line, signature=2 * self.groups[group] + waits)
        self.lane.exit()
        return self

    def computes(self, line: int = 1, leaves: bool = True) -> Rank:
        self.lane.enter(0, source=line)
        if leaves:
            self.lane.exit()
        return self

    def launches(
        self,
        begin: float,
        end: float,
        kernel: str = "gemm",
        line: int = 1,
        hop: int = 0,
        signature: int = 0,
    ) -> Rank:
        """An op call that launches a kernel, which runs from `begin` to `end` ms."""
        if not self.kernels:
            self.writer.function(1, "cudaLaunchKernel")
        if kernel not in self.kernels:
            self.kernels[kernel] = len(self.kernels) + 1
            self.writer.string(self.kernels[kernel], kernel)
        self.launched += 1
        self.lane.enter(hop, source=line, signature=signature)
        self.lane.api(1, correlation=self.launched)
        self.lane.exit()
        ran = [1000 + int(moment * MS) for moment in (begin, end)]
        self.writer.activity(1, self.launched, *ran, name=self.kernels[kernel])
        return self

    def reduces(self, begin: float, end: float) -> Rank:
        """A collective of line 2 whose kernel runs from `begin` to `end` ms."""
        return self.launches(begin, end, "ncclDevKernel_AllReduce", line=2, hop=1, signature=2)

    def ends_step(self, ended: int) -> Rank:
        self.lane.step(ended)
        return self

    def write(
        self, folder: Path, dumped: float | None = None, overwritten: int = 0, name: str | None = None
    ) -> Path:
        ticks = self.writer.ticks if dumped is None else 1000 + int(dumped * MS)
        self.writer.header = {
            "last_ticks": ticks,
            "last_ns": 5000 + 10 * (ticks - 1000),
            "flags": 3 | (64 if dumped is not None else 0),
            "overwritten_hops": overwritten,
        }
        folder.mkdir(exist_ok=True)
        return self.writer.write(folder / (name or f"rank{self.rank}.trace"))
