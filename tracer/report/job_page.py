"""The report of a job of several ranks, as a markdown page."""

from __future__ import annotations

from tracer.analysis.job import Job
from tracer.report.cells import prose
from tracer.report.job_tables import job_parts
from tracer.report.page import paragraphs


def job_page(job: Job, name: str, rows: int | None = None) -> str:
    """Markdown that ends in a newline; `name` is the folder as the user gave it."""
    hosts = sorted({part.host for part in job.parts})
    head = f"# {prose(name)}: {len(job.parts)} of {job.ranks} ranks on {', '.join(map(prose, hosts))}"
    environment = job.parts[0].trace.environment
    of = f"torch {prose(environment.get('torch'))}, Python {prose(environment.get('python'))}"
    parts = [paragraphs(f"## {title}" if title else "", text) for title, text in job_parts(job, rows)]
    return paragraphs(head, of, *parts) + "\n"
