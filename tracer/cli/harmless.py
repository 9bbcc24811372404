"""A stream for a terminal that obeys nothing of what is printed."""

from __future__ import annotations

import io
import re
from functools import cached_property
from typing import Any, TextIO

from tracer.base.visible import visible

_COLOURS = re.compile(r"(\x1b\[[\d;]*m)")


class Harmless(io.TextIOBase):
    """Writes texts with escapes for all control characters but ends of lines; colours pass to a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self._stream.errors

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def close(self) -> None:
        """The stream is its owner's: a flush that fails here would be lost."""

    def flush(self) -> None:
        self._stream.flush()

    def write(self, text: str) -> int:
        parts = _COLOURS.split(text) if "\x1b" in text and self._is_coloured else [text]
        self._stream.write("".join(part if n % 2 else _lines(part) for n, part in enumerate(parts)))
        return len(text)

    @cached_property
    def _is_coloured(self) -> bool:
        """Whether rich writes colours here; else none are its own."""
        from rich.console import Console

        return Console(file=self).is_terminal  # type: ignore[arg-type]


def _lines(text: str) -> str:
    """Most texts hold nothing to escape."""
    return text if text.isprintable() else "\n".join(map(visible, text.split("\n")))
