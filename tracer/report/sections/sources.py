"""Time by the Python line that called."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis import surveys
from tracer.report.page import Column, Page, paragraphs
from tracer.report.reading import Reading, Rows

title = "Source lines"
level = 2

_SAID = """\
Outermost op calls by the Python line that made them. A backward op call counts at the forward line
that made its autograd node. AccumulateGrad has no forward op, so it counts at the line that called
backward()."""
_COLUMNS: list[Column] = [
    ("line", "source", "line"),
    ("calls:", "calls", "count"),
    ("hops:", "hops", "count"),
    ("forward:", "total_ns", "time"),
    ("backward calls:", "backward_calls", "count"),
    ("backward hops:", "backward_hops", "count"),
    ("backward:", "backward_ns", "time"),
]


@dataclass(frozen=True)
class Sources:
    sources: Rows
    in_ops_ns: int


def wanted(reading: Reading) -> bool:
    return bool(len(reading.trace.hops))


def data(reading: Reading) -> Sources:
    return Sources(Rows.first(surveys.per_source(reading.hops), reading.most), reading.time_in_ops_ns)


def markdown(data: Sources, page: Page) -> str:
    return paragraphs(_SAID, page.all_steps(), page.table(_COLUMNS, data.sources, data.in_ops_ns))
