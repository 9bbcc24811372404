"""The ranks of a job that are in one trace, side by side."""

from __future__ import annotations

from tracer.report.fleet_page import facts_in_words, sections
from tracer.report.job_page import job_tables
from tracer.report.job_tables import Tables
from tracer.report.page import Page, paragraphs
from tracer.report.reading import Reading

title = "Ranks of the job"
level = 2
_OF_THE_TRACE = ("Ops", "Device kernels", "Jobs")
"""Sections that the report of the trace has anyway"""


def wanted(reading: Reading) -> bool:
    return reading.trace.processes["rank"].drop_nulls().n_unique() > 1


def data(reading: Reading) -> Tables:
    return job_tables(reading.job, reading.name, reading.ranks)


def markdown(data: Tables, page: Page) -> str:
    parts = [
        paragraphs(f"### {title}", text)
        for title, text in sections(data, page.rows)
        if title not in _OF_THE_TRACE
    ]
    return paragraphs(*facts_in_words(data), *parts)
