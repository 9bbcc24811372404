"""Two dispatch chains as text in two columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest

import polars as pl

from tracer.analysis.links import HOP_KINDS
from tracer.compare.alignment import Pair, first_difference
from tracer.compare.chains import Chain
from tracer.compare.model import Chains
from tracer.report.text import count
from tracer.report.tree import Line, fit, plain, tree_lines

WIDTH = 78
_AROUND = 1
"""Lines that are shown of those that are the same, before and after others"""
_MOST = 120
_LEAST_NAME = 14
"""A kernel function's name that is cut to fewer characters says nothing: it is left out"""

FIRST = "=> "
_SELF = re.compile(r" \(self [^)]*\)")
_SCOPES = re.compile(r"(?:[\w~]+::)+(?=\w+::)")


@dataclass(frozen=True)
class _Row:
    """Positions in the two chains, the sign between them, and the indentation of both."""

    stock: int | None
    override: int | None
    sign: str
    level: int


def side_by_side(chains: Chains) -> str:
    """Both chains, a line for each pair.

    `=>` marks the first difference. Between the columns `|` means both differ, `<` what only
    stock has and `>` what only the override has, `<>` one of each; `*` after a hop whose kernel function
    is an override's. Of lines that are the same those are shown that enclose or touch others, and all
    where nothing differs. Lines that are the same still have their own times.
    """
    left, right = _lines(chains.stock), _lines(chains.override)
    rows = _rows(chains)
    first = first_difference(chains.pairs)  # up to there a row is a pair
    lines = [f"{' ' * len(FIRST)}{'stock':<{WIDTH}}    override"]
    for place, row in _shown(rows):
        if row is None:
            lines.append(f"{' ' * len(FIRST)}... {count(place, 'more line')} that {_are(place)} the same")
            continue
        mark = FIRST if place == first else " " * len(FIRST)
        stock = left[row.stock] if row.stock is not None else ""
        override = right[row.override] if row.override is not None else ""
        lines.append(f"{mark}{stock:<{WIDTH}} {row.sign:^2} {override}".rstrip())
    if len(lines) > _MOST:
        lines[_MOST:] = [f"{' ' * len(FIRST)}... {count(len(lines) - _MOST, 'more line')}"]
    return "\n".join(lines)


def _are(lines: int) -> str:
    return "is" if lines == 1 else "are"


def _rows(chains: Chains) -> list[_Row]:
    """One row per pair; lines that only one chain has are paired, stock's with the override's."""
    levels = [
        chain.nodes["level"].to_list() if len(chain.nodes) else []
        for chain in (chains.stock, chains.override)
    ]
    rows = []
    for alone, pairs in groupby(chains.pairs, key=lambda pair: None in (pair.stock, pair.override)):
        group = list(pairs)
        if alone:
            sides = [[at for at in side if at is not None] for side in zip(*_positions(group), strict=True)]
            both: list[tuple[int | None, int | None, bool]] = [
                (*positions, False) for positions in zip_longest(*sides)
            ]
        else:
            both = [(pair.stock, pair.override, pair.same) for pair in group]
        for stock, override, same in both:
            at = [level[i] for level, i in zip(levels, (stock, override), strict=True) if i is not None]
            rows.append(_Row(stock, override, "" if same else _sign(stock, override, alone), min(at)))
    return rows


def _positions(pairs: Sequence[Pair]) -> list[tuple[int | None, int | None]]:
    return [(pair.stock, pair.override) for pair in pairs]


def _sign(stock: int | None, override: int | None, alone: bool) -> str:
    if override is None:
        return "<"
    if stock is None:
        return ">"
    return "<>" if alone else "|"


def _lines(chain: Chain) -> list[str]:
    """The line without the inputs of ops, because there is no space for them."""
    if chain.nodes.is_empty():
        return []
    is_hop = pl.col("kind").cast(pl.String).is_in(HOP_KINDS)
    nodes = chain.nodes.with_columns(signature=pl.when(~is_hop).then("signature"))
    lines = tree_lines(nodes, chain.signatures, details=chain.details)
    return [plain(_fitted([_short(*piece) for piece in line])) for line in lines]


def _fitted(line: Line) -> Line:
    """In WIDTH characters: what counts queries goes first, names that would be too short go as a whole."""
    if len(plain(line)) > WIDTH:
        line = [piece for piece in line if piece[0] != "inputs" or not piece[1].startswith(", ")]
    cut = fit(line, WIDTH)
    for piece, (role, text) in zip(cut, line, strict=False):
        if role == "kernel" and piece[1] != text and len(piece[1].strip()) < _LEAST_NAME:
            return fit([(name, "" if name == "kernel" else words) for name, words in line], WIDTH)
    return cut


def _short(role: str, text: str) -> tuple[str, str]:
    """Without the hop's own time and the outer scopes of a function, and with a star for an override's."""
    if role == "kernel":
        return role, _SCOPES.sub("", text)
    return role, {"time": _SELF.sub("", text), "override": " *"}.get(role, text)


def _shown(rows: Sequence[_Row]) -> Iterator[tuple[int, _Row | None]]:
    """Each row with its place; (n, None) for n rows that are left out."""
    different = [place for place, row in enumerate(rows) if row.sign]
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
    found = set()
    for place in places:
        level = rows[place].level
        for above in range(place - 1, -1, -1):
            if not level:
                break
            if rows[above].level < level:
                level = rows[above].level
                found.add(above)
    return found
