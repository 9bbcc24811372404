"""The ranks of a job that are in one trace, side by side."""

from __future__ import annotations

from tracer.analysis.job import Job, job_of
from tracer.report.fleet_page import facts_in_words, sections
from tracer.report.job_page import job_tables
from tracer.report.page import Page, paragraphs
from tracer.report.reading import Reading

title = "Ranks of the job"
level = 2
_OF_THE_TRACE = ("Ops", "Device kernels", "Jobs")
"""Sections that the report of the trace has anyway"""


def wanted(reading: Reading) -> bool:
    return reading.trace.processes["rank"].drop_nulls().n_unique() > 1


def data(reading: Reading) -> Job:
    return job_of([reading.trace])


def markdown(data: Job, page: Page) -> str:
    tables = job_tables(data, page.name)
    parts = [
        paragraphs(f"### {title}", text)
        for title, text in sections(tables, page.rows)
        if title not in _OF_THE_TRACE
    ]
    return paragraphs(*facts_in_words(tables), *parts)
