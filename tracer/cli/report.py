"""`tracer report`: the report of a trace, in markdown or as an HTML page."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracer.cli.common import (
    USAGE,
    PeakBandwidth,
    PeakFlops,
    SourceFrom,
    analysing,
    chosen_trace,
    fail,
    one_of,
    say,
)
from tracer.cli.documents import AsJson, print_json
from tracer.cli.filters import File
from tracer.cli.help import MORE
from tracer.cli.job import report_of_folder
from tracer.cli.output import HTML, check_output, print_report, write_output, write_pictures

if TYPE_CHECKING:
    from tracer.report.reading import Reading
    from tracer.report.svg.picture import Pictures


def _sections() -> Iterable[str]:
    from tracer.report.sections import NAMED

    return NAMED


def report(
    file: File = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="OUT", help="Write to OUT.md or OUT.html."),
    ] = None,
    html: Annotated[
        bool, typer.Option("--html", help="Write an HTML page, by default beside the trace.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output file.")] = False,
    paths: Annotated[int, typer.Option(metavar="N", min=0, help="Show the N hottest dispatch paths.")] = 10,
    details: Annotated[
        int, typer.Option(metavar="N", min=0, help="Show N of them one by one, with a diagram.")
    ] = 5,
    rows: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Rows per table (default 40; kernels 20-60)."),
    ] = None,
    only: Annotated[
        str | None, one_of("--only", ("cuda", "kernels"), "Write only this part of the CUDA tables.")
    ] = None,
    section: Annotated[
        list[str] | None,
        one_of("--section", _sections, "Only this section: paths, ops, ... Repeatable.", "NAME"),
    ] = None,
    op: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only paths with this op, or call: 'cublas*'."),
    ] = None,
    steady: Annotated[bool, typer.Option("--steady", help="Only paths after warm-up.")] = False,
    compiler: Annotated[
        bool,
        typer.Option("--compiler", help="Also paths of calls that torch.compile made.", rich_help_panel=MORE),
    ] = False,
    no_phases: Annotated[
        bool,
        typer.Option("--no-phases", help="Treat no step as warm-up.", rich_help_panel=MORE),
    ] = False,
    peak_bandwidth: PeakBandwidth = None,
    peak_flops: PeakFlops = None,
    as_json: AsJson = False,
    source_from: SourceFrom = None,
) -> None:
    """Write the report of a trace: markdown, or an HTML page.

    It has the certificate (what was recorded, what was dropped and why), the hottest
    dispatch paths, and tables of ops, lines, steps and more; with CUDA also of API
    functions, waits, idle time and device kernels. Of the folder of a job it shows
    who came last in which collective, by how much, and which line made it late.

    \b
    Examples:
      tracer report run.trace -o report.md
      tracer report run.trace --html
      tracer report run.trace --section paths --section sources
      tracer report job/
    \f
    --html writes one file that opens offline: a flame graph by module, line, op or
    key, the timeline of a step, a roofline, and the tables. A click shows the chain
    of a call down to the kernel. Of a job it shows the ranks side by side.

    Kernels are ordered by what an improvement could gain, and compared with the
    device's figures, or with yours (--peak-bandwidth, --peak-flops).

    \b
    More examples:
      tracer report run.trace --op 'cublas*' --op bmm
      tracer report run.trace --steady
      tracer report run.trace --only kernels --peak-bandwidth 4300
      tracer report run.trace --json | jq '.paths[0].chain[]'
      tracer report job/ --html
      tracer report job/ --json | jq '.late[0]'
    """
    if only and (op or steady):
        fail(
            f"{'--op' if op else '--steady'} chooses paths, but --only {only} shows none; remove one",
            USAGE,
        )
    if steady and no_phases:
        fail("--steady needs warm-up steps, but --no-phases treats none as warm-up; remove one", USAGE)
    if file is not None and file.is_dir():
        chosen = only or section or op or steady or compiler or no_phases
        if chosen or peak_bandwidth or peak_flops:
            fail(
                f"{file} is a folder: only -o, --html, --force, --rows and --json apply to the report of a "
                "job; for the rest, give the trace of one rank",
                USAGE,
            )
        if as_json and (html or output is not None):
            fail("--json prints the tables of the job; remove --html and -o", USAGE)
        html = _is_page(output, html)
        report_of_folder(file, output or (_beside(file) if html else None), force, rows, as_json, html)
        return
    if as_json and (html or output is not None or only or section):
        fail("--json prints the hottest paths; remove --html, -o, --only and --section", USAGE)
    html = _is_page(output, html)
    if output is not None:
        check_output(output, force, html=html)
    file = chosen_trace(file)
    if html and output is None:
        output = _beside(file)
        check_output(output, force, html=True)
    with analysing(file) as trace:
        from tracer.report.reading import Peaks, Reading
        from tracer.report.svg.picture import Pictures

        peaks = Peaks(
            bandwidth=peak_bandwidth * 1e9 if peak_bandwidth else None,
            flops=peak_flops * 1e12 if peak_flops else None,
        )
        reading = Reading(
            trace.without_phases() if no_phases else trace,
            file.name,
            paths=paths,
            details=details,
            sections=tuple(section or ()),
            rows=rows,
            only=only,
            patterns=op or (),
            steady=steady,
            compiler=compiler,
            peaks=peaks,
        )
        if as_json:
            from tracer.report.documents import report_document

            print_json(report_document(reading))
            return
        pictures = Pictures(output.stem) if output is not None and not html else None
        text = _written(reading, html, pictures)
    if output is None:
        print_report(text)
    else:
        write_output(output, text)
        if pictures is not None:
            write_pictures(output, pictures)
        if html:
            say(f"wrote {output}")


def _written(reading: Reading, html: bool, pictures: Pictures | None) -> str:
    if html:
        from tracer.report.html.page import render_html

        return render_html(reading)
    from tracer.report.report import render

    return render(reading, pictures)


def _is_page(output: Path | None, html: bool) -> bool:
    """Whether an HTML page is written; ends the command if the output is another file."""
    is_page = output is not None and output.suffix.lower() in HTML
    if html and output is not None and not is_page:
        fail(f"{output}: --html writes HTML; give a file that ends in .html, or remove --html", USAGE)
    return html or is_page


def _beside(file: Path) -> Path:
    """`run.html` of `run.trace` and of `run.trace.xz`, `job.html` of the folder `job`."""
    file = file if file.name else file.absolute()
    if not file.name:
        fail(f"{file} has no name for a page beside it; give one with -o OUT.html", USAGE)
    return file.with_name(file.name.removesuffix(".xz").removesuffix(".trace") + ".html")
