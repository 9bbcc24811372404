"""Traces that nest as deep as a program can, or as deep as somebody makes them."""

from __future__ import annotations

from synthetic import TraceWriter


def towers(depth: int, count: int = 1, *, ranges: bool = True, modules: int = 0) -> TraceWriter:
    """`count` towers of hops that call each other, each `depth` high, with ranges between.

    `modules`: how deep the module of each hop is, in turn.
    """
    writer = TraceWriter(hop_chunk_bytes=1 << 16)
    writer.process()
    writer.hop(0, "deep::op")
    writer.hop(1, "aten::neg")
    lane = writer.lane()
    lane.define_string(1, "range")
    lane.define_string(2, "\x1fcall:1")
    lane.define_source(1, "/x/deep.py", 3)
    lane.define_source(2, "/x/deep.py", 4)
    for number in range(1, modules + 1):
        writer.module_path(number, ".".join(["c"] * (number - 1)), "M")
    for number in range(count):
        for level in range(depth):
            if ranges and level % 2 and level < depth // 2:
                lane.range_enter(1 + level // 2 % 2)
            if modules:
                lane.module(1 + level % modules)
            lane.enter(0, source=1 + level % 2)
        lane.enter(1, source=1)
        for _ in range(depth + 1):
            lane.exit()
        for _ in range(depth // 4 if ranges else 0):
            lane.range_exit()
        lane.step(number + 1)
    return writer
