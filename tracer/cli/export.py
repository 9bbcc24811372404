"""`tracer export`: a trace in the format of another tool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracer.cli.common import (
    USAGE,
    SourceFrom,
    TraceFile,
    analysing,
    choose,
    chosen_trace,
    fail,
    one_of,
    progress,
    say,
    too_large,
)
from tracer.cli.filters import Exclude, Key, Module, Op, Source, Step, Thread, selection
from tracer.cli.output import check_place
from tracer.cli.picture import draw
from tracer.cli.selection import Selection
from tracer.export.formats import FORMATS, Format

if TYPE_CHECKING:
    from tracer.trace import Trace

_SVG = "svg"
_FORMATS = (*FORMATS, _SVG)


def export(
    file: TraceFile = None,
    to: Annotated[
        str | None,
        one_of("--to", _FORMATS, "The format of OUT."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="OUT", help="Write to OUT (default: beside FILE)."),
    ] = None,
    by: Annotated[
        str | None,
        one_of("--by", ("line", "module"), "speedscope: ops below lines or modules."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT.")] = False,
    op: Op = None,
    key: Key = None,
    source: Source = None,
    module: Module = None,
    exclude: Exclude = None,
    thread: Thread = None,
    step: Step = None,
    source_from: SourceFrom = None,
) -> None:
    """Write a trace in the format of another tool.

    \b
    perfetto    a timeline for https://ui.perfetto.dev; FILE.pftrace, of any size
    chrome      the same in Chrome's JSON, up to 2 M events; FILE.chrome.json
    parquet     one file per table, in the folder FILE.parquet
    speedscope  a flame graph for https://speedscope.app; FILE.speedscope.json
    svg         a picture of the slowest path of the hops that match; FILE.svg

    OUT is compressed if its name ends in .gz.

    \b
    Examples:
      tracer export --to perfetto
      tracer export run.trace --to chrome -o run.json.gz
      tracer export run.trace --to speedscope --by line
      tracer export run.trace --to svg --op matmul
    """
    from tracer.export.export_errors import ExportError

    if to is None:
        fail(f"--to is missing: {choose('', _FORMATS)}, e.g. tracer export --to perfetto", USAGE)
    hops = selection(op, key, source, thread, step, module, exclude=exclude)
    if by is not None and to != "speedscope":
        fail("--by applies to --to speedscope", USAGE)
    if to == _SVG:
        file = chosen_trace(file)
        draw(file, hops, output or file.with_name(f"{file.name.partition('.trace')[0]}.svg"), force)
        return
    if hops != Selection():
        fail("--op and other filters apply to --to svg; the other formats have the whole trace", USAGE)
    chosen = FORMATS[to]
    file = chosen_trace(file)
    output = output or chosen.default_path(file)
    try:
        chosen.check()
        check_place(output, force, file, folder=chosen.folder)
        if chosen.folder and output.exists():
            _check_folder(output)
        with analysing(file) as trace:
            pass
        with progress(f"writing {output}"):
            remarks = chosen.write(trace, output, **({"by": by} if by else {}))
    except ExportError as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot write {output}: {error.strerror or error}")
    except MemoryError:
        fail(too_large(file))
    _tell(trace, file, output, chosen, remarks)


def _check_folder(output: Path) -> None:
    """The whole folder is replaced, so it must hold nothing else."""
    from tracer.export.output import holds_only
    from tracer.export.parquet import NAMES

    if not output.is_dir():
        fail(f"{output} is a file, but tables need a folder; give one with -o", USAGE)
    if not holds_only(output, NAMES):
        fail(f"{output} holds other files, which would be lost; give a new folder with -o", USAGE)


def _tell(trace: Trace, file: Path, output: Path, chosen: Format, remarks: list[str]) -> None:
    from tracer.export.about import time_origin

    counts = {
        "hops": len(trace.hops),
        "library calls": len(trace.library_calls),
        "API calls": len(trace.api_calls),
        "GPU activities": len(trace.gpu_activities),
    }
    listed = ", ".join(f"{number:,} {noun}" for noun, number in counts.items() if number or noun == "hops")
    if chosen.hops_only:
        listed = f"{len(trace.hops):,} hops by self time"
    else:
        listed += f"; {time_origin(trace)}"
    say(f"{file} -> {output}: {listed}")
    if not trace.certificate["complete"]:
        remarks = [*remarks, trace.certificate["verdict"]]
    for remark in remarks:
        say(remark)
