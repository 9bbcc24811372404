"""The innermost interval at each moment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tracer.analysis.spans import OUTSIDE, spans


def told(intervals: list[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int, int]]:
    found = spans([one for one, _ in intervals], [one for _, one in intervals], begin, end)
    return list(zip(found.starts, found.ends, found.owners, strict=True))


def test_the_innermost_has_the_time() -> None:
    assert told([(10, 50), (20, 30)], 0, 60) == [
        (0, 10, -1),
        (10, 20, 0),
        (20, 30, 1),
        (30, 50, 0),
        (50, 60, -1),
    ]


def test_intervals_are_cut_to_the_time_and_to_those_around_them() -> None:
    assert told([(0, 50), (20, 70)], 10, 60) == [(10, 20, 0), (20, 50, 1), (50, 60, -1)]
    assert told([(0, 5), (70, 80)], 10, 60) == [(10, 60, -1)]


def test_of_equal_intervals_the_first_is_the_outer_one() -> None:
    found = spans([10, 10], [20, 20], 0, 30)
    assert found.parents == [OUTSIDE, 0]
    assert found.owners == [OUTSIDE, 1, OUTSIDE]


def test_neighbours_are_not_inside_each_other() -> None:
    assert spans([10, 20], [20, 30], 0, 40).parents == [OUTSIDE, OUTSIDE]


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 60)), max_size=20), st.integers(0, 50))
def test_pieces_have_no_holes(drawn: list[tuple[int, int]], begin: int) -> None:
    end = begin + 60
    pieces = told([(start, start + length) for start, length in drawn], begin, end)
    assert sum(stop - start for start, stop, _ in pieces) == 60
    assert [stop for _, stop, _ in pieces[:-1]] == [start for start, _, _ in pieces[1:]]
    for start, stop, owner in pieces:
        if owner >= 0:
            assert drawn[owner][0] <= start < stop <= sum(drawn[owner])
