"""A table of markdown that is too wide for a terminal, in fewer columns, and what they leave out below."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len, chop_cells

_FRAME = 3
"""Characters around each cell, ` | `; one more ends the row"""
_NARROWEST = 3
_BELOW = "|   "
_BREAK = "<br>"
_LONG = 40
_FOLDERS = re.compile(r"[^/:]*/|:\d+|[^/:]+|:+")
_RULE = re.compile(r"\|(?: *:?-+:? *\|)+")
_MEASURED = re.compile(r"(<?[\d.,]+) ([a-zA-Z%/]+)")


def is_rule(line: str) -> bool:
    """`| --- | --: |`"""
    return _RULE.fullmatch(line.strip()) is not None


def wrap(text: str, width: int, first: str = "", later: str = "") -> list[str]:
    """The words of `text` in lines of at most `width` cells, which begin with `first` and `later`."""
    lines: list[str] = []
    line, begun = first, False
    for word in _Wrapper(break_on_hyphens=False).words(text):
        if not word.strip() and not begun and lines:
            continue  # no line but the first begins with blanks
        if cell_len(line) + cell_len(word) > width and begun:
            lines.append(line.rstrip())
            line, begun = later, False
            word = word.lstrip()
        while cell_len(line) + cell_len(word) > width:
            piece = chop_cells(word, max(width - cell_len(line), 2))[0]
            lines.append(line + piece)
            line, word = later, word[len(piece) :]
        line += word
        begun = begun or bool(word)
    return [*lines, line.rstrip()] if begun or not lines else lines


class _Wrapper(textwrap.TextWrapper):
    """Breaks long paths behind a `/` and before the number of a line, and other long words anywhere."""

    def words(self, text: str) -> list[str]:
        """Words and the blanks between them."""
        return self._split(self._munge_whitespace(text))

    def _split(self, text: str) -> list[str]:
        words = super()._split(text)
        return [
            part for word in words for part in (_FOLDERS.findall(word) if cell_len(word) > _LONG else [word])
        ]


def widest(lines: Sequence[str]) -> int:
    """In cells of a terminal: a Chinese character takes two."""
    return max(map(cell_len, lines), default=0)


def is_fitting(lines: Sequence[str], width: int) -> bool:
    """Within `width`, and laid out for it: with as many characters as cells."""
    return widest(lines) <= width and all(cell_len(line) == len(line) for line in lines)


def _padded(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if right else text + blanks


@dataclass(frozen=True)
class _Column:
    title: str
    right: bool
    cells: tuple[str, ...]

    @property
    def least(self) -> int:
        """The width in which no cell is wrapped; the title may be."""
        lines = [line for cell in self.cells for line in cell.split(_BREAK)]
        return max(_NARROWEST, widest(lines), widest(self.title.split()))

    @property
    def is_empty(self) -> bool:
        return not any(self.cells)

    @property
    def is_constant(self) -> bool:
        return len(self.cells) > 1 and len(set(self.cells)) == 1

    def with_unit_in_title(self) -> _Column:
        """`waited, ms` and 1.2 of `waited` and `1.2 ms`, if all cells share a unit and it is narrower so."""
        measured = [_MEASURED.fullmatch(cell) for cell in self.cells if cell]
        units = {match[2] if match else "" for match in measured}
        if len(units) != 1 or "" in units:
            return self
        numbers = tuple(cell.rpartition(" ")[0] for cell in self.cells)
        narrower = replace(self, title=f"{self.title}, {units.pop()}", cells=numbers)
        return narrower if narrower.least < self.least else self


def fitted_table(lines: Sequence[str], width: int) -> list[str]:
    """The table in lines of at most `width`: nothing is lost, but columns without any cell.

    Titles are wrapped, and units move into them. If that is not enough, columns that are the same in all rows
    are named once above the table, and the widest texts and last figures are shown below each row; the first
    column of texts, which names the row, stays.
    """
    if is_fitting(lines, width):
        return list(lines)
    columns = [column for column in _columns(lines) if not column.is_empty]
    columns = [column.with_unit_in_title() for column in columns] if not _fits(columns, width) else columns
    name = next((column for column in columns if not column.right), columns[0])
    others = [column for column in columns if column is not name]
    first = replace(name, cells=tuple(_wrapped(cell, width // 2) for cell in name.cells))
    rest, same = _moved(first, others, width, [at for at in others if at.is_constant])
    rest, below = _moved(first, rest, width, rest)
    room = width - 1 - _FRAME - sum(column.least + _FRAME for column in rest)
    first = replace(name, cells=tuple(_wrapped(cell, max(room, width // 2)) for cell in name.cells))
    shown = [first if at is name else at for at in columns if at is name or any(at is one for one in rest)]
    said = "In each row: " + "; ".join(f"{of.title}: {of.cells[0]}" for of in same) + "."
    above = [*wrap(said, width), ""] if same else []
    return above + _rows(shown, below, width)


def _columns(lines: Sequence[str]) -> list[_Column]:
    titles, rules, *rows = ([cell.strip() for cell in split_row(line)] for line in lines)
    return [
        _Column(title, rule.endswith(":"), tuple(row[place] if place < len(row) else "" for row in rows))
        for place, (title, rule) in enumerate(zip(titles, rules, strict=False))
    ]


def split_row(row: str) -> list[str]:
    """The cells between the `|` that no backslash escapes."""
    return re.split(r"(?<!\\)\|", row.strip())[1:-1]


def _wrapped(cell: str, width: int) -> str:
    return _BREAK.join(line for part in cell.split(_BREAK) for line in wrap(part, width))


def _fits(columns: Sequence[_Column], width: int) -> bool:
    return sum(column.least + _FRAME for column in columns) + 1 <= width


def _moved(
    first: _Column, columns: list[_Column], width: int, may: list[_Column]
) -> tuple[list[_Column], list[_Column]]:
    """(those that stay, those that move): of `may` the widest texts, then the last figures, until it fits."""
    moved: list[_Column] = []
    while not _fits([first, *columns], width):
        left = [column for column in columns if any(column is other for other in may)]
        if not left:
            break
        least = max(reversed(left), key=lambda column: 0 if column.right else column.least)
        columns = [column for column in columns if column is not least]
        moved.append(least)
    return columns, [column for column in may if any(column is other for other in moved)]


def _rows(columns: Sequence[_Column], below: Sequence[_Column], width: int) -> list[str]:
    widths = _widths(columns, width)
    titles = [_wrapped(column.title, size) for column, size in zip(columns, widths, strict=True)]
    rule = ["-" * (size - 1) + ("-:"[column.right]) for column, size in zip(columns, widths, strict=True)]
    lines = [*_row(titles, columns, widths), *_row(rule, columns, widths)]
    for place in range(len(columns[0].cells)):
        lines += _row([column.cells[place] for column in columns], columns, widths)
        lines += _pieces([(column.title, column.cells[place]) for column in below], width)
    return lines


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """Where there is room, columns are as wide as it takes to write the highest titles in fewer lines."""
    widths = [column.least for column in columns]
    spare = width - 1 - sum(widths) - _FRAME * len(widths)
    titles = [column.title for column in columns]
    heights = [len(wrap(title, size)) for title, size in zip(titles, widths, strict=True)]
    open_to = {place for place, height in enumerate(heights) if height > 1}
    while open_to:
        place = max(sorted(open_to), key=lambda place: heights[place])
        wider = range(widths[place] + 1, widths[place] + spare + 1)
        size = next((size for size in wider if len(wrap(titles[place], size)) < heights[place]), None)
        if size is None:
            open_to.remove(place)
            continue
        spare, widths[place] = spare - size + widths[place], size
        heights[place] = len(wrap(titles[place], size))
        if heights[place] == 1:
            open_to.remove(place)
    return widths


def _row(cells: Sequence[str], columns: Sequence[_Column], widths: Sequence[int]) -> list[str]:
    """One row: as many lines as its highest cell has."""
    parts = [cell.split(_BREAK) for cell in cells]
    lines = []
    for number in range(max(map(len, parts))):
        texts = [part[number] if number < len(part) else "" for part in parts]
        padded = [
            _padded(text, size, column.right)
            for text, column, size in zip(texts, columns, widths, strict=True)
        ]
        lines.append(f"| {' | '.join(padded)} |")
    return lines


def _pieces(cells: Sequence[tuple[str, str]], width: int) -> list[str]:
    """The cells below a row, `title: cell`: as many in a line as fit, and a long one in lines of its own."""
    lines: list[str] = []
    for title, cell in cells:
        if not cell:
            continue
        text = f"{title}: {cell}" if title else cell
        text = text.replace(_BREAK, " ")
        if lines and cell_len(lines[-1]) + 2 + cell_len(text) <= width:
            lines[-1] += f"; {text}"
        else:
            lines += wrap(text, width, _BELOW, f"{_BELOW}  ")
    return lines
