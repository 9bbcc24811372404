"""The lines that end a recording."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tracer.recording.summary import Summary


def test_the_next_command_runs_in_the_shell_that_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make demo` and `.venv/bin/tracer record` activate no environment."""
    summary = Summary("run.trace", "run.trace", 1, 2, 1, 1, 0, 100, 0, 0, None, ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/home/me/venv/bin/python")
    python = "/home/me/venv/bin/python -m tracer"
    assert summary.text().endswith(f"\n  next: {python} tree run.trace\n    or: {python} report run.trace\n")
    (tmp_path / "tracer").touch(0o755)
    assert summary.text().endswith("\n  next: tracer tree run.trace   or   tracer report run.trace\n")


def test_it_needs_no_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """os.get_exec_path() imports them, and an attached program may have taken them away."""
    monkeypatch.setitem(sys.modules, "warnings", None)
    assert "next: " in Summary("run.trace", "run.trace", 1, 2, 1, 1, 0, 100, 0, 0, None, ()).text()
