"""Markdown whose tables GitHub shows whole: its page is 980 pixels wide.

There a table is as wide as its longest words, and a name of code is one word. If a table would be wider, its
long names may be broken: `torch::autograd::`<wbr>`VariableType::mm`. A number and its unit are one word, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

from tracer.report.fitted import blocks
from tracer.report.fitted_table import is_rule, split_row
from tracer.report.text import NO_BREAK, unbroken

WIDTH = 980
_LIMITS = (44, 36, 30, 26, 22, 18, 15, 12, 10, 8)
"""Characters of a word of code"""
_AROUND, _SPAN, _CODE, _TEXT, _DIGIT = 27.0, 11.0, 8.2, 10.4, 8.9
"""Pixels around a cell and a code span, and of a letter in code, in text and in a number with its unit"""
_SPANS = re.compile(r"(?<![`\\])`([^`]+)`(?!`)")
_ENDS_A_WORD = re.compile(r"(?<=[/_.,:(<-])(?=[^/_.,:(<-])|(?<=[^<])(?=<)")
_LETTERS = re.compile(r"\\\||.", re.DOTALL)


def for_github(markdown: str) -> str:
    return "\n".join(line for block in blocks(markdown.split("\n")) for line in _narrowed(block))


def joined(markdown: str) -> str:
    """What `for_github` was given."""
    return markdown.replace("`<wbr>`", "").replace(NO_BREAK, " ")


def _narrowed(lines: list[str]) -> list[str]:
    if len(lines) < 3 or not is_rule(lines[1]):
        return lines
    rows = [split_row(line) for line in lines]
    whole = [[_unbroken(cell) for cell in row] for row in rows]
    for limit in (1 << 30, *_LIMITS):
        broken = [[_cell(cell, limit) for cell in row] for row in whole]
        if _width(broken) <= WIDTH:
            break
    return lines if broken == rows else [f"|{'|'.join(row)}|" for row in broken]


def _unbroken(cell: str) -> str:
    """No line ends between a number and its unit; code stays as it is."""
    parts = re.split(r"((?<!`)`+[^`]+`+)", cell)
    return "".join(part if place % 2 else unbroken(part) for place, part in enumerate(parts))


def _cell(cell: str, limit: int) -> str:
    return _SPANS.sub(lambda span: _broken(span[1], limit), cell)


def _broken(text: str, limit: int) -> str:
    """A code span, or several: pieces of each word that is longer, which end where its parts do."""
    pieces = [""]
    for word in re.split(r"(?<= )", text):
        parts = _ENDS_A_WORD.split(word) if len(word) > limit else [word]
        for part in chain.from_iterable(_chopped(each, limit) for each in parts):
            last = pieces[-1].rpartition(" ")[2]
            if last and len(last) + len(part.rstrip()) > limit:
                pieces.append(part)
            else:
                pieces[-1] += part
    return "<wbr>".join(f"`{piece}`" for piece in pieces)


def _chopped(part: str, limit: int) -> list[str]:
    letters = _LETTERS.findall(part)
    return ["".join(letters[start : start + limit]) for start in range(0, len(letters), limit)]


def _width(rows: Sequence[Sequence[str]]) -> float:
    columns = zip(rows[0], *rows[2:], strict=False)
    return 1 + sum(_AROUND + max(map(_least, column)) for column in columns)


def _least(cell: str) -> float:
    """Of the widest word."""
    code = [word for span in _SPANS.findall(cell) for word in span.split()]
    text = re.split(r"[ \n]|<br>|<wbr>", _SPANS.sub(" ", cell))
    widths = [_SPAN + _CODE * len(word) for word in code]
    widths += [(_DIGIT if NO_BREAK in word else _TEXT) * len(word) for word in text]
    return max(widths, default=0.0)
