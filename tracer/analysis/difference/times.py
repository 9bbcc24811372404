"""Times of two recordings: medians over steps, and what their ratio can say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_RESAMPLES, _SEED = 2_000, 0  # the same samples give the same interval
_LEAST_SAMPLES = 3


@dataclass(frozen=True)
class Interval:
    """The ratio of two medians, after / before, with its 95 % interval by bootstrap."""

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """slower, faster or no change: what the interval can tell."""
        return "slower" if self.low > 1 else "faster" if self.high < 1 else "no change"


@dataclass(frozen=True)
class Times:
    """Medians in nanoseconds of a step, or of what a step spends in some op calls."""

    before: float | None
    after: float | None
    ratio: Interval | None
    """None if one side has fewer than three steps, or took no time before"""

    @property
    def change_ns(self) -> float:
        return (self.after or 0) - (self.before or 0)


NO_TIMES = Times(None, None, None)


def times_of(before: Sequence[int], after: Sequence[int]) -> Times:
    """Of the nanoseconds of each step on both sides; an empty side has no median."""
    medians = [float(np.median(times)) if len(times) else None for times in (before, after)]
    ratio = None
    if min(len(before), len(after)) >= _LEAST_SAMPLES and medians[0]:
        ratio = _ratio(np.array(before, float), np.array(after, float))
    return Times(medians[0], medians[1], ratio)


def times_by_name(
    before: Mapping[str, Sequence[int]], after: Mapping[str, Sequence[int]]
) -> dict[str, Times]:
    """Of each name; the largest change first."""
    times = {
        name: times_of(before.get(name, []), after.get(name, [])) for name in dict.fromkeys([*before, *after])
    }
    return dict(sorted(times.items(), key=lambda item: -abs(item[1].change_ns)))


def _ratio(before: np.ndarray, after: np.ndarray) -> Interval:
    """Steps of each side are drawn again, with replacement; the two sides are independent."""
    random = np.random.default_rng(_SEED)
    drawn = [
        np.median(times[random.integers(0, len(times), (_RESAMPLES, len(times)))], axis=1)
        for times in (before, after)
    ]
    ratios = drawn[1] / np.maximum(drawn[0], 1e-9)
    low, high = np.percentile(ratios, [2.5, 97.5]).tolist()
    return Interval(float(np.median(after) / np.median(before)), low, high)
