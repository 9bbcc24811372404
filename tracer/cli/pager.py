"""A pager for what is longer than the screen: `less`, or what TRACER_PAGER or PAGER names; empty: none."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TextIO

_ESCAPES = re.compile(r"\x1b\[[\d;]*m")
_LESS = "RFX"
"""Colours as they are; no pager for one screen; the text stays on the screen (as git has it)"""
_allowed = True


def allow(allowed: bool) -> None:
    """Whether this command may start a pager: not with `tracer --no-pager`."""
    global _allowed
    _allowed = allowed


@contextmanager
def paged() -> Iterator[None]:
    """What the block prints goes through the pager, if it is longer than the screen of a terminal.

    A pager that is left early ends the block quietly.
    """
    words = _words()
    if not words:
        yield
        return
    screen = _Screen(sys.stdout, words)
    try:
        with redirect_stdout(screen):
            yield
    except BrokenPipeError:
        if screen.pager is None:
            raise
    finally:
        screen.finish()


def _words() -> list[str]:
    """The command line of the pager; empty if nobody sits before it, or it is not installed."""
    if not _allowed or os.environ.get("TERM", "dumb") == "dumb":
        return []
    if not all(stream and stream.isatty() for stream in (sys.stdin, sys.stdout)):
        return []
    with suppress(ValueError):  # a quotation mark alone
        words = shlex.split(os.environ.get("TRACER_PAGER", os.environ.get("PAGER", "less")))
        return words if words and shutil.which(words[0]) else []
    return []


class _Screen(io.TextIOBase):
    """Stdout that is a terminal: holds what is printed until it is more than a screen."""

    def __init__(self, terminal: TextIO, words: list[str]) -> None:
        self.pager: subprocess.Popen[str] | None = None
        self._terminal, self._words = terminal, words
        self._size = shutil.get_terminal_size()
        self._held: list[str] = []
        self._lines = 0

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._terminal.encoding

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._terminal.fileno()

    def write(self, text: str) -> int:
        if self.pager is None:
            self._held.append(text)
            self._lines += _height(text, self._size.columns)
            if self._lines < self._size.lines:
                return len(text)
            self.pager = self._started()
            text, self._held = "".join(self._held), []
        assert self.pager.stdin is not None
        self.pager.stdin.write(text)
        return len(text)

    def _started(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._words,
            stdin=subprocess.PIPE,
            encoding=self.encoding,
            errors="replace",
            env={"LESS": _LESS, **os.environ},
        )

    def finish(self) -> None:
        """Prints what fits the screen, or waits until the pager is left; Ctrl-C is then the pager's."""
        if self.pager is None:
            self._terminal.write("".join(self._held))
            return
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with suppress(BrokenPipeError):
                self.pager.communicate()
            self.pager.wait()
        finally:
            signal.signal(signal.SIGINT, before)


def _height(text: str, columns: int) -> int:
    """The lines that it takes on a terminal of that width."""
    longer = (max(len(line) - 1, 0) // columns for line in _ESCAPES.sub("", text).split("\n"))
    return text.count("\n") + sum(longer)
