"""What the reading commands share: choice of file, one-line errors, progress, closed pipes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

import typer

from tracer.analysis.source_files import read_from
from tracer.base.progress import listening, portion
from tracer.base.visible import visible
from tracer.cli.completion import traces
from tracer.cli.harmless import Harmless
from tracer.cli.help import MORE
from tracer.cli.pager import paged

if TYPE_CHECKING:
    import polars as pl

    from tracer.trace import Trace

USAGE = 2
_PATIENCE_SECONDS = 2.0
_LOADING = 0.7  # of the time until a large trace is shown


def say(message: str) -> None:
    """One line on stderr, if it can be written; control characters of names in it are escaped."""
    if sys.stderr is None:  # closed, under `tracer record`; print would take stdout
        return
    try:
        print(f"tracer: {visible(message)}", file=sys.stderr)
    except OSError:
        _drop(sys.stderr)


def fail(message: str, code: int = 1) -> NoReturn:
    """Ends the command with one line on stderr."""
    say(message)
    raise typer.Exit(code)


def _read_sources(context: typer.Context, folder: Path | None) -> Path | None:
    if folder is not None and not folder.is_dir():
        fail(f"--source-from {folder}: give a folder", USAGE)
    context.with_resource(read_from(None if folder is None else str(folder), say))
    return folder


SourceFrom = Annotated[
    Path | None,
    typer.Option(
        "--source-from",
        metavar="DIR",
        callback=_read_sources,
        help="Read the text of lines that the trace lacks from DIR. Default: the folder of the run, if you "
        "recorded it on this machine.",
        rich_help_panel=MORE,
    ),
]
"""An option of each command that shows source lines"""


def choose(given: str, known: Iterable[str]) -> str:
    """`choose hop, op or key (did you mean op?)`, for a value that an option does not take."""
    names = list(known)
    near = get_close_matches(given, names, 1)
    return f"choose {', '.join(names[:-1])} or {names[-1]}{f' (did you mean {near[0]}?)' if near else ''}"


def one_of(
    option: str, names: Iterable[str] | Callable[[], Iterable[str]], said: str, metavar: str = ""
) -> Any:
    """An option that takes one of these values: help lists them, shells complete them.

    Another value ends the command. If the names are in modules that take long to import, give a function
    that returns them, and the `metavar` that help shows in place of them.
    """

    def known() -> list[str]:
        return list(names() if callable(names) else names)

    def check(given: Any) -> Any:
        for value in [given] if isinstance(given, str) else given or ():
            if value not in known():
                fail(f"{option} {value}: {choose(value, known())}", USAGE)
        return given

    return typer.Option(
        option, metavar=metavar or "|".join(known()), help=said, callback=check, autocompletion=known
    )


def exclusive(**given: object) -> None:
    """Ends the command if more than one of these options was given: `give --line or --op, not both`."""
    names = [f"--{name}" for name, value in given.items() if value is not None and value is not False]
    if len(names) > 1:
        fail(f"give {names[0]} or {names[1]}, not both", USAGE)


PeakBandwidth = Annotated[
    float | None,
    typer.Option(
        metavar="GB/s", min=0, help="Compare kernels with this memory bandwidth.", rich_help_panel=MORE
    ),
]
PeakFlops = Annotated[
    float | None,
    typer.Option(
        metavar="TFLOP/s", min=0, help="Compare kernels with this compute rate.", rich_help_panel=MORE
    ),
]

TraceFile = Annotated[
    Path | None,
    typer.Argument(help="A trace (default: the newest *.trace here).", metavar="FILE", autocompletion=traces),
]


def chosen_trace(file: Path | None) -> Path:
    """The given file, else the newest trace in the current folder, which is then named on stderr."""
    if file is None:
        traces = [path for path in Path().glob("*.trace") if path.is_file()]
        if not traces:
            fail("no *.trace file in this folder; give one, or record one: tracer record SCRIPT", USAGE)
        file = max(traces, key=lambda path: path.stat().st_mtime_ns)
        say(f"reading {file}, the newest trace here")
    elif file.is_dir():
        fail(f"{file} is a folder; give a trace file in it", USAGE)
    elif not file.exists():
        fail(f"{file} does not exist; to record a trace: tracer record SCRIPT", USAGE)
    return file


@contextmanager
def analysing(file: Path, step: int | None = None, *, needs_all_ops: bool = False) -> Iterator[Trace]:
    """Loads the trace, or one step of it, and shows progress while the block works.

    Errors become one line: exit 2 if the file cannot be read as a trace, 1 if it has no such step, if
    memory runs out, or if --ops left ops out and `needs_all_ops`. Without that, one line on stderr says so.
    """
    from tracer.trace import load

    with progress(f"reading {file}"), reading(file):
        with portion(0.0, _LOADING):
            trace = load(file) if step is None else load(file, step=step)
        if trace.only_ops:
            _say_only_ops(file, trace, needs_all_ops)
        with portion(_LOADING, 1.0):
            yield trace


def _say_only_ops(file: Path, trace: Trace, needs_all_ops: bool) -> None:
    from tracer.trace.certificate.verdict import only_ops_in_words

    has = f"{file} has only {only_ops_in_words(trace.only_ops)}"
    if needs_all_ops:
        fail(f"{has}, so the time of the others is unknown; record without --ops")
    say(f"{has}; others count as Python, as outside ops, or as no op")


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Ends the command with one line if the block cannot read the trace."""
    from tracer.trace import TraceError
    from tracer.trace.bytes.trace_errors import MissingStepError

    try:
        yield
    except TraceError as error:
        fail(str(error), 1 if isinstance(error, MissingStepError) else USAGE)
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror or error}", USAGE)
    except MemoryError:
        fail(too_large(file))


def say_steps(steps: pl.DataFrame) -> None:
    """On stderr: what a step is, if the program marked none."""
    from tracer.report.step_tables import about_modules

    if said := about_modules(steps):
        say(f"{said[0].lower()}{said[1:]}: nothing else marked a step")


def say_verdict(trace: Trace) -> None:
    """What a trace lacks, on stderr, if it is not complete."""
    if not trace.certificate["complete"]:
        say(trace.certificate["verdict"])


def too_large(file: Path) -> str:
    return f"not enough memory to read {file}; to read one step of it: tracer tree --step N"


@contextmanager
def progress(text: str) -> Iterator[None]:
    """A spinner on stderr, if that is a terminal and the block takes longer than two seconds.

    With a percentage, where the work says how far it is (base.progress).
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.markup import escape

    status = Console(stderr=True).status(escape(visible(text)))
    timer = threading.Timer(_PATIENCE_SECONDS, status.start)
    timer.daemon = True
    timer.start()
    shown = escape(visible(text))
    try:
        with listening(lambda part: status.update(f"{shown}: {part:.0%}")):
            yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def open_closed_streams() -> None:
    """Opens /dev/null in the place of a stdin, stdout or stderr that is closed.

    Else the next file that is opened gets its number, and Python has None for it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8")
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


@contextmanager
def writing(*, pages: bool = True) -> Iterator[None]:
    """Ends quietly if the reader of a pipe has closed it (`tracer tree | head`). A full disk is an error.

    `pages`: through a pager, where that is wanted (tracer.cli.pager). Whatever is printed has no control
    character but colours: texts of a trace may hold any.
    """
    try:
        with paged() if pages else nullcontext(), redirect_stdout(Harmless(sys.stdout)):
            yield
        sys.stdout.flush()
    except BrokenPipeError:
        _drop(sys.stdout)
    except OSError as error:
        if error.filename is not None:  # of a file that the block has opened
            raise
        _drop(sys.stdout)
        fail(f"cannot write to stdout: {error.strerror}")


def _drop(stream: TextIO) -> None:
    """What the stream still has, which Python writes at its end, goes to /dev/null."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
