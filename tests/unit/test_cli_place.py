"""Where commands write: no device, no pipe and no standard stream is replaced, also with --force."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import typer

from tracer.cli.output import check_place


def refusal(output: Path, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(typer.Exit) as ended:
        check_place(output, force=True)
    assert ended.value.exit_code == 2
    return capsys.readouterr().err


def test_what_is_not_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    for output in (Path("/dev/null"), tmp_path / "pipe", tmp_path / "link"):
        expected = f"tracer: {output} is not a regular file; give another one\n"
        assert refusal(output, capsys) == expected


@pytest.mark.parametrize(("number", "name"), list(enumerate(("stdin", "stdout", "stderr"))))
def test_a_stream_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int, name: str
) -> None:
    before = os.dup(number)
    try:
        with (tmp_path / "out.md").open("w+") as file:
            os.dup2(file.fileno(), number)
        for output in (tmp_path / "out.md", Path(f"/dev/{name}")):
            assert refusal(output, capsys) == f"tracer: {output} is {name}; give another file\n"
    finally:
        os.dup2(before, number)
        os.close(before)


def test_a_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "old.md").write_text("old")
    check_place(tmp_path / "old.md", force=True)
    check_place(tmp_path / "new.md", force=False)
