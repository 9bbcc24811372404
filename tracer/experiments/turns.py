"""Three runs in turns: as it was, changed, and as it was once more."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tracer.compare.spread import Ratio
from tracer.compare.timing import Run, stopwatch, uncollected
from tracer.experiments.pairs import Pair

FEWEST, MOST = 9, 60
_ORDERS = ((0, 1, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0), (1, 0, 2), (0, 2, 1))
"""Each run is as often in each place, and as often before as after each other"""


@dataclass(frozen=True)
class Turns:
    """The time as it was over that with the change, and over that of the same again; `ns`: as it was."""

    ratio: Ratio
    again: Ratio
    ns: float


def in_turns(pair: Pair, seconds: float) -> Turns:
    """Samples of all three, side by side, for so long; 9 at least, 60 at most.

    Each has a call before it that is not timed: what ran before it left its caches cold.
    """
    timed = stopwatch(pair.device)
    runs: Sequence[Run] = (pair.before, pair.after, pair.again)
    for run in runs:
        run()
    taken: tuple[list[float], ...] = ([], [], [])
    until = time.monotonic() + seconds
    with uncollected():
        while len(taken[0]) < FEWEST or (len(taken[0]) < MOST and time.monotonic() < until):
            for number in _ORDERS[len(taken[0]) % len(_ORDERS)]:
                runs[number]()
                taken[number].append(timed(runs[number])[1])
    return Turns(Ratio.of(taken[0], taken[1]), Ratio.of(taken[0], taken[2]), median(taken[0]))


def joined(parts: Sequence[tuple[float, Ratio]]) -> tuple[float, float, float]:
    """The ratio of several calls that take `ns` of a step each: value, low, high."""
    whole = sum(ns for ns, _ in parts)
    return (
        whole / sum(ns / one.value for ns, one in parts),
        whole / sum(ns / one.low for ns, one in parts),
        whole / sum(ns / one.high for ns, one in parts),
    )
