"""How fast the machine was in each run: what happened to lines that did not change."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

Name = TypeVar("Name", bound=Hashable)
_LEAST_LINES = 4
_LEAST_MOVED = 1.05  # else the machine was as fast
_SAME_FACTOR = 2.0  # from the lowest to the highest of the middle half
_LEAST_SHARE = 0.005  # of a step: shorter lines are mostly noise


@dataclass(frozen=True)
class Pace:
    """after / before of the unchanged lines, and of the time outside ops between such lines.

    value        the median of them
    low, high    the middle half: one line that changed without a trace of it does not count
    runs         of each run of both sides, how long these lines took, as a factor of what they take in all
    """

    lines: int
    value: float
    low: float
    high: float
    runs: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())

    @property
    def uniform(self) -> bool:
        """Whether they all became slower, or all faster, by about the same factor: the whole run did."""
        moved = self.low >= _LEAST_MOVED or self.high <= 1 / _LEAST_MOVED
        return moved and self.high <= self.low * _SAME_FACTOR

    @property
    def limits(self) -> tuple[float, float]:
        """Between these a ratio says nothing of a single line: one process differs by 5 % from the next."""
        return min(1 / _LEAST_MOVED, self.low), max(_LEAST_MOVED, self.high)

    @property
    def apart(self) -> tuple[float, float]:
        """How far the lines are from each other, whatever all of them did."""
        return self.low / self.value, self.high / self.value


def pace_of(runs: Sequence[Sequence[Mapping[Name, float]]], step_ns: float) -> Pace | None:
    """From what each unchanged line takes in each run of both sides; None: too few of them take time.

    Only lines that all runs have count, and that take time in a step of `step_ns`: if no_grad() changes
    all but five lines of 1 us, these five are not the machine.
    """
    names = [name for name in runs[0][0] if all(run.get(name) for side in runs for run in side)]
    if not names:
        return None
    times = [np.array([[run[name] for name in names] for run in side]) for side in runs]  # runs x lines
    before = np.median(times[0], axis=0)
    long = before > _LEAST_SHARE * step_ns
    if long.sum() < _LEAST_LINES:
        return None
    before, after = (side[:, long] for side in times)
    ratios = np.sort(np.median(after, axis=0) / np.median(before, axis=0))
    quarter = len(ratios) // 4
    middle = ratios[quarter : len(ratios) - quarter]
    usual = np.median(np.concatenate([before, after]), axis=0)
    of_runs = [tuple(np.median(side / usual, axis=1).tolist()) for side in (before, after)]
    return Pace(
        len(ratios), float(np.median(ratios)), float(middle[0]), float(middle[-1]), (of_runs[0], of_runs[1])
    )
