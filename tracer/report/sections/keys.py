"""Time by dispatch key."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis import surveys
from tracer.report.page import Column, Page, paragraphs
from tracer.report.reading import Reading, Rows

title = "Dispatch keys"
level = 2

_COLUMNS: list[Column] = [
    ("key", "key", "code"),
    ("ops:", "ops", "count"),
    ("hops:", "hops", "count"),
    ("self:", "self_ns", "time"),
    ("self share:", "self_ns", "share"),
    ("median self:", "median_self_ns", "time"),
]


@dataclass(frozen=True)
class Keys:
    keys: Rows
    in_ops_ns: int


def wanted(reading: Reading) -> bool:
    return bool(len(reading.trace.hops))


def data(reading: Reading) -> Keys:
    return Keys(Rows.first(surveys.per_key(reading.trace.hops), reading.most), reading.time_in_ops_ns)


def markdown(data: Keys, page: Page) -> str:
    return paragraphs(page.all_steps(), page.table(_COLUMNS, data.keys, data.in_ops_ns))
