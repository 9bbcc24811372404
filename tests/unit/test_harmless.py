"""What a command prints of a trace, and what a shell is offered: nothing that a terminal or a shell obeys."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from tracer.cli.common import writing
from tracer.cli.completion import traces
from tracer.cli.harmless import Harmless


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_whatever_a_command_prints_has_no_control_character(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    stream.fileno = lambda: 1  # type: ignore[method-assign]
    with writing():
        print("a.py:1 -> a\x1b[2J\x1b]0;title\x07\x9b\u202e", "\x1b[31mred\x1b[0m")
    assert stream.getvalue() == ("a.py:1 -> a\\x1b[2J\\x1b]0;title\\x07\\x9b\\u202e \\x1b[31mred\\x1b[0m\n")


def test_colours_pass_to_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = Terminal()
    print("\x1b[31mred\x1b[0m\x1b[2J", file=Harmless(stream))
    assert stream.getvalue() == "\x1b[31mred\x1b[0m\\x1b[2J\n"


def test_a_shell_is_offered_plain_names_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """zsh evaluates what it is offered, and bash puts it into the line as it is."""
    monkeypatch.chdir(tmp_path)
    for name in (
        "run.trace",
        "a$(touch x).trace",
        "b`touch x`.trace",
        "c\\$(x).trace",
        "d e.trace",
        "é.trace",
    ):
        Path(name).touch()
    for name in ("plain", "x;y", "$HOME"):
        Path(name).mkdir()
    assert sorted(traces("")) == ["plain/", "run.trace", "é.trace"]
    assert traces("a") == []
