"""Steps of a program (training steps): which one a moment belongs to, and when they have settled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.arrays import concatenate, low
from tracer.trace.bytes.events import EventBlock
from tracer.trace.bytes.threads import Span
from tracer.trace.tables.schema import STEPS
from tracer.trace.tables.series import nanoseconds, slices

PHASES = ["warmup", "steady"]
FEWEST_STEPS = 3
"""The fewest steps of a process in which warm-up and steady steps can be distinguished"""
_SLOW = 1.5
"""A warm-up step takes longer than this many medians of the later steps."""

Index = NDArray[np.int64]


class Clocks(NamedTuple):
    """What the threads that ended steps had of the processor then, since they began, in ns; -1: not known."""

    thread: Index
    cpu: Index
    ready: Index
    """How long they were ready to run while others ran"""

    def of_steps(self) -> tuple[list[int | None], list[int | None]]:
        """`cpu` and `ready` of each step alone; None: not known, or another thread ended the step before."""
        same = np.append(False, self.thread[1:] == self.thread[:-1])

        def each(values: Index) -> list[int | None]:
            known = same & (values >= 0) & np.append(False, values[:-1] >= 0)
            passed = np.maximum(np.diff(values, prepend=0), 0)
            return [
                value if one else None for value, one in zip(passed.tolist(), known.tolist(), strict=True)
            ]

        return each(self.cpu), each(self.ready)


class StepEnds(NamedTuple):
    """The ends of steps of a process in order, and how many steps had ended then.

    `since`: when the first of them began, if something was recorded before that is of no step; else 0.
    `module`: the outermost module whose calls they are; "": the script or an optimizer said when they end.
    `clocks`: None if nobody said what the threads that ended them had of the processor.
    """

    times: Index
    numbers: Index
    since: int = 0
    module: str = ""
    clocks: Clocks | None = None

    @classmethod
    def of_all(cls, times: Index) -> StepEnds:
        """The ends of steps that were never counted: all of them, in any order."""
        return cls(np.sort(times), np.arange(1, len(times) + 1))

    @classmethod
    def of_counted(cls, said: list[StepEnds]) -> StepEnds:
        """What the threads of a process said. Of a script that began to count again, the last count."""
        times = concatenate([part.times for part in said], np.int64)
        numbers = concatenate([part.numbers for part in said], np.int64)
        each = zip(*(part.clocks for part in said if part.clocks), strict=True)
        clocks = [concatenate(list(columns), np.int64) for columns in each]
        order = np.argsort(times, kind="stable")
        since = 0
        if len(begins := np.flatnonzero(numbers[order] == 0)):
            since, order = int(times[order[begins[-1]]]), order[begins[-1] + 1 :]
        begun_again = np.flatnonzero(np.diff(numbers[order]) <= 0)
        order = order[int(begun_again[-1]) + 1 if len(begun_again) else 0 :]
        ordered = Clocks(*(column[order] for column in clocks)) if clocks else None
        return cls(times[order], numbers[order], since, clocks=ordered)

    def in_nanoseconds(self, to_ns: float) -> StepEnds:
        """The same, whose times are ticks here."""
        since, *times = nanoseconds(np.append(self.since, self.times), to_ns).tolist()
        return self._replace(times=np.array(times, np.int64), since=since)

    @property
    def first(self) -> int:
        """The first step: the one that had begun when the recording did."""
        return int(self.numbers[0]) - 1

    def span(self, step: int) -> tuple[int, int] | None:
        """Where a step begins (0: with the recording) and ends; None: it did not end."""
        at = np.flatnonzero(self.numbers == step + 1)
        if not len(at):
            return None
        return int(self.times[at[0] - 1]) if at[0] else self.since, int(self.times[at[0]])


def said_steps(block: EventBlock, span: Span) -> StepEnds:
    """The ends of steps that a thread said in a stretch of a lane."""
    kind = block.kind[span.others]
    at = np.flatnonzero(kind == fmt.STEP) + span.others.start
    before = np.maximum(at - 1, span.others.start)
    timed = block.kind[before] == fmt.THREAD_TIME

    def clock(words: NDArray[np.uint64]) -> Index:
        known = timed & (words[before] < fmt.UNKNOWN_TIME)
        return np.where(known, words[before].astype(np.int64), -1)

    clocks = Clocks(np.full(len(at), span.thread), clock(block.first), clock(block.second))
    return StepEnds(block.other_ticks[at], low(block.first[at]).astype(np.int64), clocks=clocks)


@dataclass(frozen=True)
class Steps:
    """The steps of one process: each is what ran before it was said to have ended."""

    ends: StepEnds
    first_steady: int
    """Of the recorded steps the first after the last warm-up step; -1: too few steps to tell"""
    begin: int = 0
    """When the process did the first thing that was recorded"""

    @property
    def _earliest(self) -> int:
        """What began before is of no recorded step. Ranges may have, if a later step is the first one."""
        return max(self.begin, self.ends.since) if self.ends.first else self.ends.since

    def at(self, times: Index) -> tuple[Index, Index]:
        """The step of each moment, and its index in PHASES; -1: none."""
        place = np.searchsorted(self.ends.times, times, "right")
        step = np.append(self.ends.numbers - 1, -1)[place]
        step = np.where(times < self._earliest, -1, step)
        if self.first_steady < 0:
            return step, np.full(len(step), -1, np.int64)
        return step, np.where(step < 0, -1, place >= self.first_steady)


def find_steps(
    ends: Mapping[int, StepEnds], begins: Mapping[int, int], warming: Mapping[int, Index]
) -> dict[int, Steps]:
    """The steps of each process that said when they ended.

    `begins`: when each process did the first thing that was recorded. `warming`: when it allocated
    device memory or loaded code.
    """
    nothing = np.empty(0, np.int64)
    return {
        process: Steps(
            known,
            _first_steady(
                known.times,
                max(begins.get(process, 0), known.since),
                warming.get(process, nothing),
            ),
            max(begins.get(process, 0), known.since),
        )
        for process, known in ends.items()
        if len(known.times)
    }


def steps_table(steps: Mapping[int, Steps]) -> pl.DataFrame:
    """A row for each step that ended, in order of process and time.

    The first recorded step of a process begins with the first thing that was recorded.
    """
    rows = []
    for process, known in sorted(steps.items()):
        nothing: list[int | None] = [None] * len(known.ends.times)
        cpu, ready = known.ends.clocks.of_steps() if known.ends.clocks else (nothing, nothing)
        begins = [min(known.begin, int(known.ends.times[0])), *known.ends.times[:-1].tolist()]
        for place, (number, begin, end) in enumerate(
            zip(known.ends.numbers.tolist(), begins, known.ends.times.tolist(), strict=True)
        ):
            phase = None if known.first_steady < 0 else PHASES[place >= known.first_steady]
            rows.append(
                (process, number - 1, phase, begin, end, known.ends.module or None, cpu[place], ready[place])
            )
    return pl.DataFrame(rows, STEPS, orient="row")


def steps_of_rows(
    steps: Mapping[int, Steps], process: NDArray[np.uint32], times: Index
) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """Step and phase of rows that are ordered by process; -1: none."""
    step, phase = np.full(len(times), -1, np.int32), np.full(len(times), -1, np.int8)
    for number, of_process in steps.items():
        first, last = np.searchsorted(process, [number, number + 1])
        for part in slices(last - first):
            rows = slice(first + part.start, min(first + part.stop, last))
            step[rows], phase[rows] = of_process.at(times[rows])
    return step, phase


def _first_steady(ends: Index, begin: int, warming: Index) -> int:
    """The last warm-up step is looked for in the first half of the steps.

    It is longer than usual in the second half, or memory was allocated or code loaded in it.
    """
    count = len(ends)
    if count < FEWEST_STEPS:
        return -1
    durations = np.diff(ends, prepend=begin)
    half = count // 2
    slow = durations[:half] > _SLOW * np.median(durations[half:])
    in_step = np.searchsorted(ends, warming, "right")
    slow[in_step[in_step < half]] = True
    return int(np.flatnonzero(slow)[-1]) + 1 if slow.any() else 0
