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


def times_of(before: Sequence[float], after: Sequence[float]) -> Times:
    """From the nanoseconds of each step on both sides; an empty side has no median."""
    medians = [float(np.median(times)) if len(times) else None for times in (before, after)]
    ratio = None
    if min(len(before), len(after)) >= _LEAST_SAMPLES and medians[0]:
        ratio = _ratio(np.array(before, float), np.array(after, float))
    return Times(medians[0], medians[1], ratio)


@dataclass(frozen=True)
class Both:
    """Host and GPU time; the latter has no figures unless both traces have CUDA."""

    times: Times
    gpu: Times

    @property
    def change_ns(self) -> float:
        return max(abs(self.times.change_ns), abs(self.gpu.change_ns))


Steps = Mapping[str, Sequence[int]]
"""name -> time of each step"""


def times_by_name(host: tuple[Steps, Steps], gpu: tuple[Steps, Steps]) -> dict[str, Both]:
    """name -> its times on both sides, the largest change first."""
    found = {
        name: Both(*(times_of(*(side.get(name, []) for side in sides)) for sides in (host, gpu)))
        for name in dict.fromkeys([*host[0], *host[1]])
    }
    return dict(sorted(found.items(), key=lambda item: -item[1].change_ns))


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
