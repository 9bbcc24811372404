"""Texts of source lines come from files here only for own traces, or out of the folder that is given."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import polars as _  # noqa: F401  it looks for torch, which a unit test may not
import pytest
from one_op import one_op
from typer.testing import CliRunner, Result

from tracer.analysis import source_files
from tracer.analysis.source_files import SourceFiles, read_from
from tracer.base import own
from tracer.cli.app import app

SECRET = "SECRET_KEY = 'hunter2'"
KILLED = {"state": 0, "attached": 2}
COMMANDS = {
    "tree": ["tree"],
    "by line": ["top", "--by", "source"],
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
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
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


def own_facts(folder: Path, **more: Any) -> dict[str, Any]:
    """Facts of a recording in this folder, with the mark of this user."""
    facts = {"cwd": str(folder), "argv": ["train.py"], "started_at": "2026-01-02T03:04:05+00:00", **more}
    return facts | {"own": own.mark(facts)}


def shows(folder: Path, file: Path, facts: dict[str, Any]) -> bool:
    trace_of(folder, file, **facts)
    run, written = read("tree")
    assert (WITHHELD in run.stderr) != (SECRET in written)
    return SECRET in written


def test_an_own_trace_has_them_also_copied_and_packed(folder: Path) -> None:
    file = victim(folder)
    assert shows(folder, file, own_facts(folder))
    Path("copy.trace").write_bytes(Path("run.trace").read_bytes())
    assert CliRunner().invoke(app, ["pack", "run.trace", "-o", "packed.xz"]).exit_code == 0
    for name in ("copy.trace", "packed.xz"):
        assert SECRET in CliRunner().invoke(app, ["tree", name]).stdout
    assert shows(folder, file, own_facts(Path("/elsewhere"), argv=[str(folder / "train.py")]))


@pytest.mark.parametrize(
    "strange", ["none", "empty", "made up", "other folder", "other time", "other script"]
)
def test_a_trace_that_another_wrote_has_none(folder: Path, strange: str) -> None:
    """Its file is the reader's, as each file that was downloaded, and it names this machine."""
    file = victim(folder)
    facts = own_facts(folder)
    elsewhere = own_facts(folder / "elsewhere")
    changed = {
        "none": {"own": None},
        "empty": {"own": ""},
        "made up": {"own": "f" * 32},
        "other folder": elsewhere | {"cwd": str(folder)},
        "other time": {"started_at": "2036-01-02T03:04:05+00:00"},
        "other script": {"argv": [f"{folder}/../x.py"]},
    }
    assert not shows(folder, file, facts | changed[strange])


def test_of_an_own_trace_only_files_of_its_folders_are_shown(folder: Path) -> None:
    """Somebody to whom it was given could copy its mark into another."""
    (folder / "project").mkdir()
    facts = own_facts(folder / "project")
    assert shows(folder, victim(folder, "project/settings.py"), facts)
    file = victim(folder)
    assert not shows(folder, file, facts)
    for name in ("project/../settings.py", "project/link.py"):
        if name.endswith("link.py"):
            (folder / name).symlink_to(file)
        trace_of(folder, f"{folder}/{name}", **facts)
        assert "hunter2" not in read("tree")[1]


def test_without_a_safe_key_no_trace_is_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, facts = victim(folder), own_facts(folder)
    key = folder / "cache" / "tracer" / "own.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert shows(folder, file, facts)
    key.chmod(0o640)
    assert not shows(folder, file, facts), "others of the group can read it"
    key.chmod(0o600)
    with monkeypatch.context() as changed:
        changed.setattr(os, "geteuid", lambda: key.stat().st_uid + 1)
        assert not shows(folder, file, facts), "it is another user's"
    key.rename(folder / "moved")
    key.symlink_to(folder / "moved")
    assert not shows(folder, file, facts)
    key.unlink()
    assert not shows(folder, file, facts)
    assert not key.exists(), "a reader makes none"


def test_without_a_folder_for_the_key_there_is_no_mark(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    assert own_facts(folder)["own"] == ""
    assert not shows(folder, victim(folder), own_facts(folder))


def test_on_a_machine_without_a_name_no_trace_is_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = own_facts(folder)
    for name in ("another", ""):
        monkeypatch.setattr(own, "this_machine", lambda name=name: name)
        assert not shows(folder, victim(folder), facts)
        assert not shows(folder, victim(folder), facts | {"own": ""})


@pytest.mark.parametrize("is_own", [True, False])
def test_what_is_no_regular_file_is_not_opened(folder: Path, is_own: bool) -> None:
    """A FIFO would block for ever."""
    os.mkfifo(folder / "fifo.py")
    os.symlink("/dev/zero", folder / "device.py")
    (folder / "folder.py").mkdir()
    (folder / "large.py").write_text(f"\n{SECRET}\n")
    os.truncate(folder / "large.py", (16 << 20) + 1)
    for file in folder.glob("*.py"):
        trace_of(folder, file, **(own_facts(folder) if is_own else {"cwd": str(folder)}))
        run, written = read("tree", *(() if is_own else ("--source-from", ".")))
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


def test_a_file_of_many_names_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("pass\n" * 100_000)
    files = SourceFiles(None, None, below=())
    with read_from(str(tmp_path), print):
        tracemalloc.start()
        try:
            texts = [files.get(f"{tmp_path}/{'./' * n}x.py:7") for n in range(50)]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert texts == ["pass"] * 50
    assert peak < 20 << 20


def test_all_files_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "_LONGEST", 9)
    for name in "abc":
        (tmp_path / f"{name}.py").write_text("pass")
    files = SourceFiles(None, None, below=())
    with read_from(str(tmp_path), print):
        assert [files.get(f"{name}.py:1") for name in "abc"] == ["pass", "pass", ""]
