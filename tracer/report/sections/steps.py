"""Where the wall time of each step went."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracer.analysis.step_times import OUTLIER
from tracer.report.cells import prose, table
from tracer.report.page import Page, paragraphs
from tracer.report.reading import Reading
from tracer.report.step_tables import (
    MOST_STEPS,
    about_busy,
    about_modules,
    chosen_steps,
    step_cells,
    step_titles,
    summary,
)
from tracer.report.text import count

title = "Steps"
level = 2

_ENDS = """\
A step ends when `optimizer.step()` returns (within `backward()`: when that does) or the script calls
`tracer.step()`."""
_PARTS = """\
The parts add up to the wall time. **forward**, **backward** and **optimizer** are
their ops and the time between these; **elsewhere** is the rest, in other ops and outside. **Outside
ops** is all time when no thread was in an op, in whichever part: Python, sleeping, reading files."""
_WITHOUT = """\
No step ended in this recording: the row is the time from the first op to the last. To see steps, call
`tracer.step()` at the end of each iteration. **Outside ops** is the time when no thread was in an op."""

_ONLY_OPS = "Recorded with `--ops`: what other ops took counts as **elsewhere**, and as time outside ops."


@dataclass(frozen=True)
class StepTimes:
    """`steps`: rows of analysis.step_times.step_times; `left_out`: how many more there are."""

    steps: pl.DataFrame
    left_out: int
    summary: str
    busy: str
    counted: bool
    only_ops: bool


def wanted(reading: Reading) -> bool:
    return bool(len(reading.trace.hops))


def data(reading: Reading) -> StepTimes:
    steps = reading.step_times
    chosen = chosen_steps(steps, reading.rows or MOST_STEPS)
    counted = steps["step"].null_count() < len(steps)
    return StepTimes(
        chosen,
        len(steps) - len(chosen),
        summary(steps),
        about_busy(steps),
        counted,
        bool(reading.trace.only_ops),
    )


def _told(steps: pl.DataFrame) -> str:
    by_modules = prose(about_modules(steps))
    return f"{by_modules}: nothing else marked a step." if by_modules else _ENDS


def markdown(data: StepTimes, page: Page) -> str:
    marked = data.steps.filter(pl.col("of_median") >= OUTLIER)
    bold = f"Bold: {OUTLIER} times the median or more." if len(marked) else ""
    rest = f"{count(data.left_out, 'shorter step')} left out." if data.left_out else ""
    return paragraphs(
        f"{_told(data.steps)} {_PARTS}" if data.counted else _WITHOUT,
        _ONLY_OPS if data.only_ops else "",
        data.summary,
        data.busy,
        table(step_titles(data.steps), step_cells(data.steps, lambda text: f"**{text}**")),
        " ".join(text for text in (bold, rest) if text),
    )
