"""The time that intervals cover together, against counting every nanosecond."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracer.analysis.cover import Cover

INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12)


def cover(intervals: list[tuple[int, int]]) -> Cover:
    starts = np.array([start for start, _ in intervals], np.int64)
    return Cover.of(starts, starts + np.array([length for _, length in intervals], np.int64))


@given(INTERVALS, st.lists(st.integers(0, 60), max_size=8))
def test_any_intervals(intervals: list[tuple[int, int]], times: list[int]) -> None:
    covered = {at for start, length in intervals for at in range(start, start + length)}
    found = cover(intervals)
    assert found.before(np.array(times, np.int64)).tolist() == [
        sum(at < time for at in covered) for time in times
    ]
    assert (found.starts[1:] > found.ends[:-1]).all()
    for begin, end, first, last in zip(found.starts, found.ends, found.first, found.last, strict=True):
        assert intervals[first][0] == begin
        assert sum(intervals[last]) == end


def test_an_interval_within_another_one_ends_nothing() -> None:
    found = cover([(0, 10), (2, 3), (20, 5)])
    assert (found.starts.tolist(), found.ends.tolist()) == ([0, 20], [10, 25])
    assert (found.first.tolist(), found.last.tolist()) == ([0, 2], [0, 2])


def test_no_interval() -> None:
    assert cover([]).within(np.array([0]), np.array([9])).tolist() == [0]


@given(INTERVALS, INTERVALS)
def test_what_one_covers_and_another_does_not(
    mine: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    def moments(intervals: list[tuple[int, int]]) -> set[int]:
        return {at for start, length in intervals for at in range(start, start + length)}

    starts, ends = cover(mine).without(cover(others))
    found = [at for start, end in zip(starts, ends, strict=True) for at in range(start, end)]
    assert found == sorted(moments(mine) - moments(others))
    assert (starts[1:] > ends[:-1]).all(), "pieces that touch are one"
