"""Which hops are inside others, and the modules and ranges that a hop is in besides its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.analysis.ranges import paths_of_hops
from tracer.trace.tables.distinct import numbered

if TYPE_CHECKING:
    from tracer.trace import Trace

_Rows = NDArray[np.int64]
_Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Around:
    """`number` of each hop says which of `groups` it has: the names of all that it counts in (None: none).

    hop  number                    groups
    mm   2                         0  (None,)
    add  1                         1  (Model,)
    neg  0                         2  (layers.0, layers, Model)
    """

    number: _Rows
    groups: list[tuple[str | None, ...]]

    def counted(self, rows: _Rows, parent: _Rows, chosen: _Flags) -> tuple[_Rows, pl.Series]:
        """Each of the rows once for each of its names, without those that a chosen hop around it has too."""
        names = list(dict.fromkeys(name for group in self.groups for name in group))
        code = {name: at for at, name in enumerate(names)}
        sizes = np.array([len(group) for group in self.groups])
        codes = np.array([code[name] for group in self.groups for name in group])
        known = np.repeat(np.arange(len(sizes)) * len(names), sizes) + codes
        times = sizes[self.number[rows]]
        rank = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        rows = np.repeat(rows, times)
        number = self.number[rows]
        name = codes[(np.cumsum(sizes) - sizes)[number] + rank]

        def hides(place: _Rows, above: _Rows) -> _Flags:
            return chosen[above] & np.isin(self.number[above] * len(names) + name[place], known)

        kept = ~_enclosed(rows, parent, hides)
        return rows[kept], pl.Series(names, dtype=pl.String).gather(name[kept])


def module_chains(trace: Trace) -> tuple[NDArray[np.int64], list[tuple[str, ...]]]:
    """The number of each hop's module (-1: none); of each module it and those around, the outermost last."""
    around = dict(trace.modules.iter_rows())
    number, names = numbered(trace.hops["module"])
    chains = []
    for name in names:
        chain = [name]
        while outer := around.get(chain[-1]):
            chain.append(outer)
        chains.append(tuple(chain))
    return number, chains


def _modules(trace: Trace) -> Around:
    number, chains = module_chains(trace)
    return Around(number + 1, [(None,), *chains])


def _ranges(trace: Trace) -> Around:
    number, paths = paths_of_hops(trace.hops, trace.ranges)
    return Around(number, [tuple(dict.fromkeys(path)) or (None,) for path in paths])


AROUND: dict[str, Callable[[Trace], Around]] = {"module": _modules, "range": _ranges}
"""By the column of hops: its values may be inside others"""


def nested(code: _Rows, parent: _Rows, chosen: _Flags) -> _Flags:
    """True for hops that a chosen hop with the same code encloses."""
    code = np.where(chosen, code, -1)
    found = np.zeros(len(code), np.bool_)
    rows = np.flatnonzero(chosen)
    found[rows] = _enclosed(rows, parent, lambda place, above: code[above] == code[rows[place]])
    return found


def _enclosed(rows: _Rows, parent: _Rows, hides: Callable[[_Rows, _Rows], _Flags]) -> _Flags:
    """Whether a row around each of `rows` hides it: `hides` gets places in `rows`, and rows around them."""
    found = np.zeros(len(rows), np.bool_)
    left = np.flatnonzero(parent[rows] >= 0)
    above = parent[rows[left]]
    while len(left):  # a round for each level of the forest
        hidden = hides(left, above)
        found[left[hidden]] = True
        above = parent[above]
        further = ~hidden & (above >= 0)
        left, above = left[further], above[further]
    return found
