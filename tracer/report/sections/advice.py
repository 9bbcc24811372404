"""What is worth changing: the rows of `tracer advise`."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.advice.advise import Advised, advise
from tracer.advice.steady import NoAdviceError
from tracer.analysis.source_lines import SourceLines
from tracer.report.advice_text import advice_table, heading
from tracer.report.page import Page, paragraphs
from tracer.report.reading import Reading

title = "Worth doing"
level = 2

_SAID = """\
Gains are bounds from the recorded times, or what `tracer advise --measure` measured last by running
recorded calls changed."""


@dataclass(frozen=True)
class Advice:
    """`found` is None where a trace gives no advice."""

    found: Advised | None
    sources: SourceLines


def wanted(reading: Reading) -> bool:
    return not reading.trace.steps.is_empty() and not reading.trace.only_ops


def data(reading: Reading) -> Advice:
    try:
        found = advise(reading.trace, reading.step_times)
    except NoAdviceError:
        found = None
    return Advice(found, SourceLines.of(reading.trace))


def markdown(data: Advice, page: Page) -> str:
    if data.found is None:
        return ""
    said = _SAID if data.found.rows else ""
    return paragraphs(f"{heading(data.found)}. {said}".strip(), advice_table(data.found, data.sources))
