"""A lane that is read in many pieces gives the same tables as one that is read in one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_trace import PATH as GPU
from synthetic import TraceWriter

from tracer.trace import Trace, load
from tracer.trace.bytes import threads
from tracer.trace.bytes.events import EventBlock

TABLES = ("hops", "api_calls", "library_calls", "gpu_activities", "steps", "memory")


def loaded(path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> Trace:
    monkeypatch.setattr(threads, "PIECE_EVENTS", size)
    return load(path)


def same(path: Path, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]) -> None:
    whole = loaded(path, monkeypatch, 1 << 30)
    for size in sizes:
        pieces = loaded(path, monkeypatch, size)
        for name in TABLES:
            assert getattr(pieces, name).equals(getattr(whole, name)), (name, size)
        assert pieces.certificate == whole.certificate


def test_a_real_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    same(GPU, monkeypatch, (1, 97, 1000))


@pytest.mark.parametrize("seed", range(5))
def test_random_calls_some_of_them_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance = random.Random(seed)
    writer = TraceWriter()
    writer.process()
    for number in range(4):
        writer.hop(number, f"aten::op{number}")
    for thread in range(2):
        lane = writer.lane(0, thread)
        depth = 0
        for _ in range(300):
            if depth and chance.random() < 0.55:
                lane.exit()
                depth -= 1
            else:
                lane.enter(chance.randrange(4))
                depth += 1
    same(writer.write(tmp_path / "x.trace"), monkeypatch, (1, 2, 50))


def test_there_are_several_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tests above compare a lane in one piece with itself."""
    seen: list[bool] = []
    cut = threads.pieces

    def counted(block: EventBlock, span: threads.Span) -> Iterator[threads.Piece]:
        for piece in cut(block, span):
            seen.append(piece.is_last)
            yield piece

    monkeypatch.setattr("tracer.trace.tables.gather.pieces", counted)
    loaded(GPU, monkeypatch, 1 << 30)
    whole = len(seen)
    seen.clear()
    loaded(GPU, monkeypatch, 97)
    assert len(seen) > 10 * whole
    assert seen.count(True) == whole
