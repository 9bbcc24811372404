"""How far reading and reporting a trace says that it is."""

from __future__ import annotations

import pytest
from gpu_trace import PATH

from tracer.base import progress
from tracer.cli import common
from tracer.report.reading import Reading
from tracer.report.report import render
from tracer.trace.bytes import threads


def test_portions_within_portions() -> None:
    parts: list[float] = []
    with progress.listening(parts.append):
        progress.done(1, 2)
        with progress.portion(0.5, 1.0):
            progress.done(1, 2)
            with progress.portion(0.5, 1.0):
                progress.done(1, 2)
            progress.done(4, 4)
        progress.done(0, 0)
    progress.done(1, 2)
    assert parts == [0.5, 0.75, 0.875, 1.0, 1.0]


def test_a_trace_that_is_read_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "PIECE_EVENTS", 500)
    parts: list[float] = []
    with progress.listening(parts.append), common.analysing(PATH) as trace:
        read = len(parts)
        render(Reading(trace, "gpu.trace"))
    assert parts == sorted(parts)
    assert read > 10
    assert 0 <= parts[0] < 0.1 < 0.6 < parts[read] < 0.8 < parts[-1] <= 1
