"""Rows around rows, found without looking at each level."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracer.analysis.difference.op_calls import outermost_of
from tracer.trace.bytes.arrays import climb, nearest


@st.composite
def forests(draw: st.DrawFn) -> tuple[list[int], list[bool]]:
    """(the row around each row, whether it is wanted)"""
    count = draw(st.integers(0, 40))
    parents = [draw(st.integers(-1, row - 1)) for row in range(count)]
    return parents, draw(st.lists(st.booleans(), min_size=count, max_size=count))


def around(parents: list[int], row: int) -> list[int]:
    """The row, and all around it, innermost first."""
    rows = []
    while row >= 0:
        rows.append(row)
        row = parents[row]
    return rows


@given(forests())
def test_nearest_and_outermost(forest: tuple[list[int], list[bool]]) -> None:
    parents, wanted = forest
    rows = [[row for row in around(parents, place) if wanted[row]] for place in range(len(parents))]
    parent, marked = np.array(parents, np.int64), np.array(wanted, np.bool_)
    assert nearest(parent, marked).tolist() == [found[0] if found else -1 for found in rows]
    assert outermost_of(marked, parent).tolist() == [found[-1] if found else -1 for found in rows]


@given(forests(), st.lists(st.integers(0, 40), max_size=20))
def test_climb(forest: tuple[list[int], list[bool]], limits: list[int]) -> None:
    """To the first that ends late enough: what is around ends later."""
    parents, _ = forest
    if not parents:
        return
    end = np.array([100 - len(around(parents, row)) for row in range(len(parents))])
    row = np.array([limit % (len(parents) + 1) - 1 for limit in limits], np.int64)
    limit = np.array([100 - limit for limit in limits], np.int64)
    expected = [
        next((each for each in around(parents, start) if end[each] > most), -1)
        for start, most in zip(row.tolist(), limit.tolist(), strict=True)
    ]
    found = climb(np.array(parents, np.int64), row, lambda at: end[at] <= limit)
    assert found.tolist() == expected


def test_a_tower_takes_as_many_rounds_as_its_depth_has_bits() -> None:
    depth, looks = 9000, 0
    parent = np.arange(-1, depth - 1)

    def passes(at: np.ndarray) -> np.ndarray:
        nonlocal looks
        looks += 1
        return at > 3

    assert climb(parent, np.array([depth - 1, 2, -1]), passes).tolist() == [3, 2, -1]
    assert looks <= 2 + depth.bit_length()
