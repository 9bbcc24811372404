"""Of a dump of ranks: the collective that some wait for, and others did not reach."""

from __future__ import annotations

from tracer.report.fleet_page import missing_in_words, waits_in_words
from tracer.report.job_tables import Tables
from tracer.report.page import Page, paragraphs
from tracer.report.reading import Reading

title = "What ranks wait for"
level = 2


def wanted(reading: Reading) -> bool:
    dumped = reading.trace.certificate.get("dumped_ns") is not None
    return dumped and bool(reading.trace.processes["rank"].drop_nulls().len())


def data(reading: Reading) -> Tables:
    return reading.ranks


def markdown(data: Tables, page: Page) -> str:
    said = waits_in_words(data)
    return paragraphs(*said, *missing_in_words(data)) if said else ""
