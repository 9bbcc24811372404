"""The ranks of a job that are in one trace, side by side."""

from __future__ import annotations

from tracer.analysis.job import Job, job_of
from tracer.report.job_tables import job_parts
from tracer.report.page import Page, paragraphs
from tracer.report.reading import Reading

title = "Ranks of the job"
level = 2


def wanted(reading: Reading) -> bool:
    return reading.trace.processes["rank"].drop_nulls().n_unique() > 1


def data(reading: Reading) -> Job:
    return job_of([reading.trace])


def markdown(data: Job, page: Page) -> str:
    return paragraphs(
        *(
            paragraphs(f"### {title}" if title else "", text)
            for title, text in job_parts(data, page.rows, hangs=False)
        )
    )
