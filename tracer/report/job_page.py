"""The report of a job whose traces are in memory: the page of a fleet, with what only whole traces say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import polars as pl

from tracer.analysis.fleet.in_memory import merged_tables
from tracer.analysis.job import Job
from tracer.analysis.job.parting import partings
from tracer.analysis.source_lines import SourceLines
from tracer.report.cells import code, prose
from tracer.report.fleet_page import ranks_page
from tracer.report.job_tables import Tables


def job_page(job: Job, name: str, rows: int | None = None) -> str:
    """Markdown that ends in a newline; `name` is the folder as the user gave it."""
    environment = job.parts[0].trace.environment
    of = f"torch {prose(environment.get('torch'))}, Python {prose(environment.get('python'))}"
    tables = job_tables(job, name, merged_tables(job, name))
    return ranks_page(f"# {heading(job, prose(name), code)}\n\n{of}", tables, rows)


def heading(job: Job, name: str, shown: Callable[[str], str] = str) -> str:
    """`job: 2 of 2 ranks on vm`, each host as `shown`."""
    hosts = [shown(host) for host in sorted({part.host for part in job.parts})]
    return f"{name}: {len(job.parts)} of {job.ranks} ranks on {', '.join(hosts)}"


def job_tables(job: Job, name: str, merged: Tables) -> Tables:
    """The merged tables, and `partings`, which needs whole traces: a row for each rank whose path leaves the
    first rank's, see analysis.job.parting.Parting.
    """
    return {**merged, "partings": _partings(job, name)}


def _partings(job: Job, name: str) -> pl.DataFrame:
    lines = {part.rank: SourceLines.of(part.trace) for part in job.parts}
    first = job.parts[0].rank
    rows = [
        asdict(of)
        | {"job": name, "first_rank": first}
        | {"line": of.line and lines[of.rank].name(of.line)}
        | {"first_line": of.first_line and lines[first].name(of.first_line)}
        for of in partings(job.parts)
    ]
    return pl.DataFrame(rows, infer_schema_length=None)
