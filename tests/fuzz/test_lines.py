"""What advice takes grows with the lines of a trace, not with their square."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from synthetic import CPU, TraceWriter, tensor

from tracer.advice.rules import attention, python_loop
from tracer.advice.steady import Steady
from tracer.trace import load

LINES = (800, 3200)
MOST = 3
"""Of four times the lines: few of them are worth a look; with a look at each it was 6 times, 13.5 s"""
SPARE = 0.5
"""Seconds of CPU time that do not count"""
STEPS, TIMES = 6, 16


def loops(lines: int, path: Path) -> Path:
    """Each line of the last step calls an op 16 times, and has an attention."""
    writer = TraceWriter(hop_chunk_bytes=1 << 16)
    writer.process()
    for number, name in enumerate(("aten::bmm", "aten::softmax.int", "aten::tanh")):
        writer.hop(number, name)
    lane = writer.lane()
    for line in range(1, lines + 1):
        lane.define_source(line, "a", line)
    lane.define_signature(1, tensor((2, 4, 8), (32, 8, 1)), tensor((2, 8, 4), (32, 4, 1), position=1))
    lane.define_signature(2, tensor((2, 4, 4), (16, 4, 1)))
    lane.define_signature(3, tensor((2, 4, 4), (16, 4, 1)), tensor((2, 4, 8), (32, 8, 1), position=1))
    for step in range(STEPS):
        for line in range(1, (lines if step == STEPS - 1 else 20) + 1):
            for hop, signature in [(2, 2)] * TIMES + [(0, 1), (1, 2), (0, 3)]:
                lane.enter(hop, CPU, source=line, signature=signature)
                lane.exit()
        lane.step(step)
    path.write_bytes(writer.data())
    return path


def seconds(path: Path) -> float:
    """CPU time of the two rules that look at lines; the trace is loaded before."""
    steady = Steady.of(load(path))
    begin = time.process_time()
    list(python_loop.find(steady))
    list(attention.find(steady))
    return time.process_time() - begin


@pytest.mark.slow
def test_advice_grows_with_the_lines(tmp_path: Path) -> None:
    few, many = (seconds(loops(lines, tmp_path / f"{lines}.trace")) for lines in LINES)
    assert many <= MOST * few + SPARE, (few, many)
