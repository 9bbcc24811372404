"""`tracer fleet`: the traces of many ranks as tables and one report."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracer.cli.common import USAGE, fail, one_of, progress, say, writing
from tracer.cli.documents import AsJson, print_json
from tracer.cli.help import MORE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracer.base.folder import Folder
    from tracer.fleet.gather import Engine, Gathered
    from tracer.fleet.parts import Parts
    from tracer.fleet.traces import TraceFile
    from tracer.report.job_tables import Tables

_OUT = Path("fleet")
_REPORT = "report.md"


def fleet(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            help="Traces, folders of traces, or URLs (default: merge OUT again).", metavar="PATH..."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="OUT", help=f"The folder for tables and report.md (default: {_OUT})."
        ),
    ] = None,
    engine: Annotated[
        str,
        one_of(
            "--engine",
            ("processes", "ray"),
            "Who reads traces: this machine, or a Ray cluster.",
        ),
    ] = "processes",
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", metavar="N", min=1, help="Processes (default: one per processor)."),
    ] = None,
    job: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the job (default: that of the folder).")
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where copies of remote traces go.", rich_help_panel=MORE),
    ] = None,
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", min=1, help="Rows per table of the report.")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """Merge the traces of many ranks into tables and one report.

    Each trace is read once and becomes small Parquet files below OUT/part, which are
    merged into OUT/TABLE.parquet and OUT/report.md: incomplete ranks first, who came
    last and why, which ranks are slow, what differs between ranks. Run it again with
    more traces: only new and changed ones are read.

    Exit status 1 if a trace could not be read.

    \b
    Examples:
      tracer fleet job/
      tracer fleet run1/ run2/ -o compared -j 4
      tracer fleet 's3://bucket/job/*.trace' --scratch /local/tmp
      tracer fleet job/ --json | jq '.late[0]'
    \f
    The files are OUT/part/job=J/host=H/rank=R/TABLE.parquet. They stay when their
    traces are deleted. tracer fleet -o OUT merges them again.

    URLs (s3://, gs://, ...) need fsspec and the package of their protocol. Such a
    trace is copied to DIR, and the copy is deleted after it was read.

    With --engine ray a Ray cluster reads the traces: the one that runs here or that
    RAY_ADDRESS names, else a new one on this machine. Each node needs tracer, and
    must see the traces under the same paths.
    """
    if scratch is not None and not scratch.is_dir():
        fail(f"--scratch {scratch} is not a folder; create it first", USAGE)
    named, output = output is not None, output or _OUT
    if not named and output.is_symlink():
        fail(f"{output} is a link; name it, or another folder: -o OUT", USAGE)
    _check(output, bool(paths))
    from tracer.base.folder import Folder
    from tracer.fleet.fleet_errors import FleetError
    from tracer.fleet.gather import gather
    from tracer.fleet.parts import Parts
    from tracer.fleet.traces import find

    parts = Parts(output, named)
    try:
        traces = find(paths or [], job)
        chosen = _engine(engine, jobs, len(traces))
        output.mkdir(exist_ok=True)
        with progress(f"reading {len(traces):,} traces"):
            place = str(scratch) if scratch else None
            found = gather(parts, traces, chosen, place, say, _counter(len(traces)))
        with progress("merging"):
            tables, page = _merged(parts, output, rows)
            with Folder(output, named=named) as folder:
                _write(folder, tables, page)
    except FleetError as error:
        fail(str(error), USAGE)
    except OSError as error:
        fail(f"cannot write {output}: {error.strerror or error}")
    _tell(found, tables, output, rows if as_json else None)


def _check(output: Path, new: bool) -> None:
    if ":/" in str(output):
        fail(f"-o {output}: tables are written to this machine; give a local folder", USAGE)
    if output.exists() and not output.is_dir():
        fail(f"{output} is a file; give a folder with -o", USAGE)
    if not new and not (output / "part").is_dir():
        fail(f"{output} has no parts; give traces, or folders of traces: tracer fleet PATH...", USAGE)
    if output.is_dir() and not (output / "part").is_dir() and any(output.iterdir()):
        fail(f"{output} holds other files; give a new folder with -o", USAGE)
    if not output.absolute().parent.is_dir():
        fail(f"folder {output.parent} does not exist; create it first", USAGE)


def _engine(name: str, jobs: int | None, traces: int) -> Engine:
    if name == "ray":
        from tracer.fleet.on_ray import OnRay

        if jobs is not None:
            fail("-j applies to --engine processes; a Ray cluster has as many as its processors", USAGE)
        return OnRay(say)
    from tracer.fleet.processes import Processes

    return Processes(max(1, min(jobs or len(os.sched_getaffinity(0)), traces)))


def _counter(traces: int) -> Callable[[TraceFile], None]:
    """Says how far it is, each time a trace is done."""
    from tracer.base.progress import done

    numbers = itertools.count(1)
    return lambda _: done(min(next(numbers), traces), traces)


def _merged(parts: Parts, output: Path, rows: int) -> tuple[Tables, str]:
    from tracer.analysis.fleet.merge import merge
    from tracer.report.fleet_page import fleet_page
    from tracer.trace.bytes.damage import DamagedError, whole

    kept = parts.all()
    if not kept:
        fail("no trace was read so far; give traces, or folders of traces", USAGE)
    try:
        tables = whole(merge, kept)
        page = whole(fleet_page, tables, rows)
    except DamagedError as error:
        why = " ".join(str(error).split())
        fail(f"cannot merge {output / 'part'}: {why}; delete that part, and give its trace again")
    return tables, page


def _write(folder: Folder, tables: Tables, page: str) -> None:
    """Each file whole; an older one stays until the new one is. Raises OSError."""
    from tracer.fleet.work import parquet
    from tracer.report.github import for_github

    for name, table in tables.items():
        folder.write(f"{name}.parquet", parquet(table))
    folder.write(_REPORT, for_github(page).encode())


def _tell(found: Gathered, tables: Tables, output: Path, json_rows: int | None) -> None:
    from tracer.base.visible import visible
    from tracer.cli.output import for_stdout
    from tracer.report.documents import fleet_document
    from tracer.report.fleet_page import heading, in_words
    from tracer.report.text import count

    known = f", {found.known:,} read before" if found.known else ""
    say(f"{count(found.read, 'trace')} read{known}, {len(found.errors):,} could not be read")
    if json_rows is not None:
        print_json(fleet_document(tables, json_rows))
    else:
        with writing():
            for line in (heading(tables), *in_words(tables)):
                print(for_stdout(visible(line.replace("**", "").replace("`", "").replace("\\", ""))))
    say(f"wrote {output / _REPORT} and {len(tables)} tables beside it")
    if found.errors:
        raise typer.Exit(1)
