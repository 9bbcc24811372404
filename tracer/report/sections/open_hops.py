"""Hops that had not finished when the recording ended."""

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


def wanted(reading: Reading) -> bool:
    return bool(reading.trace.hops["open"].any())


def data(reading: Reading) -> OpenHops:
    return OpenHops(Rows.first(surveys.open_hops(reading.hops), reading.most))


def markdown(data: OpenHops, page: Page) -> str:
    said = "These hops had not finished when the recording ended: what each thread was running."
    return paragraphs(said, page.table(_COLUMNS, data.hops))
