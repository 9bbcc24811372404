"""Two dispatch chains as text in two columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import polars as pl

from tracer.analysis.links import HOP_KINDS
from tracer.compare.alignment import Pair, first_difference
from tracer.compare.chains import Chain
from tracer.compare.model import Chains
from tracer.report.tree import fit, plain, tree_lines

WIDTH = 78
_AROUND = 3
"""Lines that are shown of those that are the same, before and after others"""
_MOST = 120

FIRST = "=> "
_SELF = re.compile(r" \(self [^)]*\)")


def side_by_side(chains: Chains) -> str:
    """Both chains, a line for each pair.

    `=>` stands before the first difference, and between the columns `|` where both differ, `<` what only
    stock has and `>` what only the override has; `*` after a hop whose kernel function is an override's.
    Of long runs of lines that are the same the middle is left out. Lines that are the same still have
    their own times.
    """
    left, right = _lines(chains.stock), _lines(chains.override)
    pairs = chains.pairs
    first = first_difference(pairs)
    lines = [f"{' ' * len(FIRST)}{'stock':<{WIDTH}}   override"]
    for place, pair in _shown(pairs):
        if pair is None:
            lines.append(f"{' ' * len(FIRST)}... {place:,} more lines that are the same")
            continue
        mark = FIRST if place == first else " " * len(FIRST)
        stock = left[pair.stock] if pair.stock is not None else ""
        override = right[pair.override] if pair.override is not None else ""
        lines.append(f"{mark}{stock:<{WIDTH}} {_sign(pair)} {override}".rstrip())
    if len(lines) > _MOST:
        lines[_MOST:] = [f"{' ' * len(FIRST)}... {len(lines) - _MOST:,} more lines"]
    return "\n".join(lines)


def _sign(pair: Pair) -> str:
    if pair.same:
        return " "
    if pair.override is None:
        return "<"
    return ">" if pair.stock is None else "|"


def _lines(chain: Chain) -> list[str]:
    """Without the inputs of ops, for which there is no space."""
    if chain.nodes.is_empty():
        return []
    is_hop = pl.col("kind").cast(pl.String).is_in(HOP_KINDS)
    nodes = chain.nodes.with_columns(signature=pl.when(~is_hop).then("signature"))
    lines = tree_lines(nodes, chain.signatures, details=chain.details)
    return [plain(fit([_short(*piece) for piece in line], WIDTH)) for line in lines]


def _short(role: str, text: str) -> tuple[str, str]:
    """Without the hop's own time, and a star for a kernel function that is an override's."""
    return role, {"time": _SELF.sub("", text), "override": " *"}.get(role, text)


def _shown(pairs: Sequence[Pair]) -> Iterator[tuple[int, Pair | None]]:
    """Each pair with its place; (n, None) for n pairs that are left out."""
    different = [place for place, pair in enumerate(pairs) if not pair.same]
    near = {at for place in different for at in range(place - _AROUND, place + _AROUND + 1)}
    near |= set(range(_AROUND))
    left_out = 0
    for place, pair in enumerate(pairs):
        if not different or place in near:
            if left_out:
                yield left_out, None
            left_out = 0
            yield place, pair
        else:
            left_out += 1
    if left_out:
        yield left_out, None
