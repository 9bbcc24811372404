"""Which steps of each run are compared, and how long they took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracer.analysis.step_times import recorded

if TYPE_CHECKING:
    from tracer.trace import Trace

Steps = tuple[list[int], list[int]]
"""Numbers and nanoseconds"""


@dataclass(frozen=True)
class ComparedSteps:
    """steady     whether only steady ones are compared
    numbers    of each run; None: a run has no steps, so whole runs are compared
    lengths    of each run, in nanoseconds; of a whole run one
    """

    steady: bool
    numbers: list[list[int] | None]
    lengths: list[list[int]]

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> ComparedSteps:
        steady = all("steady" in trace.steps["phase"].cast(str).to_list() for trace in traces)
        steps = [_steps(trace, steady) for trace in traces]
        if not all(numbers for numbers, _ in steps):
            return cls(False, [None] * len(steps), [_whole_run(trace) for trace in traces])
        later = _same_warm_up(steps)
        return cls(steady, [numbers for numbers, _ in later], [lengths for _, lengths in later])

    def count(self, runs: slice) -> int:
        """How many steps these runs have."""
        return sum(len(numbers or ()) for numbers in self.numbers[runs])


def _steps(trace: Trace, steady: bool) -> Steps:
    """The numbers and the lengths of the steps that are compared."""
    steps = trace.steps
    if steady:
        steps = steps.filter((steps["phase"].cast(str) == "steady").fill_null(False))
    return steps["step"].to_list(), (steps["end_ns"] - steps["start_ns"]).to_list()


def _whole_run(trace: Trace) -> list[int]:
    """From the first hop to the end of the last one; nothing of a trace without hops."""
    spans = recorded(trace).select(pl.col("end_ns").max() - pl.col("start_ns").min())
    return spans.to_series().drop_nulls().to_list()


def _same_warm_up(steps: list[Steps]) -> list[Steps]:
    """Without what one trace counts as warm-up and another does not: a slow program hides it."""
    first = max(min(numbers) for numbers, _ in steps)
    later = [
        (
            [number for number in numbers if number >= first],
            times[-sum(number >= first for number in numbers) :],
        )
        for numbers, times in steps
    ]
    return later if all(numbers for numbers, _ in later) else steps
