"""Which tests `make test-room` runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "cmake" / "checks"))

import room_tests  # noqa: E402


def names(room: str) -> list[str]:
    return [path.relative_to(room_tests.TESTS).as_posix() for path in room_tests.tests_of(room)]


def test_a_room_has_the_tests_that_import_it_and_unit_tests_come_first() -> None:
    report = names("report")
    assert {"unit/test_report.py", "unit/test_report_sections.py", "unit/test_tree_lines.py"} & set(report)
    assert "unit/test_processor.py" not in report
    folders = [name.split("/")[0] for name in report]
    assert folders == sorted(folders, key=room_tests.ORDER.index)


def test_a_builder_brings_its_rooms() -> None:
    assert "unit/test_flat.py" in names("trace"), "frames.py imports tracer.trace"


def test_a_room_of_csrc_has_the_tests_that_name_its_files() -> None:
    assert any("csrc" in name or "format" in name for name in names("trace"))
    assert names("dispatch")


def test_changed_files_have_the_tests_of_their_rooms() -> None:
    changed = [
        "tracer/report/cells.py",
        "tests/cpu/test_ops.py",
        "README.md",
        "tests/cpu/test_that_is_gone.py",
    ]
    found = room_tests.tests_of_changes(changed)
    assert set(found) == {*room_tests.tests_of("report"), room_tests.TESTS / "cpu" / "test_ops.py"}
    assert found.index(room_tests.TESTS / "unit" / "test_report.py") < found.index(found[-1])


def test_a_changed_helper_has_the_tests_that_import_it() -> None:
    found = room_tests.tests_of_changes(["tests/unit/growing.py"])
    assert found
    assert all("growing" in path.read_text() for path in found)


@pytest.mark.parametrize("arguments", [[], ["nowhere"]])
def test_an_unknown_room_is_answered_with_the_rooms(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["room_tests.py", *arguments])
    assert room_tests.main() == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "make test-room ROOM=" in said.err
    assert "report" in said.err


def test_each_room_has_tests() -> None:
    assert [room for room in room_tests.rooms() if not room_tests.tests_of(room)] == []
