"""How Python lines are named, and where their texts come from."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import polars as pl
import pytest
from frames import FakeTrace, TraceBuilder, hop

from tracer.analysis.source_lines import SourceLines
from tracer.base.own import mark
from tracer.trace.tables import schema

FILE = "/home/user/project/train.py"


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def trace(*rows: tuple[str, str, str | None], **environment: object) -> FakeTrace:
    made = TraceBuilder().calls(hop("aten::a", "CPU")).trace()
    made.environment |= environment
    made.environment["own"] = mark(made.environment)
    return replace(
        made, owner=os.geteuid(), source_lines=pl.DataFrame(list(rows), schema.SOURCE_LINES, orient="row")
    )


def test_lines_under_the_script_folder_and_in_packages_are_short() -> None:
    assert SourceLines("/home/user/project").name("/home/user/project/a/train.py:4") == "a/train.py:4"
    assert SourceLines("/home").name("/x/lib/site-packages/foo/a.py:4") == "foo/a.py:4"
    assert SourceLines("/home/user").name("/home/users/a.py:4") == "/home/users/a.py:4"
    assert SourceLines().name("/home/a.py:4") == "/home/a.py:4"


def test_texts_and_cells_are_those_of_the_trace() -> None:
    cell = "/tmp/ipykernel_24922/2547611662.py"
    lines = SourceLines.of(trace((f"{FILE}:41", "y = net(x)", None), (f"{cell}:3", "a @ b", "In[2]")))
    assert (lines.name(f"{FILE}:41"), lines.text(f"{FILE}:41")) == ("train.py:41", "y = net(x)")
    assert (lines.name(f"{cell}:3"), lines.text(f"{cell}:3")) == ("In[2]:3", "a @ b")
    assert lines.frame(f"{cell}:5 forward") == "In[2]:5 forward"
    assert lines.text(f"{FILE}:42") == "" == lines.text(None)


def test_of_a_killed_process_the_text_is_that_of_an_older_file(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import torch\n\n    loss.backward()\n")
    began = datetime(2026, 1, 2, tzinfo=timezone.utc)
    lines = SourceLines.of(trace(started_at=began.isoformat(), cwd=str(tmp_path)))
    os.utime(file, (0, began.timestamp() - 1))
    assert lines.text(f"{file}:3") == "loss.backward()"
    assert lines.text(f"{file}:4") == ""


def test_a_file_that_was_written_since_has_another_text(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("changed\n")
    began = datetime(2026, 1, 2, tzinfo=timezone.utc)
    os.utime(file, (0, began.timestamp() + 1))
    assert SourceLines.of(trace(started_at=began.isoformat(), cwd=str(tmp_path))).text(f"{file}:1") == ""


def test_what_the_recording_did_not_know_is_not_looked_for(tmp_path: Path) -> None:
    """Neither a line that a whole recording left out, nor a file that is no Python file."""
    secret, script = tmp_path / "secret.txt", tmp_path / "a.py"
    for file in (secret, script):
        file.write_text("private\n")
        os.utime(file, (0, 0))
    killed = SourceLines.of(trace(started_at="2026-01-02T03:04:05+00:00", cwd=str(tmp_path)))
    assert (killed.text(f"{secret}:1"), killed.text(f"{script}:1")) == ("", "private")
    assert SourceLines.of(trace((f"{FILE}:41", "y", None))).text(f"{script}:1") == ""
    for started in (None, "", "yesterday"):
        assert SourceLines.of(trace(started_at=started, cwd=str(tmp_path))).text(f"{script}:1") == ""
