"""What a command prints of a trace, and what a shell is offered: nothing that a terminal or a shell obeys."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from tracer.base import say
from tracer.cli.common import writing
from tracer.cli.completion import traces
from tracer.cli.harmless import Harmless
from tracer.recording.summary import Summary


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


def test_whatever_a_recording_prints_has_no_control_character(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An error of torch that is imported twice has any bytes of memory in it."""
    with open(tmp_path / "stderr", "w+", encoding="utf-8") as stream:
        os.set_inheritable(stream.fileno(), True)
        monkeypatch.setattr(sys, "__stderr__", stream)
        say.say_not_ended(OSError("a\x01\n\x1b[2Jb\udcff \u202ec é"))
        say.say("a name 'x' and C:\\file")
    names = "a\x1b[31m.trace"
    dropped = ("no kernel of \x1b[2J",)
    text = Summary(names, names, 1, 2, 1, 1, 0, 100, 0, 0, None, dropped, ("override \x9b",)).text()
    assert (tmp_path / "stderr").read_text() == (
        "tracer: tracer could not end the recording properly: a\\x01\\n\\x1b[2Jb\\udcff \\u202ec é\n"
        "tracer: a name 'x' and C:\\file\n"
    )
    assert text.startswith("tracer: a\\x1b[31m.trace\n")
    assert "override \\x9b" in text
    assert "of \\x1b[2J" in text
    assert all(line.isprintable() for line in text.split("\n"))


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
