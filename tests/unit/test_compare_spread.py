"""Medians, quartiles, and the interval of a ratio."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.compare.spread import Ratio, Spread

TIMES = st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 1e6)), min_size=1, max_size=20)


def test_median_and_quartiles() -> None:
    assert Spread.of([1, 2, 3, 4, 5]) == Spread(3, 2, 4, 5)
    assert Spread.of([7]) == Spread(7, 7, 7, 1)


def test_the_ratio_is_that_of_the_medians() -> None:
    ratio = Ratio.of([30, 10, 20], [5, 10, 100])
    assert ratio.value == 2
    assert ratio.low < 2 < ratio.high


def test_equal_times_have_a_ratio_of_one_with_no_doubt() -> None:
    assert Ratio.of([4.0] * 50, [4.0] * 50) == Ratio(1, 1, 1)


@given(TIMES)
def test_times_twice_as_long_double_the_ratio(pairs: list[tuple[float, float]]) -> None:
    stock, override = (list(side) for side in zip(*pairs, strict=True))
    once, twice = Ratio.of(stock, override), Ratio.of([2 * time for time in stock], override)
    assert [twice.value, twice.low, twice.high] == pytest.approx(
        [2 * once.value, 2 * once.low, 2 * once.high]
    )


def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    inside, widths = 0, []
    for _ in range(60):
        stock = 1.3 * random.lognormal(0, 0.1, 50)
        ratio = Ratio.of(stock.tolist(), random.lognormal(0, 0.1, 50).tolist())
        inside += ratio.low <= 1.3 <= ratio.high
        widths.append(ratio.high - ratio.low)
    assert 53 <= inside <= 60
    assert np.median(widths) < 0.25


def test_noise_that_both_of_a_pair_have_does_not_widen_the_interval() -> None:
    random = np.random.default_rng(2)
    stock = 2 * random.lognormal(0, 0.2, 50)
    alone = Ratio.of(stock.tolist(), random.lognormal(0, 0.2, 50).tolist())
    shared = Ratio.of(stock.tolist(), (stock / 2).tolist())
    assert shared == Ratio(2, 2, 2)
    assert alone.high - alone.low > 0.05


@pytest.mark.parametrize("times", [([], []), ([1.0], [1.0, 2.0])])
def test_what_are_no_pairs_is_refused(times: tuple[list[float], list[float]]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Ratio.of(*times)


def test_a_time_of_zero_does_not_end_in_an_exception() -> None:
    assert Ratio.of([1.0, 1.0], [0.0, 0.0]).value == np.inf
