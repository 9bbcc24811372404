"""Lines of trees and tables: coloured and cut to the width on a terminal, plain and whole in a pipe."""

from __future__ import annotations

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
    "time": "yellow",
    "override": "bold magenta",
    "mark": "bold red",
    "link": "bold magenta",
    "device": "bold green",
}

_LEAST_OF_THE_LAST = 16
"""Characters of the last column, which is cut first"""


def print_line(console: Console, line: Line) -> None:
    if not console.is_terminal:
        print("".join(text for _, text in line))
        return
    console.print(styled(line), no_wrap=True)


def print_table(table: pl.DataFrame, by: str, limit: int, sources: SourceLines) -> None:
    """A table of analysis.flat, cut to the width of a terminal."""
    from rich.console import Console

    from tracer.report.flat import flat_lines
    from tracer.report.text import count

    console = Console(highlight=False)
    width = console.width if console.is_terminal else None
    for line in flat_lines(table, by, limit=limit, width=width, sources=sources):
        print_line(console, line)
    if limit and len(table) > limit:
        print(f"Shown: {limit:,} of {count(len(table), 'row')}. More: --limit 0.")


def print_cells(titles: list[str], rows: list[list[str]], *, as_given: bool = False) -> bool:
    """A table, numbers first unless its columns stay as given.

    Columns whose title ends in a colon, which is not shown, are on the right, others on the left. If more
    than the end of the last text does not fit on a terminal, the table is laid out as those of reports, which
    lose nothing; with columns as given, lines are cut. Returns whether one was.
    """
    from rich.console import Console

    from tracer.report.cells import numbers_first, table
    from tracer.report.fitted_table import fitted_table
    from tracer.report.tree import fit

    if not as_given:
        titles, rows = numbers_first(titles, rows)
    console = Console(highlight=False)
    width = console.width if console.is_terminal else None
    names = [title.rstrip(":") for title in titles]
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    least = sum(widths[:-1]) + 2 * len(widths) - 2 + min(widths[-1], _LEAST_OF_THE_LAST)
    if width is not None and least > width and not as_given:
        for line in fitted_table(table(titles, rows).splitlines(), width):
            print_line(console, [("time", line)])
        return False
    cut = False
    for place, row in enumerate([names, *rows]):
        cells = [
            f"{cell:>{most}}" if title.endswith(":") else f"{cell:<{most}}"
            for title, cell, most in zip(titles, row, widths, strict=True)
        ]
        role = "time" if place else "cost"
        line = "  ".join(cells).rstrip()
        cut |= width is not None and len(line) > width
        print_line(console, fit([(role, line)], width))
    return cut


def styled(line: Line) -> Text:
    from rich.text import Text

    return Text.assemble(*((part, _STYLES[role]) for role, part in line))
