"""A report as a terminal shows it: the same markdown, with no line wider than the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tracer.report.fitted_table import fitted_table, is_fitting, is_rule, widest, wrap

_LEAST = 24
"""Nothing is fitted to fewer columns"""
_FENCE = re.compile(r"(`{3,}|~{3,})")
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s+")
_CONTENTS = re.compile(r"^\[[^]\n]+\]\(#[^)\n]+\)(?: · \[[^]\n]+\]\(#[^)\n]+\))+\n\n?", re.MULTILINE)
_ALONE = re.compile(r"#{1,6}\s|<|\s*(?:[-*+]|\d{1,9}[.)])\s|\|")
"""Begins a block: headings, tags, list items and rows are not joined with the line before"""


def fitted(markdown: str, width: int) -> str:
    """`markdown` in lines of at most `width` cells. Tables are laid out again, text is wrapped.

    A line of links to the sections, which leads nowhere on a terminal, is left out.
    """
    width = max(width, _LEAST)
    markdown = _CONTENTS.sub("", markdown)
    lines = markdown.split("\n")
    if is_fitting(lines, width):
        return markdown
    return "\n".join(line for block in blocks(lines) for line in _fitted_block(block, width))


def blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Blocks of code, tables, paragraphs and single lines, one after the other."""
    block: list[str] = []
    fence = ""
    for line in lines:
        mark = _FENCE.match(line)
        if fence:
            block.append(line)
            if mark and mark[1].startswith(fence) and line.strip() == mark[1]:
                yield block
                block, fence = [], ""
            continue
        joins = line and not mark and (_is_row(block) if line.startswith("|") else not _ALONE.match(line))
        if block and (not joins or not block[-1] or (_is_row(block) and not line.startswith("|"))):
            yield block
            block = []
        block.append(line)
        fence = mark[1] if mark else ""
    if block:
        yield block


def _is_row(block: Sequence[str]) -> bool:
    return bool(block) and block[-1].startswith("|")


def _fitted_block(block: list[str], width: int) -> list[str]:
    if is_fitting(block, width):
        return block
    if _FENCE.match(block[0]):
        return [part for line in block for part in _folded(line, width)]
    if len(block) > 1 and is_rule(block[1]):
        return fitted_table(block, width)
    if widest(block) <= width:
        return block
    item = _LIST_ITEM.match(block[0])
    return wrap(" ".join(map(str.strip, block)), width, later=" " * len(item[0]) if item else "")


def _folded(line: str, width: int) -> list[str]:
    """A line of code; what is behind its end is shown below, further in."""
    indent = min(len(line) - len(line.lstrip()) + 4, width // 2)
    return [line] if widest([line]) <= width else wrap(line, width, later=" " * indent)
