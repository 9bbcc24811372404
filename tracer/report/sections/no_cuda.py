"""Said in the report of one part if the trace has no CUDA."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.report.page import Page
from tracer.report.reading import Reading

title = "No CUDA activity"
level = 2


@dataclass(frozen=True)
class Nothing:
    """There is nothing to say of it."""


def wanted(reading: Reading) -> bool:
    return not reading.has_cuda


def data(reading: Reading) -> Nothing:
    return Nothing()


def markdown(data: Nothing, page: Page) -> str:
    return "This trace has no CUDA call and no GPU activity."
