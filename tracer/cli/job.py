"""Commands on the folder of a job: its report, and the trace of one of its ranks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tracer.cli.common import USAGE, chosen_trace, fail, progress, say
from tracer.cli.documents import print_json
from tracer.cli.output import check_output, print_report, write_output

if TYPE_CHECKING:
    from tracer.analysis.job import Job


def trace_or_rank(file: Path | None, rank: int | None) -> Path:
    """The file that was given, the newest trace here, or of the folder of a job the trace of this rank."""
    if file is not None and file.is_dir():
        return rank_of_folder(file, rank)
    if rank is not None:
        fail("--rank chooses a trace in the folder of a job; give the folder", USAGE)
    return chosen_trace(file)


def rank_of_folder(folder: Path, rank: int | None) -> Path:
    """The trace of this rank; ends the command if the folder has none."""
    from tracer.analysis.job import JobError
    from tracer.analysis.job.folder import trace_of_rank, traces_in

    try:
        if rank is None:
            number = len(traces_in(folder))
            fail(f"{folder} is a folder of {number} traces; choose one with --rank N, or give a file", USAGE)
        return trace_of_rank(folder, rank)
    except JobError as error:
        fail(str(error), USAGE)


def report_of_folder(
    folder: Path, output: Path | None, force: bool, rows: int | None, as_json: bool, html: bool
) -> None:
    """Write the report of the ranks in a folder."""
    if output is not None:
        check_output(output, force, html=html)
    job = _loaded(folder)
    if as_json:
        from tracer.analysis.fleet.in_memory import merged_tables
        from tracer.report.documents import fleet_document
        from tracer.report.job_tables import ROWS

        print_json(fleet_document(merged_tables(job, folder.absolute().name or "/"), rows or ROWS))
        return
    text = _written(job, folder.name or str(folder), rows, html)
    if output is None:
        print_report(text)
    else:
        write_output(output, text)
        if html:
            say(f"wrote {output}")


def _written(job: Job, name: str, rows: int | None, html: bool) -> str:
    if html:
        from tracer.report.html.job import render_job

        return render_job(job, name, rows)
    from tracer.report.job_page import job_page

    return job_page(job, name, rows)


def _loaded(folder: Path) -> Job:
    from tracer.analysis.job import JobError
    from tracer.analysis.job.folder import load_job
    from tracer.trace import TraceError

    with progress(f"reading {folder}"):
        try:
            return load_job(folder)
        except (JobError, TraceError) as error:
            fail(str(error), USAGE)
        except OSError as error:
            fail(f"cannot read {folder}: {error.strerror or error}", USAGE)
        except MemoryError:
            fail(f"not enough memory to read all of {folder}; one rank: tracer report {folder}/FILE")
