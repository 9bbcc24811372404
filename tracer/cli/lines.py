"""Lines of trees and tables: coloured and cut to the width on a terminal, plain and whole in a pipe."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console
    from rich.text import Text

    from tracer.analysis.source_lines import SourceLines
    from tracer.report.tree import Line

_STYLES = {
    "thread": "bold magenta",
    "group": "bold blue",
    "cost": "bright_black",
    "text": "italic",
    "id": "bright_black",
    "indent": "bright_black",
    "arrow": "bright_black",
    "count": "yellow",
    "op": "bold",
    "key": "cyan",
    "kernel": "green",
    "inputs": "bright_black",
    "module": "blue",
    "range": "blue",
    "time": "yellow",
    "override": "bold magenta",
    "mark": "bold red",
    "link": "bold magenta",
    "device": "bold green",
    "plain": "",
    "ok": "green",
    "note": "yellow",
    "problem": "bold red",
}

_LEAST_OF_A_TEXT = 16
"""Characters of a source text, which is cut"""
_LEAST_OF_A_NAME = 24
"""Characters of another last column, which is wrapped"""


def terminal() -> tuple[Console, int | None]:
    """The console on stdout, and the width that lines are cut to: None in a pipe, also with FORCE_COLOR."""
    from rich.console import Console

    console = Console(highlight=False)
    is_wide = not console.is_terminal or not (sys.stdout.isatty() or "COLUMNS" in os.environ)
    return console, None if is_wide else console.width


def print_line(console: Console, line: Line) -> None:
    if not console.is_terminal:
        print("".join(text for _, text in line))
        return
    console.print(styled(line), soft_wrap=True)


def print_table(
    table: pl.DataFrame,
    by: str,
    sort: str,
    limit: int,
    sources: SourceLines,
    whole_ns: int | None = None,
) -> None:
    """A table of analysis.flat, cut to the width of a terminal."""
    from tracer.report.flat import flat_lines
    from tracer.report.text import count

    console, width = terminal()
    lines = flat_lines(table, by, sort=sort, whole_ns=whole_ns, limit=limit, width=width, sources=sources)
    for line in lines:
        print_line(console, line)
    if limit and len(table) > limit:
        print(f"Shown: {limit:,} of {count(len(table), 'row')}. More: --limit 0.")


def print_cells(titles: list[str], rows: list[list[str]], *, as_given: bool = False) -> None:
    """A table, numbers first unless its columns stay as given.

    Columns whose title ends in a colon, which is not shown, are on the right, others on the left. On a
    terminal a last column is wrapped, or cut if it is the `text` of a source line. If the columns before it
    leave it no room, the table is laid out as those of reports, which lose nothing.
    """
    from tracer.report.cells import numbers_first, table
    from tracer.report.fitted_table import fitted_table
    from tracer.report.tree import fit

    if not as_given:
        titles, rows = numbers_first(titles, rows)
    console, width = terminal()
    names = [title.rstrip(":") for title in titles]
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    room = (width or sys.maxsize) - sum(widths[:-1]) - 2 * (len(widths) - 1)
    if room < min(widths[-1], _LEAST_OF_A_TEXT if names[-1] == "text" else _LEAST_OF_A_NAME):
        for line in fitted_table(table(titles, rows).splitlines(), width or 0):
            print_line(console, [("time", line)])
        return
    for place, (*row, last) in enumerate([names, *rows]):
        pieces = [last] if names[-1] == "text" else _wrapped(last, room)
        for beginning, piece in zip([row, *[[""] * len(row)] * len(pieces)], pieces, strict=False):
            cells = [
                f"{cell:>{most}}" if title.endswith(":") else f"{cell:<{most}}"
                for title, cell, most in zip(titles, [*beginning, piece], widths, strict=True)
            ]
            print_line(console, fit([("time" if place else "cost", "  ".join(cells).rstrip())], width))


def _wrapped(cell: str, room: int) -> list[str]:
    """The cell in lines of `room` characters, with its indentation in each."""
    from tracer.report.fitted_table import wrap

    if len(cell) <= room:
        return [cell]
    indent = " " * min(len(cell) - len(cell.lstrip()), room // 2)
    return wrap(cell.strip(), room, indent, f"{indent}  ")


def styled(line: Line) -> Text:
    from rich.text import Text

    return Text.assemble(*((part, _STYLES[role]) for role, part in line))
