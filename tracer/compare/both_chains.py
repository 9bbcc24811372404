"""Two dispatch chains as one text, with what differs marked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest

import polars as pl

from tracer.analysis.chain import Pair, first_difference
from tracer.compare.chains import Chain
from tracer.compare.model import Chains
from tracer.report.chain import parents
from tracer.report.text import count, duration
from tracer.report.tree import Line, fit, plain, tree_lines
from tracer.trace.tables.schema import HOP_KINDS

WIDTH = 110
"""Characters of a line, as GitHub shows them"""
_AROUND = 1
"""Lines that are shown of those that are the same, before and after others"""
_MOST = 120
_LEAST_NAME = 14
"""A kernel function's name that is cut to fewer characters says nothing: it is left out"""
_TIME = 9

FIRST = "=> "
_SCOPES = re.compile(r"(?<![\w~])(?:[\w~]+::)+(?=\w+::)")


@dataclass(frozen=True)
class _Row:
    """Positions in the two chains, whether they are the same, and the indentation of both."""

    stock: int | None
    override: int | None
    same: bool
    level: int


@dataclass(frozen=True)
class _Line:
    time: str
    text: str


def both_chains(chains: Chains) -> str:
    """Both chains in one text: the time of each with stock and with the override, then the line.

    `=>` marks the first difference. `-` is a line that only stock has, `+` one that only the override has;
    lines without a sign are the same in both. `*` follows a hop whose kernel function is an override's. Of
    lines that are the same those are shown that enclose or touch others, and all where nothing differs.
    """
    stock, override = _lines(chains.stock), _lines(chains.override)
    rows = _rows(chains)
    first = first_difference(chains.pairs)  # up to there a row is a pair
    lines = [f"{'':{len(FIRST)}}{'stock':>{_TIME}} {'override':>{_TIME}}"]
    added: list[str] = []
    for place, row in _shown(rows):
        mark = FIRST if place == first and row is not None else " " * len(FIRST)
        if row is None or row.same:  # what was taken away comes before what was added
            lines += added
            added = []
        if row is None:
            lines.append(f"{' ' * len(FIRST)}... {count(place, 'more line')} that {_are(place)} the same")
        elif row.same and row.stock is not None and row.override is not None:
            lines.append(
                _text(mark, stock[row.stock].time, override[row.override].time, " ", stock[row.stock])
            )
        else:
            if row.stock is not None:
                lines.append(_text(mark, stock[row.stock].time, "", "-", stock[row.stock]))
                mark = " " * len(FIRST)
            if row.override is not None:
                added.append(_text(mark, "", override[row.override].time, "+", override[row.override]))
    lines += added
    if len(lines) > _MOST:
        lines[_MOST:] = [f"{' ' * len(FIRST)}... {count(len(lines) - _MOST, 'more line')}"]
    return "\n".join(lines)


def _text(mark: str, stock: str, override: str, sign: str, line: _Line) -> str:
    return f"{mark}{stock:>{_TIME}} {override:>{_TIME}} {sign} {line.text}".rstrip()


def _are(lines: int) -> str:
    return "is" if lines == 1 else "are"


def _rows(chains: Chains) -> list[_Row]:
    """One row per pair; lines that only one chain has are paired, stock's with the override's."""
    levels = [
        chain.nodes["level"].to_list() if len(chain.nodes) else []
        for chain in (chains.stock, chains.override)
    ]
    rows = []
    for alone, pairs in groupby(chains.pairs, key=lambda pair: None in (pair.one, pair.other)):
        group = list(pairs)
        if alone:
            sides = [[at for at in side if at is not None] for side in zip(*_positions(group), strict=True)]
            both: list[tuple[int | None, int | None, bool]] = [
                (*positions, False) for positions in zip_longest(*sides)
            ]
        else:
            both = [(pair.one, pair.other, pair.same) for pair in group]
        for stock, override, same in both:
            at = [level[i] for level, i in zip(levels, (stock, override), strict=True) if i is not None]
            rows.append(_Row(stock, override, same, min(at)))
    return rows


def _positions(pairs: Sequence[Pair]) -> list[tuple[int | None, int | None]]:
    return [(pair.one, pair.other) for pair in pairs]


def _lines(chain: Chain) -> list[_Line]:
    """The lines without the inputs of ops, because there is no space for them, and without own times."""
    if chain.nodes.is_empty():
        return []
    is_hop = pl.col("kind").cast(pl.String).is_in(HOP_KINDS)
    nodes = chain.nodes.with_columns(signature=pl.when(~is_hop).then("signature"))
    lines = tree_lines(nodes, chain.signatures, details=chain.details)
    times = [duration(ns) for ns in nodes["median_ns"].to_list()]
    return [
        _Line(time, plain(_fitted([_short(*piece) for piece in line])).rstrip())
        for time, line in zip(times, lines, strict=True)
    ]


def _fitted(line: Line) -> Line:
    """In its width: what counts queries goes first, names that would be too short go as a whole."""
    width = WIDTH - len(FIRST) - 2 * (_TIME + 1) - 2
    if len(plain(line)) > width:
        line = [piece for piece in line if piece[0] != "inputs" or not piece[1].startswith(", ")]
    cut = fit(line, width)
    for piece, (role, text) in zip(cut, line, strict=False):
        if role == "kernel" and piece[1] != text and len(piece[1].strip()) < _LEAST_NAME:
            return fit([(name, "" if name == "kernel" else words) for name, words in line], width)
    return cut


def _short(role: str, text: str) -> tuple[str, str]:
    """Without times and the outer scopes of a function, and with a star for an override's."""
    if role == "kernel":
        return role, _SCOPES.sub("", text)
    return role, {"time": "", "override": " *"}.get(role, text)


def _shown(rows: Sequence[_Row]) -> Iterator[tuple[int, _Row | None]]:
    """Each row with its place; (n, None) for n rows that are left out."""
    different = [place for place, row in enumerate(rows) if not row.same]
    near = {at for place in different for at in range(place - _AROUND, place + _AROUND + 1)}
    near |= _enclosing(rows, different)
    left_out = 0
    for place, row in enumerate(rows):
        if not different or place in near:
            if left_out:
                yield left_out, None
            left_out = 0
            yield place, row
        else:
            left_out += 1
    if left_out:
        yield left_out, None


def _enclosing(rows: Sequence[_Row], places: Sequence[int]) -> set[int]:
    """The rows around those at `places`."""
    above = parents([row.level for row in rows])
    found: set[int] = set()
    for place in places:
        while (place := above[place]) >= 0 and place not in found:
            found.add(place)
    return found
