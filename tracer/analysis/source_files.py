"""Texts of source lines that a trace lacks, out of files of this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tracer.base.boundary import inside, open_regular
from tracer.base.numerals import number_of

_LONGEST_FILE = 16 << 20
_LONGEST = 64 << 20
"""Of all files together"""
_WITHHELD = (
    "source lines are shown without their text: the trace has none, and you did not record it on this "
    "machine since its start, in the folder of those files; to read them from your copy: --source-from DIR"
)


@dataclass
class _Asked:
    """`folder`: of --source-from. `withheld`: a text was looked for, and its file here was not read."""

    folder: str | None = None
    withheld: bool = False


_asked = _Asked()


@contextmanager
def read_from(folder: str | None, say: Callable[[str], None]) -> Iterator[None]:
    """Texts that a trace lacks are read from files in this folder; None: from the files of own traces.

    If some were withheld, it says so in one line at the end.
    """
    global _asked
    before, _asked = _asked, _Asked(folder)
    try:
        yield
    finally:
        if _asked.withheld and sys.exc_info()[0] is None:  # a command that failed has said why
            say(_WITHHELD)
        _asked = before


class SourceFiles:
    """Lines of Python files here: of own traces those not written since, or those in the folder asked for.

    A trace may be somebody else's and name any file, so no others are opened.
    """

    def __init__(self, cwd: str | None, began: float | None, *, below: tuple[str, ...]) -> None:
        """`began`: when the recording did, if the trace has no texts. `below`: see SourceLines."""
        self._cwd, self._began, self._folders = cwd, began, below
        self._lines: dict[str, list[str]] = {}
        self._by_file: dict[str, list[str]] = {}
        """Real path -> the same lists: a trace may name one file in a thousand spellings"""
        self._left = _LONGEST

    def get(self, source: str) -> str:
        file, _, text = source.rpartition(":")
        number = number_of(text)
        if not file.endswith(".py") or number is None:
            return ""
        if file not in self._lines:
            self._lines[file] = self._read(file)
        lines = self._lines[file]
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""

    def _read(self, file: str) -> list[str]:
        try:
            if _asked.folder is not None:
                return self._once(inside(_asked.folder, self._below(file, _asked.folder)))
            if self._began is not None and (folder := self._own_folder(file)):
                return self._once(inside(folder, file), self._began)
        except (OSError, UnicodeError, ValueError):
            return []
        _asked.withheld |= self._began is not None and os.path.isfile(file)
        return []

    def _once(self, path: str, began: float | None = None) -> list[str]:
        if path not in self._by_file:
            text = _text(path, began, min(_LONGEST_FILE, self._left))
            self._left -= len(text)
            self._by_file[path] = text.split("\n")
        return self._by_file[path]

    def _own_folder(self, file: str) -> str:
        """The one that has the file; "": none."""
        return next((folder for folder in self._folders if file.startswith(f"{folder.rstrip('/')}/")), "")

    def _below(self, file: str, folder: str) -> str:
        """The path of the file in a copy of the folder in which the script ran, or of that folder itself."""
        for root in (self._cwd, os.path.realpath(folder)):
            if root and file.startswith(f"{root.rstrip('/')}/"):
                return file[len(root.rstrip("/")) + 1 :]
        return file


def _text(path: str, began: float | None, longest: int) -> str:
    """ "" if the file is longer, or was written since."""
    with open(open_regular(path), encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        if status.st_size > longest or (began is not None and status.st_mtime > began):
            return ""
        return file.read(longest)
