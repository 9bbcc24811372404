"""Hops that had not finished when the recording ended, or the trace was dumped."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis import surveys
from tracer.report.page import Column, Page, paragraphs
from tracer.report.reading import Reading, Rows

title = "Open at the end"
level = 2

_COLUMNS: list[Column] = [
    ("process:", "process", "text"),
    ("thread:", "thread", "text"),
    ("op", "op", "nested"),
    ("key", "key", "code"),
    ("kernel", "kernel", "function"),
    ("line", "source", "line"),
    ("open for:", "open_ns", "time"),
]


@dataclass(frozen=True)
class OpenHops:
    hops: Rows
    dumped: bool


def wanted(reading: Reading) -> bool:
    return bool(reading.trace.hops["open"].any())


def data(reading: Reading) -> OpenHops:
    dumped = reading.trace.certificate.get("dumped_ns") is not None
    return OpenHops(Rows.first(surveys.open_hops(reading.hops), reading.most), dumped)


def markdown(data: OpenHops, page: Page) -> str:
    when = "the trace was dumped" if data.dumped else "the recording ended"
    said = f"These hops had not finished when {when}: what each thread was running."
    return paragraphs(said, page.table(_COLUMNS, data.hops))
