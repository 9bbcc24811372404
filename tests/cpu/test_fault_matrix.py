"""`make faults` counts what it tries, and docs/reliability.md says what it promises."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "faults"))

import run
from case import Case
from rows import ROWS, Row, SkippedError

ROOT = Path(__file__).resolve().parents[2]


def kept(case: Case, variant: str) -> None:
    assert case.folder.is_dir()


def broken(case: Case, variant: str) -> None:
    assert variant != "b", "the script's file was changed"


def impossible(case: Case, variant: str) -> None:
    raise SkippedError("needs root")


def row_of(trial: Callable[[Case, str], None]) -> Row:
    return Row(trial.__name__, "It holds.", trial, {"a": "a", "b": "b"}, times=2)


def tried(folder: Path, *rows: Row) -> run.Matrix:
    matrix = run.Matrix(rows, folder)
    matrix.run(run.rounds(rows, 0, random.Random(1)), jobs=2)
    return matrix


def test_a_round_tries_each_variant_and_counts(tmp_path: Path) -> None:
    matrix = tried(tmp_path, row_of(kept), row_of(broken))
    counts = {name: (tally.tried, tally.survived) for name, tally in matrix.tallies.items()}
    assert counts == {"kept": (4, 4), "broken": (4, 2)}
    assert all(
        "broken, b: AssertionError: the script's file was changed" in line
        for line in matrix.tallies["broken"].lost
    )
    assert len(list(tmp_path.iterdir())) == 2, "the folders of what was lost stay"
    assert run.table(matrix.tallies).splitlines()[-1].split() == ["all", "8", "6", "2"]


def test_what_cannot_be_tried_is_said_and_not_counted(tmp_path: Path) -> None:
    matrix = tried(tmp_path, row_of(impossible))
    assert matrix.tallies["impossible"].tried == 0
    assert run.table(matrix.tallies).endswith("impossible: not tried: needs root")


@pytest.mark.parametrize(("trial", "status"), [(kept, 0), (broken, 1)])
def test_the_exit_status_says_whether_one_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trial: Callable[[Case, str], None], status: int
) -> None:
    monkeypatch.setattr(run, "ROWS", [row_of(trial)])
    assert run.main(["--minutes", "0", "--jobs", "1", "--folder", str(tmp_path / "faults")]) == status


def test_the_page_has_each_row() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    assert [row.name for row in ROWS if f"| {row.name} | {row.promise} |" not in page] == []


def test_each_row_has_a_name_of_its_own() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(row.variants for row in ROWS)
