"""`tracer pack`: compress a trace, to keep or to send it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracer.cli.common import USAGE, chosen_trace, fail, progress, say, too_large, writing

if TYPE_CHECKING:
    from tracer.trace.bytes.redact import Redaction

_NAMES = 8  # of each kind that are shown


def pack(
    file: Annotated[
        Path | None, typer.Argument(help="A trace (default: the newest *.trace here).", metavar="FILE")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="OUT.xz", help="Write to OUT.xz (default: FILE.xz)."),
    ] = None,
    redact: Annotated[
        bool,
        typer.Option(
            "--redact", help="Leave out command lines, environment, texts of lines, paths; list what is left."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT.xz.")] = False,
) -> None:
    """Compress a trace with xz, without loss; or, with --redact, without what tells of you.

    tracer tree, tracer report and tracer.load() read packed traces directly;
    xz -d unpacks them. FILE itself is kept.

    --redact is for a bug report. It writes FILE.redacted.trace.xz and lists what was
    left out, and which names of yours are still in it.

    \b
    Examples:
      tracer pack
      tracer pack run.trace
      tracer pack run.trace -o /mnt/traces/monday.trace.xz
      tracer pack run.trace --redact
      tracer report run.trace.xz
    """
    from tracer.report.text import size
    from tracer.trace.bytes import packed

    file = chosen_trace(file)
    if redact:
        _redact(file, output or _redacted_name(file), force)
        return
    output = output or file.with_name(file.name + packed.SUFFIX)
    _check(file, output, force)
    with progress(f"packing {file}"):
        _complete(file)
        try:
            packed.pack(file, output)
        except OSError as error:
            fail(f"cannot write {output}: {error.strerror or error}")
    before, after = file.stat().st_size, output.stat().st_size
    say(f"{file} ({size(before)}) -> {output} ({size(after)})")


def _redacted_name(file: Path) -> Path:
    from tracer.trace.bytes import packed

    name = file.name.removesuffix(packed.SUFFIX).removesuffix(".trace")
    return file.with_name(f"{name}.redacted.trace{packed.SUFFIX}")


def _redact(file: Path, output: Path, force: bool) -> None:
    from tracer.report.text import size
    from tracer.trace import TraceError
    from tracer.trace.bytes import packed
    from tracer.trace.bytes.redact import redact

    _check(file, output, force)
    plain = output.with_name(f".{output.name}.{os.getpid()}")
    with progress(f"redacting {file}"):
        try:
            done = redact(file, plain)
            packed.pack(plain, output)
        except TraceError as error:
            fail(str(error), USAGE)
        except OSError as error:
            fail(f"cannot write {output}: {error.strerror or error}")
        finally:
            plain.unlink(missing_ok=True)
    say(f"{file} ({size(file.stat().st_size)}) -> {output} ({size(output.stat().st_size)})")
    with writing():
        for line in _told(done):
            print(line)


def _told(done: Redaction) -> Iterator[str]:
    """What was left out, and what is left."""
    from tracer.report.visible import visible

    yield "left out:"
    for what, number in sorted(done.removed.items()):
        if number:
            yield f"  {number:,} {what}"
    yield "still in it: operators, dispatch keys, kernel functions, shapes, dtypes, devices, times,"
    yield "  thread ids, versions of torch, Python and tracer, names of GPUs, ranges and autograd nodes, and:"
    for kind, names in sorted(done.left.items()):
        some = list(names)[:_NAMES]
        more = f", ... {len(names) - len(some):,} more" if len(names) > len(some) else ""
        yield visible(f"  {len(names):,} {kind}: {', '.join(some)}{more}")


def _check(file: Path, output: Path, force: bool) -> None:
    if output.is_dir():
        fail(f"{output} is a folder; give a file in it", USAGE)
    if output.exists() and output.samefile(file):
        fail(f"{output} is the trace itself; give another file", USAGE)
    if output.exists() and not force:
        fail(f"{output} exists; overwrite it with --force, or give another file with -o", USAGE)
    if not output.parent.is_dir():
        fail(f"folder {output.parent} does not exist; create it first", USAGE)
    if not os.access(output.parent, os.W_OK):
        fail(f"cannot write {output}: permission denied", USAGE)


def _complete(file: Path) -> None:
    """Checks that it is a trace, and names functions that a killed process could not name.

    That needs the libraries that were recorded, which may be gone where it is unpacked.
    """
    from tracer.trace import TraceError
    from tracer.trace.bytes.format import CLOSED
    from tracer.trace.bytes.reader import ChunkFile, read_recording
    from tracer.trace.names.completion import complete_symbols

    try:
        with ChunkFile(os.fspath(file)) as trace:
            if trace.packed:
                fail(f"{file} is packed already", USAGE)
            closed = trace.header().state == CLOSED
        if not closed:
            complete_symbols(read_recording(file))
    except TraceError as error:
        fail(str(error), USAGE)
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror or error}", USAGE)
    except MemoryError:
        fail(too_large(file))
