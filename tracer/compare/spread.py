"""Times with their spread, and the interval of a ratio of two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10

import numpy as np

_RESAMPLES = 2_000
_SEED = 0  # the same samples give the same interval
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of `samples` measurements, in nanoseconds."""

    median: float
    lower: float
    upper: float
    samples: int

    @classmethod
    def of(cls, times: Sequence[float]) -> Spread:
        lower, median, upper = np.percentile(np.asarray(times, float), [25, 50, 75]).tolist()
        return cls(median, lower, upper, len(times))


def ratio_text(value: float) -> str:
    """`0.87`; below 0.01 with two digits that are not 0, `0.0012`."""
    places = 2
    if 0 < value < 0.01:
        places = 1 - floor(log10(value))
    return f"{value:.{places}f}"


@dataclass(frozen=True)
class Ratio:
    """Median of stock over median of the override, with its 95 % interval: above 1 the override is faster."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, stock: Sequence[float], override: Sequence[float]) -> Ratio:
        """Of pairs measured next to each other: pair i is stock[i] and override[i].

        The interval is the percentile bootstrap's: pairs are drawn again, with replacement. Raises
        ValueError where the two differ in length or are empty.
        """
        pairs = np.array([stock, override], float)  # ValueError where lengths differ
        if pairs.ndim != 2 or not pairs.size:
            raise ValueError("a ratio needs pairs of measurements")
        count = pairs.shape[1]
        medians = np.median(pairs, axis=1)
        random = np.random.default_rng(_SEED)
        at_once = max(_BLOCK // count, 1)
        drawn = []
        for first in range(0, _RESAMPLES, at_once):
            rows = random.integers(0, count, (min(at_once, _RESAMPLES - first), count))
            drawn.append(np.median(pairs[:, rows], axis=2))
        with np.errstate(divide="ignore", invalid="ignore"):  # a time of 0 gives inf
            stock_medians, override_medians = np.concatenate(drawn, axis=1)
            low, high = np.percentile(stock_medians / override_medians, [2.5, 97.5]).tolist()
            return cls(float(medians[0] / medians[1]), low, high)
