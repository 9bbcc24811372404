"""Times of two sides, each of one run or several: medians, and what their ratio can say."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from tracer.analysis.difference.pace import Pace

SLOWER, FASTER, MACHINE, NO_CHANGE = "slower", "faster", "machine", "no change"
_RESAMPLES, _SEED = 2_000, 0  # the same samples give the same interval
_LEAST_SAMPLES = 3
Runs = Sequence[Sequence[float]]
"""Nanoseconds of each step, a list for each run"""


@dataclass(frozen=True)
class Interval:
    """The ratio of two medians, after / before, and how far chance may have moved it.

    One run a side: the 95 % interval by bootstrap over the steps.
    Several: the ratio, divided and multiplied by the factor that runs of one side differ by (times._by_runs).
    """

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """slower, faster or no change: what the interval can tell."""
        return SLOWER if self.low > 1 else FASTER if self.high < 1 else NO_CHANGE


@dataclass(frozen=True)
class Times:
    """Medians in nanoseconds of a step, or of what a step spends in some op calls.

    runs       the median of each run, of both sides; before and after are the medians of these
    verdict    slower, faster, machine (as much as the unchanged lines) or no change; "" without a ratio
    beside     the ratio if each run is measured by its unchanged lines; None: a side has one run
    """

    before: float | None
    after: float | None
    ratio: Interval | None
    """None if each side has one run and one has fewer than three steps, or took no time before"""
    runs: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    verdict: str = ""
    beside: Interval | None = None

    @property
    def change_ns(self) -> float:
        return (self.after or 0) - (self.before or 0)

    @property
    def factor(self) -> float | None:
        """after / before; None where a side took no time."""
        return self.after / self.before if self.before and self.after else None

    def judged(self, pace: Pace | None) -> Times:
        """Only what the unchanged lines do not show too is a change."""
        if self.ratio is None or pace is None:
            return self
        beside = self._beside(pace)
        beyond = _beyond(self.ratio, pace.limits) if beside is None else _beyond(beside, pace.apart)
        same_way = (self.ratio.value > 1) == (beyond == SLOWER)
        if beyond == NO_CHANGE and self.verdict != NO_CHANGE and pace.uniform:
            return replace(self, verdict=MACHINE, beside=beside)
        return replace(self, verdict=beyond if same_way else NO_CHANGE, beside=beside)

    def _beside(self, pace: Pace) -> Interval | None:
        if min(map(len, self.runs)) < 2:
            return None
        sides = zip(self.runs, pace.runs, strict=True)
        one, other = ([ns / of for ns, of in zip(*side, strict=True)] for side in sides)
        return _by_runs(one, other)


def times_of(before: Runs, after: Runs) -> Times:
    """A side without a step has no median."""
    sides = [[run for run in side if len(run)] for side in (before, after)]
    medians = [tuple(float(np.median(run)) for run in side) for side in sides]
    one, other = (float(np.median(side)) if side else None for side in medians)
    ratio = None
    if one and other is not None:
        ratio = _by_runs(*medians) if min(map(len, sides)) > 1 else _by_steps(*map(_all, sides))
    return Times(one, other, ratio, (medians[0], medians[1]), ratio.verdict if ratio else "")


def _beyond(ratio: Interval, limits: tuple[float, float]) -> str:
    return SLOWER if ratio.low > limits[1] else FASTER if ratio.high < limits[0] else NO_CHANGE


def spread(runs: Sequence[float]) -> float:
    """How many times as long as the shortest run the longest one took."""
    return max(runs) / min(runs) if min(runs) > 0 else np.inf


@dataclass(frozen=True)
class Both:
    """Host and GPU time; the latter has no figures unless all traces have CUDA."""

    times: Times
    gpu: Times

    @property
    def change_ns(self) -> float:
        return max(abs(self.times.change_ns), abs(self.gpu.change_ns))

    def judged(self, pace: Pace | None) -> Both:
        """GPUs do not slow down with the host."""
        return replace(self, times=self.times.judged(pace))


Name = TypeVar("Name", bound=Hashable)
Named = Mapping[Name, Runs]
"""name -> times of each step of each run"""


def times_by_name(
    host: tuple[Named[Name], Named[Name]], gpu: tuple[Named[Name], Named[Name]]
) -> dict[Name, Both]:
    """name -> its times on both sides, the largest change first."""
    found = {
        name: Both(*(times_of(*(side.get(name, []) for side in sides)) for sides in (host, gpu)))
        for name in dict.fromkeys([*host[0], *host[1]])
    }
    return dict(sorted(found.items(), key=lambda item: -item[1].change_ns))


def _all(runs: Runs) -> np.ndarray:
    return np.array([ns for run in runs for ns in run], float)


def _by_steps(before: np.ndarray, after: np.ndarray) -> Interval | None:
    """Steps of each side are drawn again, with replacement; the two sides are independent."""
    if min(len(before), len(after)) < _LEAST_SAMPLES:
        return None
    random = np.random.default_rng(_SEED)
    drawn = [
        np.median(times[random.integers(0, len(times), (_RESAMPLES, len(times)))], axis=1)
        for times in (before, after)
    ]
    ratios = drawn[1] / np.maximum(drawn[0], 1e-9)
    low, high = np.percentile(ratios, [2.5, 97.5]).tolist()
    return Interval(float(np.median(after) / max(np.median(before), 1e-9)), low, high)


def _by_runs(before: Sequence[float], after: Sequence[float]) -> Interval:
    """The sides must differ by more than runs of one side do.

    before 10, 11    after 15, 16    ->  the medians differ by 1.48 x, runs of a side by 1.10 x

    Two runs show less of their spread than more runs would, so theirs counts twice: 1.48 / 1.10 / 1.10.
    """
    widest = max(spread(side) ** (2 if len(side) == 2 else 1) for side in (before, after))
    value = float(np.median(after) / np.median(before))
    return Interval(value, value / widest, value * widest)
