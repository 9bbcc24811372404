"""Time by op."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis import surveys
from tracer.report.page import Column, Page, paragraphs
from tracer.report.reading import Reading, Rows

title = "Ops"
level = 2

_COLUMNS: list[Column] = [
    ("op", "op", "code"),
    ("calls:", "calls", "count"),
    ("hops:", "hops", "count"),
    ("total:", "total_ns", "time"),
    ("self:", "self_ns", "time"),
    ("self share:", "self_ns", "share"),
    ("median:", "median_ns", "time"),
    ("p95:", "p95_ns", "time"),
    ("longest:", "longest_ns", "time"),
]


@dataclass(frozen=True)
class Ops:
    ops: Rows
    in_ops_ns: int


def wanted(reading: Reading) -> bool:
    return bool(len(reading.trace.hops))


def data(reading: Reading) -> Ops:
    return Ops(Rows.first(surveys.per_op(reading.trace.hops), reading.most), reading.time_in_ops_ns)


def markdown(data: Ops, page: Page) -> str:
    said = (
        "Total, median, p95 and longest count op calls with everything that they called. "
        "Self is the time of the op's own hops."
    )
    return paragraphs(said, page.all_steps(), page.table(_COLUMNS, data.ops, data.in_ops_ns))
