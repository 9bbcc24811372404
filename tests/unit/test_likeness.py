"""Lines that were edited are found in bounded work, however many lines two runs have that are not alike."""

from __future__ import annotations

import random
from collections.abc import Callable
from difflib import SequenceMatcher
from pathlib import Path

import pytest
from synthetic import TraceWriter

from tracer.analysis import likeness, lock_difference
from tracer.analysis.chain import Chain, Link
from tracer.analysis.difference import difference
from tracer.analysis.difference.alignment import renamed_files
from tracer.analysis.likeness import Likeness
from tracer.analysis.lock import Lock, Section
from tracer.analysis.lock_difference import compare_locks
from tracer.trace import load

LINES = 300


class Compared(SequenceMatcher):
    """Counts the pairs of characters."""

    pairs = 0

    def ratio(self) -> float:
        Compared.pairs += len(self.a) * len(self.b)
        return super().ratio()


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> type[Compared]:
    monkeypatch.setattr(likeness, "SequenceMatcher", Compared)
    monkeypatch.setattr(likeness, "_MOST_WORK", 1_000_000)
    Compared.pairs = 0
    return Compared


def texts(seed: int, count: int = LINES, length: int = 60) -> list[str]:
    chance = random.Random(seed)
    return ["".join(chance.choices("abcdefgh ()=.", k=length)) for _ in range(count)]


def written(path: Path, lines: list[str]) -> Path:
    trace = TraceWriter()
    trace.process(0)
    trace.hop(0, "aten::root")
    lane = trace.lane(0)
    for number in range(len(lines)):
        lane.define_source(1 + number, "/w/train.py", 1 + number)
    numbered = {str(1 + number): text for number, text in enumerate(lines)}
    trace.json(0, "source_lines", {"/w/train.py": {"cell": None, "lines": numbered}})
    for number in range(len(lines)):
        lane.enter(0, source=1 + number)
        lane.exit()
    lane.step(1)
    return trace.write(path)


def test_texts_are_alike_until_the_work_is_used_up(compared: type[Compared]) -> None:
    like = Likeness()
    assert like.of("y = x.relu()", "y = x.gelu()") > likeness.EDITED
    assert like.of("y = x.relu()", "return") == 0
    assert like.of("a" * 100_000, "a" * 99_999) == 1  # what they begin with
    for one, other in zip(texts(1), texts(2), strict=True):
        like.of(one, other)
    assert like.spent
    assert like.of("y = x.relu()", "y = x.gelu()") == 0
    assert like.of("y = x.relu()", "y = x.relu()") == 1


@pytest.mark.parametrize(("count", "length"), [(LINES, 60), (8, 20_000)])
def test_a_file_that_was_written_anew_is_compared_in_bounded_work(
    compared: type[Compared], tmp_path: Path, count: int, length: int
) -> None:
    one, other = (load(written(tmp_path / f"{seed}.trace", texts(seed, count, length))) for seed in (1, 2))
    difference([one], [other])
    assert 0 < compared.pairs <= 3 * 1_000_000  # op calls, and the times between them


def lock(headings: list[str], chains: Callable[[int], list[Chain]]) -> Lock:
    return Lock(None, {heading: Section(heading, chains(at)) for at, heading in enumerate(headings)})


def link(level: int, text: str) -> Link:
    return Link(level, "call", text)


def test_headings_of_a_lock_are_compared_in_bounded_work(compared: type[Compared]) -> None:
    locks = [
        lock([f"train.py: {text}" for text in texts(seed)], lambda _: [(link(0, "aten::mm"),)])
        for seed in (1, 2)
    ]
    assert len(compare_locks(*locks)) > LINES
    assert 0 < compared.pairs <= 1_000_000


def test_paths_of_a_lock_are_compared_in_bounded_work(
    compared: type[Compared], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0

    def similarity(one: Chain, other: Chain) -> float:
        nonlocal looked
        looked += 1
        return 0.0

    monkeypatch.setattr(lock_difference, "similarity", similarity)
    locks = [
        lock(["train.py: a"], lambda _, n=n: [(link(0, "op"), link(1, f"{n}.{i}")) for i in range(2_000)])
        for n in (1, 2)
    ]
    (change,) = compare_locks(*locks)
    assert len(change.paths) == 2_000
    assert 0 < looked <= 1_000_000 // (2 * 200)


def test_files_are_not_told_by_lines_that_all_have() -> None:
    before = {f"old/{number}.py": {"import torch", f"own = {number}"} for number in range(100)}
    after = {f"new/{number}.py": {"import torch", f"own = {number}"} for number in range(100)}
    assert renamed_files(before, after) == {f"new/{number}.py": f"old/{number}.py" for number in range(100)}
    same = [{f"{where}/{number}.py": {"import torch"} for number in range(2_000)} for where in ("old", "new")]
    assert renamed_files(*same) == {}
