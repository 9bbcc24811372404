"""What a reader does grows with a trace, and not with processes times what they have from their parent."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from synthetic import TraceWriter

import tracer.trace
from tracer.trace import load
from tracer.trace.names.libraries import LoadedLibraries

TRACER = os.path.dirname(os.path.dirname(tracer.trace.__file__))
LAUNCH = 211
MOST = 2.6
"""Between a trace and one of twice the size: 2 is linear, 4 quadratic"""


def forked(size: int) -> TraceWriter:
    """A process and `size` others that it has forked."""
    writer = TraceWriter()
    writer.process(0)
    for process in range(1, size + 1):
        writer.process(process, how=1, parent_pid=100, pid=100 + process, certificate=None)
    return writer


def many_libraries(size: int) -> TraceWriter:
    writer = forked(size)
    libraries = [{"path": "/a", "base": at, "end": at + 1, "build_id": "a"} for at in range(3 * size)]
    writer.json(0, "libraries", libraries)
    for process in range(size + 1):
        writer.hop(0, "aten::mm", process=process, address=1 << 40)
        writer.lane(process, number=process, thread=1000 + process).enter(0)
    return writer


def many_functions(size: int) -> TraceWriter:
    writer = forked(size)
    for number in range(5 * size):
        writer.function(number, f"cuda{number}", domain=2)
    for process in range(size + 1):
        lane = writer.lane(process, number=process, thread=1000 + process)
        lane.api(process)
    return writer


def many_enumerations(size: int) -> TraceWriter:
    writer = forked(size)
    for number in range(5 * size):
        writer.enumeration(f"kind{number}", a=1)
    for process in range(size + 1):
        writer.function(LAUNCH, "cudaLaunchKernel", domain=2, process=process)
        lane = writer.lane(process, number=process, thread=1000 + process)
        lane.api(LAUNCH)
    return writer


def copies_of_copies(size: int) -> TraceWriter:
    """Each node of a graph is a copy of the one before."""
    writer = TraceWriter()
    writer.process(0)
    writer.function(LAUNCH, "cudaLaunchKernel", domain=2)
    writer.string(1, "kernel")
    lane = writer.lane()
    lane.api(LAUNCH, correlation=10, captured=True)
    lane.api(LAUNCH, correlation=20)
    writer.graph_node(1, correlation=10)
    for node in range(2, size + 1):
        writer.graph_node(node, original=node - 1)
    for node in range(1, size + 1):
        writer.kernel(20, node, node + 1, name=1, graph=6, node=node)
    return writer


@contextmanager
def counted() -> Iterator[list[int]]:
    """The instructions of tracer's Python that run in the block."""
    count = [0]

    def one_more(frame: FrameType, event: str, _argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(TRACER):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count[0] += event == "opcode"
        return one_more

    before = sys.gettrace()
    sys.settrace(one_more)
    try:
        yield count
    finally:
        sys.settrace(before)


@pytest.mark.parametrize(
    ("program", "size"),
    [(many_libraries, 60), (many_functions, 100), (many_enumerations, 60), (copies_of_copies, 200)],
)
def test_work_grows_with_the_trace(tmp_path: Path, program: Callable[[int], TraceWriter], size: int) -> None:
    work = []
    for times in (1, 2, 4):
        trace = program(times * size).write(tmp_path / f"{times}.trace")
        with counted() as count:
            load(trace)
        work.append(count[0])
    assert work[2] - work[1] < MOST * (work[1] - work[0]), work


def test_libraries_are_found_at_both_ends() -> None:
    known = [
        {"path": path, "base": base, "end": end, "build_id": ""}
        for path, base, end in (
            ("b", 0x30, 0x40),
            ("a", 0x10, 0x20),
            ("again", 0x10, 0x18),
            ("none", 0x15, 0x15),
        )
    ]
    libraries = LoadedLibraries([*known, "x", {"path": "y"}])
    places = {0: None, 0x10: "a", 0x1F: "a", 0x20: None, 0x2F: None, 0x30: "b", 0x3F: "b", 0x40: None}
    for address, path in places.items():
        found = libraries.find(address)
        assert (found and found["path"]) == path
    assert LoadedLibraries([]).find((1 << 64) - 1) is None
