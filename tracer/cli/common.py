"""What the reading verbs share: which file, one-line errors, progress, a reader that goes away."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from tracer.report.visible import visible

if TYPE_CHECKING:
    from tracer.trace import Trace

USAGE = 2
_PATIENCE_SECONDS = 2.0


def say(message: str) -> None:
    """One line on stderr; names in it may be anything."""
    print(f"tracer: {visible(message)}", file=sys.stderr)


def fail(message: str, code: int = 1) -> NoReturn:
    """Ends the command with one line on stderr."""
    say(message)
    raise typer.Exit(code)


def chosen_trace(file: Path | None) -> Path:
    """The file named, else the newest trace in the current folder, named on stderr."""
    if file is None:
        traces = [path for path in Path().glob("*.trace") if path.is_file()]
        if not traces:
            fail("no *.trace file in this folder; name one, or make one: tracer record SCRIPT", USAGE)
        file = max(traces, key=lambda path: path.stat().st_mtime_ns)
        say(f"reading {file}, the newest trace here")
    elif file.is_dir():
        fail(f"{file} is a folder; name a trace file in it", USAGE)
    elif not file.exists():
        fail(f"{file} does not exist; make a trace with: tracer record SCRIPT", USAGE)
    return file


@contextmanager
def analysing(file: Path, step: int | None = None) -> Iterator[Trace]:
    """Loads the trace, or one step of it, and shows progress while the block works.

    Errors become one line: exit 2 if the file cannot be read as a trace, 1 if it has no such step, or if
    memory runs out.
    """
    from tracer.trace import TraceError, load

    with progress(f"reading {file}"):
        try:
            yield load(file) if step is None else load(file, step=step)
        except TraceError as error:
            missing = type(error).__name__ == "MissingStepError"
            fail(str(error), 1 if missing else USAGE)
        except OSError as error:
            fail(f"cannot read {file}: {error.strerror or error}", USAGE)
        except MemoryError:
            fail(too_large(file))


def too_large(file: Path) -> str:
    return f"to read {file} takes more memory than there is"


@contextmanager
def progress(text: str) -> Iterator[None]:
    """A spinner on stderr, if that is a terminal and the block takes longer than two seconds."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.markup import escape

    status = Console(stderr=True).status(escape(visible(text)))
    timer = threading.Timer(_PATIENCE_SECONDS, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


@contextmanager
def writing() -> Iterator[None]:
    """Writes to stdout end quietly where the reader of a pipe has gone (`tracer tree | head`)."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
