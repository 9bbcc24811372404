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
    last = "  next: {0} tree run.trace   or   {0} report run.trace\n"
    assert summary.text().endswith(last.format("/home/me/venv/bin/python -m tracer"))
    (tmp_path / "tracer").touch(0o755)
    assert summary.text().endswith(last.format("tracer"))
