"""Texts of source lines come from files here only for own traces, or out of the folder that is given."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from one_op import one_op
from typer.testing import CliRunner, Result

from tracer.analysis import source_lines
from tracer.base.machine import this_machine
from tracer.cli.app import app

SECRET = "SECRET_KEY = 'hunter2'"
KILLED = {"state": 0, "attached": 2}
COMMANDS = {
    "tree": ["tree"],
    "by line": ["tree", "--flat", "--by", "source"],
    "report": ["report"],
    "html": ["report", "-o", "out.html", "--force"],
    "diff": ["diff", "again.trace"],
    "lock": ["lock", "-o", "out.lock", "--force"],
    "speedscope": ["export", "--to", "speedscope", "--by", "line", "-o", "out.json", "--force"],
}
WITHHELD = "tracer: source lines are shown without their text: "


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def victim(folder: Path, name: str = "settings.py") -> Path:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"# mine\n{SECRET}\n")
    os.utime(file, (0, 0))
    return file


def trace_of(folder: Path, file: Path | str, **environment: Any) -> Path:
    """A killed recording, so its trace has no texts of lines, that names a file."""
    for name in ("again.trace", "run.trace"):
        one_op(folder / name, file=str(file), line=2, header=KILLED, environment=environment)
    return folder / "run.trace"


def read(command: str, *more: str) -> tuple[Result, str]:
    """The run, and all that it wrote."""
    words = COMMANDS[command]
    run = CliRunner().invoke(app, [words[0], "run.trace", *words[1:], *more])
    return run, run.stdout + "".join(path.read_text() for path in Path().glob("out.*"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_trace_of_a_stranger_shows_no_file_of_the_reader(folder: Path, command: str) -> None:
    trace_of(folder, victim(folder))
    run, written = read(command)
    assert "hunter2" not in written
    assert run.stderr.count(WITHHELD) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_the_folder_that_is_given_is_read(folder: Path, command: str) -> None:
    victim(folder, "copy/settings.py")
    trace_of(folder, "/home/m/settings.py")
    run, written = read(command, "--source-from", "copy")
    assert "hunter2" in written
    assert WITHHELD not in run.stderr


def test_an_own_trace_has_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = victim(folder)
    own = {"machine": this_machine(), "cwd": str(folder)}
    trace_of(folder, file, **own)
    run, written = read("tree")
    assert SECRET in written
    assert WITHHELD not in run.stderr
    for strange in ({}, {"machine": ""}, {"machine": "f" * 32}):
        trace_of(folder, file, **own | {"machine": None} | strange)
        assert "hunter2" not in read("tree")[1]
    trace_of(folder, file, **own)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(file).st_uid + 1)
    assert "hunter2" not in read("tree")[1], "the file is another user's"


def test_without_a_name_of_the_machine_no_trace_is_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_lines, "this_machine", lambda: "")
    trace_of(folder, victim(folder), machine="")
    assert "hunter2" not in read("tree")[1]


@pytest.mark.parametrize("own", [True, False])
def test_what_is_no_regular_file_is_not_opened(folder: Path, own: bool) -> None:
    """A FIFO would block for ever."""
    os.mkfifo(folder / "fifo.py")
    os.symlink("/dev/zero", folder / "device.py")
    (folder / "folder.py").mkdir()
    (folder / "large.py").write_text(f"\n{SECRET}\n")
    os.truncate(folder / "large.py", (16 << 20) + 1)
    for file in folder.glob("*.py"):
        trace_of(folder, file, cwd=str(folder), **({"machine": this_machine()} if own else {}))
        run, written = read("tree", *(() if own else ("--source-from", ".")))
        assert (run.exit_code, WITHHELD in run.stderr, "hunter2" in written) == (0, False, False), file


def test_nothing_outside_the_folder_is_read(folder: Path) -> None:
    file = victim(folder)
    (folder / "copy").mkdir()
    (folder / "copy" / "link.py").symlink_to(file)
    (folder / "copy" / "up").symlink_to(folder)
    (folder / "copy-not" / "x").mkdir(parents=True)
    victim(folder, "copy-not/settings.py")
    for name in (
        *(file, "../settings.py", "/home/m/../settings.py", "/home/m/link.py", "/home/m/up/settings.py"),
        *(
            folder / "copy-not/settings.py",
            "/home/m/../copy-not/settings.py",
            "/home/m/no\0.py",
            "settings.txt",
        ),
    ):
        trace_of(folder, str(name))
        run, written = read("tree", "--source-from", "copy")
        assert (run.exit_code, "hunter2" in written) == (0, False), name
    assert CliRunner().invoke(app, ["tree", "run.trace", "--source-from", "nowhere"]).exit_code == 2
