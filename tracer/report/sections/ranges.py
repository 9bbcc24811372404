"""What each range of torch.profiler.record_function took."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracer.analysis.ranges import OF_TORCH, range_times
from tracer.report.cells import code, table
from tracer.report.page import Page, paragraphs
from tracer.report.reading import Reading, Rows
from tracer.report.text import duration, left_out

title = "Ranges"
level = 3

_ROWS = 40
_SAID = """\
The ranges that `torch.profiler.record_function` marked, in the script or in torch itself, each below the
range around it. Own: without the ranges inside."""
_TIMES = ("total", "own", "median", "p95", "longest")


@dataclass(frozen=True)
class Ranges:
    ranges: Rows


def wanted(reading: Reading) -> bool:
    """Not for torch's own ranges alone."""
    names = reading.trace.ranges["name"].cast(pl.String).unique()
    return bool((~names.str.contains(OF_TORCH, literal=True)).any())


def data(reading: Reading) -> Ranges:
    return Ranges(Rows.first(range_times(reading.trace.ranges), reading.rows or _ROWS))


def markdown(data: Ranges, page: Page) -> str:
    cells = [
        [
            "-> " * row["depth"] + code(row["name"]),
            f"{row['calls']:,}",
            *(duration(row[f"{name}_ns"]) for name in _TIMES),
        ]
        for row in data.ranges.rows
    ]
    titles = ["range", "calls:", *(f"{name}:" for name in _TIMES)]
    return paragraphs(_SAID, page.all_steps(), table(titles, cells) + left_out(data.ranges.left_out))
