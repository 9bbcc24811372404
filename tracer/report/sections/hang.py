"""Of a dump of ranks: the collective that some wait for, and others did not reach."""

from __future__ import annotations

from tracer.analysis.fleet.in_memory import tables_of
from tracer.analysis.job import Job, job_of
from tracer.report.fleet_page import missing_in_words, waits_in_words
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
    tables = tables_of(data, page.name)
    said = waits_in_words(tables)
    return paragraphs(*said, *missing_in_words(tables)) if said else ""
