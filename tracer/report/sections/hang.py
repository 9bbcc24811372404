"""Of a dump of ranks: the collective that some wait for, and others did not reach."""

from __future__ import annotations

from tracer.analysis.job import Job, job_of
from tracer.report.job_tables import hangs_in_words, not_here
from tracer.report.page import Page, paragraphs
from tracer.report.reading import Reading

title = "What ranks wait for"
level = 2


def wanted(reading: Reading) -> bool:
    dumped = reading.trace.certificate.get("dumped_ns") is not None
    return dumped and bool(reading.trace.processes["rank"].drop_nulls().len())


def data(reading: Reading) -> Job:
    return job_of([reading.trace])


def markdown(data: Job, page: Page) -> str:
    said = hangs_in_words(data)
    return paragraphs(said, not_here(data)) if said else ""
