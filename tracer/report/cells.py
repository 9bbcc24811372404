"""Cells and tables of GitHub markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from tracer.base.visible import visible

_PADDED = 44
_MARKUP = re.compile(r"[\\`*\[\]<~]|(?<![^\W_])_|_(?![^\W_])|(?<!\S)>")
_COST = re.compile(r"\d (?:us|ms|s|%|x)(?![\w/])")
_BEGINS_BLOCK = re.compile(r"#{1,6}(\s|$)|[<>|]|~~~|```|[-+*](\s|$)|\d{1,9}[.)](\s|$)|[-=*_:|\s]+$")


def code(text: object) -> str:
    """A code span that shows `text` as it is, also in a cell and with backticks in it."""
    words = visible(" ".join(str(text).split()))
    ticks = "`" * (max((len(run) for run in re.findall("`+", words)), default=0) + 1)
    pad = " " if words.startswith("`") or words.endswith("`") else ""
    return f"{ticks}{pad}{words}{pad}{ticks}" if words else ""


def prose(text: object) -> str:
    """`text` on one line, with nothing in it that markdown or HTML would read as its own."""
    words = visible(" ".join(str(text).split()))
    escaped = _MARKUP.sub(lambda match: "\\" + match[0], words)
    return re.sub(r"^(\d*)([^\w\\])", r"\1\\\2", escaped) if _BEGINS_BLOCK.match(words) else escaped


def fenced(lines: Iterable[str], language: str = "text") -> str:
    """A block of code with these lines, which nothing in them ends."""
    shown = [visible(line) for line in lines]
    longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(longest + 1, 3)
    return "\n".join([f"{fence}{language}", *shown, fence])


def numbers_first(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Any table in the order in which it is read: times, shares and ratios; other figures; texts.

    Titles of figures end in a colon. A first column without a title names the figures of its row, and stays.
    """
    cells = [list(row) for row in rows]

    def rank(place: int) -> int:
        if not titles[place].endswith(":"):
            return 0 if place == 0 and not titles[0] else 3
        column = [row[place] for row in cells if row[place]]
        return 1 if not column or "ratio" in titles[place] or any(map(_COST.search, column)) else 2

    places = sorted(range(len(titles)), key=rank)
    return [titles[place] for place in places], [[row[place] for place in places] for row in cells]


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, ragged: bool = False) -> str:
    """A table, numbers first; a title that ends in a colon has a right-aligned column.

    Cells are padded where a column is narrow, so that the source reads as a table too. With
    `ragged` the cells of a wide column are padded too, but for those that are wide themselves.
    """
    titles, rows = numbers_first(titles, rows)
    right = [title.endswith(":") for title in titles]
    cells = [[title.rstrip(":") for title in titles]]
    cells += [[_unsplit(cell) for cell in row] for row in rows]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(titles))]
    for i, width in enumerate(widths):
        if width > _PADDED:
            fitting = (len(row[i]) for row in cells if ragged and len(row[i]) <= _PADDED)
            widths[i] = max(3, *fitting, 3)
    rule = ["-" * (w - 1) + ":" if r else "-" * w for w, r in zip(widths, right, strict=True)]
    lines = [
        " | ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True))
        for row in [cells[0], rule, *cells[1:]]
    ]
    return "\n".join(f"| {line} |" for line in lines)


def _unsplit(cell: str) -> str:
    """`cell` with its `|` escaped; one that follows a backslash would count as not escaped."""
    return re.sub(r"(?<=\\)\|", " |", cell).replace("|", r"\|")


def wrapped(text: str, indent: str = "") -> str:
    """`text` in lines of at most 100 columns, those after the first indented (a list item's by two).

    No line begins with what would begin a heading, a list, or a block of code or HTML: names may hold that.
    """
    lines = textwrap.wrap(text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    kept = lines[:1]
    for line in lines[1:]:
        if _BEGINS_BLOCK.match(line.lstrip()):
            kept[-1] += f" {line.lstrip()}"
        else:
            kept.append(line)
    return "\n".join(kept)


def item(text: str) -> str:
    """A list item."""
    return wrapped(f"- {text}", "  ")
