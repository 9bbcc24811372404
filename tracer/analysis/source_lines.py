"""How Python lines are shown: their names, and their texts."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from tracer.analysis.source_files import SourceFiles
from tracer.base.own import is_own

if TYPE_CHECKING:
    from tracer.trace import Trace


NO_LINE = "no Python line"
"""In place of a line's name, if no Python line is known"""


@dataclass(frozen=True)
class SourceLines:
    """Names and texts of lines.

    folder  where the script ran: files below it are named relative to it
    texts   the text of each line that the trace has
    cells   the name of each file that is a cell of a notebook
    began   when the recording began (seconds since 1970), if the trace has no texts: its process was
            killed. Then a Python file on this machine that is older has them
    below   folders whose files are read then: those of the recording, if it is this user's on this machine
    """

    folder: str | None = None
    texts: dict[str, str] = field(default_factory=dict)
    cells: dict[str, str] = field(default_factory=dict)
    began: float | None = None
    below: tuple[str, ...] = ()

    @classmethod
    def of(cls, trace: Trace) -> SourceLines:
        table = trace.source_lines
        cells = table.filter(pl.col("cell").is_not_null())
        return cls(
            folder=trace.environment.get("cwd"),
            texts=dict(table.select("source", "text").iter_rows()),
            cells={source.rpartition(":")[0]: cell for source, cell in cells.select("source", "cell").rows()},
            began=None if len(table) else _began(trace.environment),
            below=_own_folders(trace),
        )

    def name(self, source: str) -> str:
        """`train.py:7`, `In[2]:3`: relative to where the script ran, or to the installed packages."""
        file, colon, number = source.rpartition(":")
        if file in self.cells:
            return f"{self.cells[file]}{colon}{number}"
        folder = f"{self.folder.rstrip('/')}/" if self.folder else ""
        if folder and source.startswith(folder):
            return source[len(folder) :]
        return source.rpartition("/site-packages/")[2]

    def frame(self, frame: str) -> str:
        """`train.py:41 train` of a frame of a stack."""
        line, _, function = frame.partition(" ")
        return f"{self.name(line)} {function}".rstrip()

    def text(self, source: str | None) -> str:
        """What the line says; "" if that is unknown."""
        if not source:
            return ""
        return self.texts.get(source) or self._on_this_machine.get(source)

    @cached_property
    def _on_this_machine(self) -> SourceFiles:
        return SourceFiles(self.folder, self.began, below=self.below)


NO_SOURCES = SourceLines()


def _own_folders(trace: Trace) -> tuple[str, ...]:
    """Where it ran, and where its script is. None of a trace that this user did not record here."""
    cwd, argv = trace.environment.get("cwd"), trace.environment.get("argv") or [""]
    if trace.owner != os.geteuid() or not cwd or not is_own(trace.environment):
        return ()
    return cwd, os.path.dirname(os.path.join(cwd, argv[0]))


def _began(environment: dict[str, Any]) -> float | None:
    try:
        return datetime.fromisoformat(str(environment.get("started_at"))).timestamp()
    except ValueError:
        return None
