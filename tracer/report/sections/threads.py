"""What each thread ran."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis import surveys
from tracer.report.page import Column, Page, paragraphs
from tracer.report.reading import Reading, Rows

title = "Threads"
level = 2

_COLUMNS: list[Column] = [
    ("process:", "process", "text"),
    ("thread:", "thread", "text"),
    ("name", "name", "text"),
    ("calls:", "calls", "count"),
    ("hops:", "hops", "count"),
    ("in ops:", "total_ns", "time"),
    ("first:", "first_ns", "time"),
    ("last:", "last_ns", "time"),
]


@dataclass(frozen=True)
class Threads:
    threads: Rows


def wanted(reading: Reading) -> bool:
    return bool(len(reading.trace.hops))


def data(reading: Reading) -> Threads:
    names = reading.trace.threads.unique(["process", "thread"], keep="last")
    table = surveys.per_thread(reading.hops).join(
        names, on=["process", "thread"], how="left", maintain_order="left"
    )
    return Threads(Rows.first(table, reading.most))


def markdown(data: Threads, page: Page) -> str:
    return paragraphs(
        "First and last are times since the recording began.", page.table(_COLUMNS, data.threads)
    )
