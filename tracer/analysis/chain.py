"""A dispatch chain: what a call ran, one link for each hop, library call, API call and activity of the GPU.

    aten::mm [AutogradCPU] torch::autograd::VariableType::mm
      -> aten::mm [CPU] wrapper_CPU_mm
        2 x aten::new_empty [CPU] wrapper_new_empty

A chain is a tuple of links in the order in which they ran. Two chains are equal if all links are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from tracer.analysis.compiled import COMPILED_KERNEL
from tracer.trace.tables.schema import GPU_KINDS, HOP_KINDS

WAIT = "wait"
"""The kind of an API call that waits for the GPU, where other API calls are left out"""
_NAMES = {name: name for name in ("library", COMPILED_KERNEL, WAIT)} | dict.fromkeys(GPU_KINDS, "GPU")
"""What comes before the name of a link that is no hop, by its kind"""
_HOP = re.compile(r"(-> )?(.+?) \[([^\[\]]+)\](?: (.+))?$")
_COUNT = re.compile(r"(\d+)(?:\.\.(\d+))? x (.+)$")

_SAME, _OTHER_KERNEL, _OTHER_KEY = 8, 5, 1
_MOST_CELLS = 1 << 24
"""The largest product of two lengths for which the best alignment is computed: its table takes 64 MB"""
_AROUND = 2
"""Equal lines that a diff shows before and after others"""


@dataclass(frozen=True)
class Link:
    """One line: `least` to `most` of it follow each other in the line above.

    level     0 for the outermost
    kind      of trees.fold's rows, or WAIT
    kernel    the kernel function of a hop; of an API call the names of what it made the GPU do
    more      what else tells it from others: an override, modes of a library, that it raises
    """

    level: int
    kind: str
    op: str
    key: str = ""
    kernel: str = ""
    more: str = ""
    least: int = 1
    most: int = 1

    @property
    def text(self) -> str:
        """`-> aten::mm [CPU] wrapper_CPU_mm`, without level and count."""
        first = "->" if self.kind == "redispatch" else _NAMES.get(self.kind, "")
        key = f"[{self.key}]" if self.key else ""
        return " ".join(filter(None, (first, self.op or "?", key, self.kernel, self.more)))

    @property
    def line(self) -> str:
        """The text as it is written: `2..4 x -> aten::mm [CPU] wrapper_CPU_mm`, indented by the level."""
        count = "" if self.most == 1 else f"{self.most} x "
        if self.least != self.most:
            count = f"{self.least}..{self.most} x "
        return f"{'  ' * self.level}{count}{self.text}"

    @classmethod
    def read(cls, level: int, text: str) -> Link:
        """The link of a text with its count, as `line` writes it. Raises ValueError: the count is wrong."""
        counted = _COUNT.match(text)
        least, most = (int(counted[1]), int(counted[2] or counted[1])) if counted else (1, 1)
        if not 1 <= least <= most:
            raise ValueError(f"{text.split(' x ')[0]} x: give 2 x or 2..4 x")
        text = counted[3] if counted else text
        for kind, name in _NAMES.items():
            if text.startswith(f"{name} "):
                return cls(level, kind, text.removeprefix(f"{name} "), least=least, most=most)
        hop = _HOP.match(text)
        if not hop:
            return cls(level, "", text, least=least, most=most)
        return cls(level, HOP_KINDS[bool(hop[1])], hop[2], hop[3], hop[4] or "", least=least, most=most)


Chain = tuple[Link, ...]


def text(chain: Chain) -> str:
    """Its lines."""
    return "\n".join(link.line for link in chain)


def shape(chain: Chain) -> tuple[Any, ...]:
    """Equal where all lines are, whatever their counts."""
    return tuple((link.level, link.text) for link in chain)


def folded(links: Iterable[Link]) -> Chain:
    """Subtrees of one shape that follow each other as one, with its counts.

    a, b c, b c, d  ->  a, 2 x b c, d        (c is in b)
    b, b c c, b c   ->  b, 2 x b, 1..2 x c
    """
    made: list[Link] = []
    shapes: list[tuple[int, str]] = []
    open_from: list[int] = []  # of each level, where the subtree that is open begins
    before: list[int | None] = []  # of each level, where the subtree before it begins

    def close() -> None:
        begin, previous = open_from.pop(), before[len(open_from)]
        # Lengths first: in a ladder as deep as a stranger likes, each level would copy all below it.
        if (
            previous is None
            or begin - previous != len(shapes) - begin
            or shapes[previous:begin] != shapes[begin:]
        ):
            before[len(open_from)] = begin
            return
        made[previous:] = _joined(made[previous:begin], made[begin:])
        one = made[previous].most + 1
        made[previous] = replace(made[previous], least=one, most=one)
        del shapes[begin:]

    for link in links:
        while len(open_from) > link.level:
            close()
        del before[link.level + 1 :]
        before += [None] * (link.level + 1 - len(before))
        open_from.append(len(made))
        made.append(link)
        shapes.append((link.level, link.text))
    while open_from:
        close()
    return tuple(made)


def joined(one: Chain, other: Chain) -> Chain:
    """One chain with the counts of two chains of one shape."""
    return one if one == other else tuple(_joined(one, other))


def _joined(one: Sequence[Link], other: Sequence[Link]) -> list[Link]:
    return [
        a if a == b else replace(a, least=min(a.least, b.least), most=max(a.most, b.most))
        for a, b in zip(one, other, strict=True)
    ]


def within(found: Chain, known: Chain) -> bool:
    """Whether both have one shape, and the counts of the first lie within those of the second."""
    return len(found) == len(known) and all(
        (a.level, a.text) == (b.level, b.text) and b.least <= a.least and a.most <= b.most
        for a, b in zip(found, known, strict=True)
    )


@dataclass(frozen=True)
class Pair:
    """Positions in two chains; None where the other chain has nothing that goes with it."""

    one: int | None
    other: int | None
    same: bool


def align(one: Sequence[Link], other: Sequence[Link]) -> list[Pair]:
    """Every link of both chains, in order, paired where they go together.

    Equal links go together, else hops of one op at one key (another kernel function), else those of one op;
    hops of different ops never do, nor calls that launch different kernels. Of all alignments it is the
    one with the largest sum of such likeness; in very long chains only equal links go together.
    """
    begin = 0
    while begin < min(len(one), len(other)) and one[begin] == other[begin]:
        begin += 1
    end = 0
    while end < min(len(one), len(other)) - begin and one[-1 - end] == other[-1 - end]:
        end += 1
    left, right = one[begin : len(one) - end], other[begin : len(other) - end]
    middle = (_best if len(left) * len(right) <= _MOST_CELLS else _equal)(left, right)
    pairs = [Pair(i, i, True) for i in range(begin)]
    for i, j in middle:
        first, second = (None if i is None else begin + i), (None if j is None else begin + j)
        same = first is not None and second is not None and one[first] == other[second]
        pairs.append(Pair(first, second, same))
    return pairs + [Pair(len(one) - k, len(other) - k, True) for k in range(end, 0, -1)]


def first_difference(pairs: Sequence[Pair]) -> int | None:
    """The place of the first pair that is not the same on both sides; None where all are."""
    return next((place for place, pair in enumerate(pairs) if not pair.same), None)


def likeness(one: Sequence[Link], other: Sequence[Link]) -> np.ndarray:
    """How much each link of the first, a row each, is like each of the second; 0: they do not go together."""
    equal = _equal_pairs(one, other, lambda link: link)
    op = _equal_pairs(one, other, lambda link: (link.op, link.kind in HOP_KINDS))
    op &= _equal_pairs(one, other, lambda link: link.kind in HOP_KINDS or link.kernel)
    key = _equal_pairs(one, other, lambda link: link.key)
    return np.where(equal, _SAME, np.where(op, np.where(key, _OTHER_KERNEL, _OTHER_KEY), 0)).astype(np.int8)


def _equal_pairs(one: Sequence[Link], other: Sequence[Link], part: Callable[[Link], Any]) -> np.ndarray:
    numbers: dict[Any, int] = {}
    rows, columns = (
        np.array([numbers.setdefault(part(link), len(numbers)) for link in side], np.int32)
        for side in (one, other)
    )
    return rows[:, None] == columns[None, :]


def similarity(one: Chain, other: Chain) -> float:
    """From 0, no line in common, to 1, all lines equal."""
    return 2 * sum(pair.same for pair in align(one, other)) / max(len(one) + len(other), 1)


def diff(one: Chain, other: Chain) -> Iterator[str]:
    """The lines of both: `-` only in the first, `+` only in the second, and of equal ones those around."""
    pairs = align(one, other)
    differing = [place for place, pair in enumerate(pairs) if not pair.same]
    near = {at for place in differing for at in range(place - _AROUND, place + _AROUND + 1)}
    last = -1
    added: list[str] = []
    for place, pair in enumerate(pairs):
        if place not in near:
            continue
        if pair.same or last != place - 1:  # what was taken away comes before what was added
            yield from added
            added = []
        if last not in (-1, place - 1):
            yield " ..."
        last = place
        if pair.one is not None:
            yield f"{' ' if pair.same else '-'}{one[pair.one].line}"
        if pair.other is not None and not pair.same:
            added.append(f"+{other[pair.other].line}")
    yield from added


def _equal(one: Sequence[Link], other: Sequence[Link]) -> list[tuple[int | None, int | None]]:
    """The links that difflib finds equal as pairs; it looks for rare ones first."""
    pairs: list[tuple[int | None, int | None]] = []
    for kind, begin, end, first, last in SequenceMatcher(None, one, other).get_opcodes():
        if kind == "equal":
            pairs += zip(range(begin, end), range(first, last), strict=True)
        else:
            pairs += [(i, None) for i in range(begin, end)] + [(None, j) for j in range(first, last)]
    return pairs


def _best(one: Sequence[Link], other: Sequence[Link]) -> list[tuple[int | None, int | None]]:
    """The alignment with the largest likeness in all (a weighted longest common subsequence)."""
    rows, columns = len(one), len(other)
    if not rows or not columns:
        return [(i, None) for i in range(rows)] + [(None, j) for j in range(columns)]
    weight = likeness(one, other)
    best = np.zeros((rows + 1, columns + 1), np.int32)
    for i in range(1, rows + 1):
        paired = best[i - 1, :-1] + weight[i - 1]
        best[i, 1:] = np.maximum.accumulate(np.maximum(best[i - 1, 1:], paired))
    pairs: list[tuple[int | None, int | None]] = []
    i, j = rows, columns
    while i or j:
        # Backwards, so of lines that only one has, those of the first come out first.
        if i and j and weight[i - 1, j - 1] and best[i, j] == best[i - 1, j - 1] + weight[i - 1, j - 1]:
            i, j = i - 1, j - 1
            pairs.append((i, j))
        elif j and best[i, j] == best[i, j - 1]:
            j -= 1
            pairs.append((None, j))
        else:
            i -= 1
            pairs.append((i, None))
    return pairs[::-1]
