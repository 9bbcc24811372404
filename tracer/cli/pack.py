"""`tracer pack`: compress a trace, to keep or to send it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracer.cli.common import (
    USAGE,
    TraceFile,
    chosen_trace,
    fail,
    progress,
    reading,
    say,
    too_large,
    writing,
)
from tracer.cli.output import check_place

if TYPE_CHECKING:
    from tracer.trace.bytes.kept_names import Redaction

_COLUMNS = 100
_STAYS = (
    "operators of torch, dispatch keys, kernels and functions of torch and CUDA, shapes, dtypes, devices, "
    "numbers among the arguments, durations, ids of processes and threads, versions of torch, Python and "
    "tracer, names of GPUs"
)


def pack(
    file: TraceFile = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="OUT.xz", help="Write to OUT.xz (default: FILE.xz)."),
    ] = None,
    redact: Annotated[
        bool,
        typer.Option(
            "--redact",
            help="Leave out paths, texts and times of day.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT.xz.")] = False,
) -> None:
    """Compress a trace with xz; --redact leaves out what is private.

    tracer tree, tracer report and tracer.load() read packed traces directly; xz -d
    unpacks them. FILE itself is kept.

    --redact is for a bug report. It writes FILE.redacted.trace.xz and lists what was
    left out, and all names of yours that are still in it.

    \b
    Examples:
      tracer pack run.trace
      tracer pack run.trace -o /mnt/traces/monday.trace.xz
      tracer pack run.trace --redact
    """
    from tracer.report.text import size
    from tracer.trace.bytes import packed

    file = chosen_trace(file)
    if redact:
        _redact(file, output or _redacted_name(file), force)
        return
    output = output or file.with_name(file.name + packed.SUFFIX)
    check_place(output, force, file)
    with progress(f"packing {file}"):
        if _complete(file):
            fail(f"{file} is packed already", USAGE)
        try:
            with open(file, "rb") as trace:
                packed.pack(trace, output, file.stat().st_mode)
        except OSError as error:
            fail(f"cannot write {output}: {error.strerror or error}")
    before, after = file.stat().st_size, output.stat().st_size
    say(f"{file} ({size(before)}) -> {output} ({size(after)})")


def _redacted_name(file: Path) -> Path:
    from tracer.trace.bytes import packed

    name = file.name.removesuffix(packed.SUFFIX).removesuffix(".trace")
    return file.with_name(f"{name}.redacted.trace{packed.SUFFIX}")


def _redact(file: Path, output: Path, force: bool) -> None:
    from tracer.base.known_names import known_here
    from tracer.report.text import size
    from tracer.trace import TraceError
    from tracer.trace.bytes import packed
    from tracer.trace.bytes.redact import redact

    check_place(output, force, file)
    with progress(f"redacting {file}"):
        _complete(file)
        try:
            with tempfile.TemporaryFile(dir=output.parent) as plain:
                done = redact(file, plain, known_here())
                plain.seek(0)
                packed.pack(plain, output, file.stat().st_mode)
        except TraceError as error:
            fail(str(error), USAGE)
        except OSError as error:
            fail(f"cannot write {output}: {error.strerror or error}")
        except MemoryError:
            fail(too_large(file))
    say(f"{file} ({size(file.stat().st_size)}) -> {output} ({size(output.stat().st_size)})")
    with writing():
        for line in _told(done):
            print(line)


def _told(done: Redaction) -> Iterator[str]:
    """What was left out, and what is left."""
    from tracer.base.visible import visible

    yield "left out:"
    for what, number in sorted(done.removed.items()):
        if number:
            yield f"  {number:,} {what}"
    yield "still in it:"
    yield from _wrapped(_STAYS.split())
    if done.left:
        yield "still in it, and perhaps chosen by you; look at each name before you send the file:"
    for kind, names in sorted(done.left.items()):
        shown = [repr(name) if " " in name or "," in name else visible(name) for name in names]
        commas = [f"{name}," for name in shown[:-1]]
        yield from _wrapped([f"{len(names):,} {kind}:", *commas, shown[-1]])


def _wrapped(words: list[str]) -> Iterator[str]:
    """Lines of whole words, which may have blanks."""
    line = " "
    for word in words:
        if len(line) + 1 + len(word) > _COLUMNS and line.strip():
            yield line
            line = "   "
        line += f" {word}"
    yield line


def _complete(file: Path) -> bool:
    """Names functions that a killed process could not name; returns whether the trace is packed.

    That needs the libraries that were recorded, which may be gone where it is unpacked.
    """
    from tracer.trace.bytes.format import CLOSED
    from tracer.trace.bytes.reader import ChunkFile, read_recording
    from tracer.trace.names.completion import complete_symbols

    with reading(file):
        with ChunkFile(os.fspath(file)) as trace:
            closed, is_packed = trace.header().state == CLOSED, trace.packed
        if not closed and not is_packed:
            complete_symbols(read_recording(file))
    return is_packed
