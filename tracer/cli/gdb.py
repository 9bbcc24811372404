"""`tracer gdb`: run a script under gdb and record where it stops along the dispatch path."""

from __future__ import annotations

import atexit
import os
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracer.cli.common import USAGE, chosen_trace, fail, say, writing

if TYPE_CHECKING:
    from tracer.debugger.again import Site
    from tracer.debugger.walk import Surroundings, Walk

# Options may stand behind the script; those that tracer does not know are the script's own.
CONTEXT = {"ignore_unknown_options": True}
_INTERRUPTED = 130


def gdb(
    script: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCRIPT|SESSION [ARGS]...", help="A script, or a session that tracer brings."),
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is the name of a module.")] = False,
    own_session: Annotated[
        bool, typer.Option("--session", help="SCRIPT is a session script: it has a function walk(gdb).")
    ] = False,
    breaks: Annotated[
        list[str] | None,
        typer.Option(
            "--break",
            "-b",
            metavar="SPEC",
            help="aten::mm, 'aten::mm [CPU]', a function, or FILE:LINE. Repeatable.",
        ),
    ] = None,
    at: Annotated[int | None, typer.Option(metavar="N", min=1, help="Only the N-th hit.")] = None,
    when: Annotated[
        str | None,
        typer.Option(metavar="EXPR", help="Only hits like shape(0)[0] > 128 or dtype(1) == 'float16'."),
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=0, help="At most N stops a breakpoint; 0: all.")
    ] = 200,
    backtrace: Annotated[int, typer.Option(metavar="N", min=1, help="Native frames of a stop.")] = 64,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Hand the terminal to gdb at the first stop.")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option("--from", metavar="TRACE", help="Stop again at a hop of this trace.")
    ] = None,
    hop: Annotated[int | None, typer.Option(metavar="ID", help="The hop, by its id in the trace.")] = None,
    overlay: Annotated[
        str | None,
        typer.Option(
            metavar="OPS", help="Build the dispatch code of OPS (mm,matmul) with -g and preload it."
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="A PyTorch checkout of this version: overlays the native functions too."
        ),
    ] = None,
    python: Annotated[
        str, typer.Option(metavar="PATH", help="The Python that runs SCRIPT; tracer need not be there.")
    ] = sys.executable,
    program: Annotated[
        str | None, typer.Option("--gdb", metavar="PATH", help="Another gdb, such as cuda-gdb.")
    ] = None,
    outputs: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Markdown (FILE.md) or JSON lines (FILE.jsonl). Repeatable.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the files.")] = False,
) -> None:
    """Run SCRIPT under gdb and record where it stops along the dispatch path.

    Each stop has the native backtrace with short names, the tensor arguments
    (shape, stride, dtype, device, dispatch keys) without debug information, the
    Python stack, and, where there is DWARF, file:line, arguments and locals.
    Options may stand behind SCRIPT; what follows -- is the script's alone.
    Ctrl-C goes to the script; a second one ends the session.

    \b
    Examples:
      tracer gdb train.py --break aten::mm
      tracer gdb train.py --break at::native::matmul --at 3 -o stops.md
      tracer gdb -b 'aten::addmm [CPU]' --when 'shape(1)[0] > 128' train.py
      tracer gdb -b kernel.cpp:41 -- train.py --epochs 1 -o weights.pt
      tracer gdb -b aten::cat --interactive train.py
      tracer gdb --overlay mm train.py
      tracer gdb --from run.trace --hop 4711
      tracer gdb mm            (a session; others: gru cat embedding linear backward)
    """
    from tracer.base.errors import RecordingError
    from tracer.debugger.errors import DebuggerError
    from tracer.debugger.walk import Walk

    command = _command(script or [], module)
    if interactive and not sys.stdin.isatty():
        fail("--interactive needs a terminal; leave it out, or run it in one", USAGE)
    try:
        outputs = [path.absolute() for path in outputs or []]  # scripts change folders
        _check_outputs(outputs, force)
        surroundings = _surroundings(python, program, overlay, source, backtrace)
        job = _job(command, own_session, breaks or [], trace, hop, surroundings, interactive)
        with Walk(surroundings, command, interactive=interactive) as walk:
            for spec in job.specs:
                walk.stop_at(spec, at=at, when=when, limit=limit or None, halt=interactive)
            interrupted = _run(job, walk, interactive)
            status = _report(walk, outputs, interrupted)
    except (DebuggerError, RecordingError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    raise typer.Exit(status)


@dataclass(frozen=True)
class _Job:
    """What is run: breakpoints on a script, a session script, or a hop of a trace again."""

    specs: list[str]
    session: Path | None = None
    site: Site | None = None


def _command(script: list[str], module: bool) -> list[str]:
    if module and not script:
        fail("name a module to run: tracer gdb -m MODULE [ARGS]", USAGE)
    return ["-m", *script] if module else script


def _surroundings(
    python: str, program: str | None, overlay: str | None, source: Path | None, backtrace: int
) -> Surroundings:
    from tracer.debugger import target
    from tracer.debugger.program import find
    from tracer.debugger.walk import Surroundings

    if source is not None and overlay is None:
        fail("--source adds native functions to an overlay; name its operators: --overlay mm", USAGE)
    found = find(program)
    looked = target.look(python)
    overlays = tuple(name.strip() for name in overlay.split(",") if name.strip()) if overlay else ()
    return Surroundings(looked, found, overlays, source, backtrace)


def _job(
    command: list[str],
    own_session: bool,
    specs: list[str],
    trace: Path | None,
    hop: int | None,
    surroundings: Surroundings,
    interactive: bool,
) -> _Job:
    if (trace is None) != (hop is None):
        fail("--from TRACE and --hop ID belong together", USAGE)
    if trace is not None and hop is not None:
        if specs:
            fail("--hop says where to stop; leave --break out", USAGE)
        from tracer.debugger.again import site

        return _Job([], site=site(chosen_trace(trace), hop))
    session = Path(command[0]) if own_session and command else _session(command)
    if session is None and not specs:
        specs = [f"aten::{name.removeprefix('aten::')}" for name in surroundings.overlays]
        if not specs and not interactive:
            fail("say where to stop: --break aten::mm", USAGE)
    return _Job(specs, session=session)


def _session(command: list[str]) -> Path | None:
    """The session script that the command names; None where it is a script or a module."""
    from tracer.debugger.walk import session_scripts

    if not command:
        fail("name a script to run: tracer gdb [options] SCRIPT [ARGS]", USAGE)
    name = command[0]
    if name == "-m" or os.path.isfile(name) or os.path.exists(os.path.join(name, "__main__.py")):
        return None
    scripts = session_scripts()
    if name in scripts:
        return scripts[name]
    near = get_close_matches(name, scripts) or sorted(scripts)
    return fail(f"{name} is no script here and no session; sessions: {', '.join(near)}", USAGE)


def _check_outputs(outputs: list[Path], force: bool) -> None:
    from tracer.recording import naming

    for path in outputs:
        if path.suffix not in (".md", ".jsonl"):
            fail(f"{path}: a file ends in .md (markdown) or .jsonl (JSON lines)", USAGE)
    for path in outputs:
        if naming.reserve(str(path), force):
            atexit.register(naming.remove_if_empty, str(path))


def _run(job: _Job, walk: Walk, interactive: bool) -> bool:
    """Runs the job; returns whether it was interrupted."""
    from tracer.debugger.walk import run_script

    try:
        if job.session is not None:
            run_script(job.session, walk)
        elif job.site is not None:
            _again(job.site, walk, interactive)
        else:
            _to_the_end(walk, interactive)
    except KeyboardInterrupt:
        walk.note("interrupted by Ctrl-C")
        return True
    return False


def _again(site: Site, walk: Walk, interactive: bool) -> None:
    from tracer.debugger.again import stop_again

    walk.command, walk.folder = site.command, site.folder
    walk.title = f"tracer gdb --hop {site.hop['id']}"
    stop = stop_again(walk, site)
    if stop is not None:
        walk.beside = site.path
        if interactive:
            _hand_over(walk)
        else:
            walk.end()


def _to_the_end(walk: Walk, interactive: bool) -> None:
    if not interactive:
        while walk.go() is not None:
            pass
    elif walk.start() if not walk.has_breakpoints else walk.go():
        _hand_over(walk)


def _hand_over(walk: Walk) -> None:
    from tracer.debugger.interactive import hand_over

    hand_over(walk.session)


def _report(walk: Walk, outputs: list[Path], interrupted: bool) -> int:
    """Prints and writes what was found; returns the exit status."""
    from tracer.debugger.findings import missing
    from tracer.debugger.report import render

    found = walk.findings()
    text = render(found)
    written = [_written(path, text if path.suffix == ".md" else found.json_lines()) for path in outputs]
    failed = not all(written)
    try:
        with writing():
            sys.stdout.write(text)
    except OSError as error:
        say(f"the report cannot be printed: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        failed = True
    for line in [*missing(found.counts), *found.notes]:
        say(line)
    if interrupted:
        return _INTERRUPTED
    status = found.exit_status or 0
    return (128 - status if status < 0 else status) or int(failed)


def _written(path: Path, text: str) -> bool:
    """Writes an output; False, and one line, where that fails."""
    from tracer.recording import naming

    try:
        path.write_text(text)
    except OSError as error:
        say(f"{path} cannot be written: {error.strerror}")
        return False
    atexit.unregister(naming.remove_if_empty)  # a file without stops is an answer too
    say(f"wrote {path}")
    return True
