"""Hops that raised an exception."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis import surveys
from tracer.report.page import Column, Page, paragraphs
from tracer.report.reading import Reading, Rows

title = "Exceptions"
level = 2

_COLUMNS: list[Column] = [
    ("raised in", "op", "code"),
    ("key", "key", "code"),
    ("kernel", "kernel", "function"),
    ("line", "source", "line"),
    ("left", "left", "code"),
    ("then", "caught_in", "caught"),
    ("times:", "count", "count"),
]


@dataclass(frozen=True)
class Exceptions:
    hops: Rows


def wanted(reading: Reading) -> bool:
    return bool(reading.trace.hops["raised"].any())


def data(reading: Reading) -> Exceptions:
    return Exceptions(Rows.first(surveys.exceptions(reading.hops), reading.most))


def markdown(data: Exceptions, page: Page) -> str:
    said = "Hops that raised an exception, the outermost op that it left, and where it was caught."
    return paragraphs(said, page.table(_COLUMNS, data.hops))
