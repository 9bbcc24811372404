"""Which pager: TRACER_PAGER, else PAGER, else less."""

from __future__ import annotations

import io
import shutil
import sys

import pytest

from tracer.cli import pager


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: name if name in ("less", "most") else None)
    for name in ("PAGER", "TRACER_PAGER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def chosen(**streams: io.StringIO | None) -> list[str]:
    with pytest.MonkeyPatch.context() as here:  # pytest gives each phase of a test its own stdout
        for name in ("stdin", "stdout"):
            here.setattr(sys, name, streams.get(name, Terminal()))
        return pager._words()


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, ["less"]),
        ({"PAGER": "most -s"}, ["most", "-s"]),
        ({"PAGER": "less", "TRACER_PAGER": "most"}, ["most"]),
        ({"PAGER": "less", "TRACER_PAGER": ""}, []),
        ({"PAGER": ""}, []),
        ({"PAGER": "not_installed -x"}, []),
        ({"PAGER": "less 'open"}, []),
        ({"TERM": "dumb"}, []),
    ],
)
def test_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], words: list[str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert chosen() == words


@pytest.mark.parametrize("stream", ["stdin", "stdout"])
def test_only_between_a_screen_and_a_keyboard(stream: str) -> None:
    assert [chosen(**{stream: other}) for other in (io.StringIO(), None)] == [[], []]


def test_no_pager_holds_for_one_command() -> None:
    pager.allow(False)
    assert chosen() == []
    pager.allow(True)
    assert chosen() == ["less"]


def test_an_error_of_the_terminal_is_not_hidden() -> None:
    """A closed pipe is the pager's only where there is one."""
    with pytest.raises(BrokenPipeError), pager.paged():
        raise BrokenPipeError


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\n" * 20, 20),
        (("x" * 80 + "\n") * 3, 3),
        ("x" * 81 + "\n", 2),
        ("\x1b[1m" * 90 + "x\n", 1),
        ("x" * 240, 2),
    ],
)
def test_how_many_lines_of_the_screen_a_text_takes(text: str, lines: int) -> None:
    assert pager._height(text, 80) == lines
