"""`tracer gdb`: run a script under gdb and record each stop along the dispatch path."""

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
from tracer.cli.completion import traces
from tracer.cli.help import MORE

if TYPE_CHECKING:
    from tracer.debugger.again import Site
    from tracer.debugger.walk import Surroundings, Walk

# Options may follow the script; those that tracer does not know go to the script.
CONTEXT = {"ignore_unknown_options": True}
_INTERRUPTED = 130


def gdb(
    script: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCRIPT|SESSION [ARGS]...", help="A script, or the name of a built-in session."
        ),
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module name.")] = False,
    own_session: Annotated[
        bool,
        typer.Option(
            "--session", help="SCRIPT is a session script: it defines walk(gdb).", rich_help_panel=MORE
        ),
    ] = False,
    breaks: Annotated[
        list[str] | None,
        typer.Option(
            "--break",
            "-b",
            metavar="SPEC",
            help="Stop at aten::mm, 'aten::mm [CPU]', a function or FILE:LINE. Repeatable.",
        ),
    ] = None,
    at: Annotated[int | None, typer.Option(metavar="N", min=1, help="Stop only at the N-th hit.")] = None,
    when: Annotated[
        str | None,
        typer.Option(metavar="EXPR", help="Stop only if EXPR holds: shape(0)[0] > 128."),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="At most N hits per breakpoint; 0: all."),
    ] = 200,
    backtrace: Annotated[
        int, typer.Option(metavar="N", min=1, help="Native frames to keep per stop.", rich_help_panel=MORE)
    ] = 64,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="At the first stop, continue in gdb by hand.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="TRACE",
            help="Run a recorded script again and stop at --hop.",
            autocompletion=traces,
        ),
    ] = None,
    hop: Annotated[int | None, typer.Option(metavar="ID", help="The id of the hop in TRACE.")] = None,
    overlay: Annotated[
        str | None,
        typer.Option(metavar="OPS", help="Build the dispatch code of OPS with -g, and use it."),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="A PyTorch checkout: also overlay native functions.", rich_help_panel=MORE
        ),
    ] = None,
    preloads: Annotated[
        list[Path] | None,
        typer.Option(
            "--preload",
            metavar="LIB",
            help="Functions in LIB replace torch's (docs/gdb.md).",
            rich_help_panel=MORE,
        ),
    ] = None,
    python: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="The Python that runs SCRIPT; it needs no tracer.",
            show_default=False,
            rich_help_panel=MORE,
        ),
    ] = sys.executable,
    program: Annotated[
        str | None,
        typer.Option("--gdb", metavar="PATH", help="Another gdb, e.g. cuda-gdb.", rich_help_panel=MORE),
    ] = None,
    outputs: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write to FILE.md or FILE.jsonl. Repeatable.",
        ),
    ] = None,
    list_sessions: Annotated[bool, typer.Option("--list", help="List the built-in sessions.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output files.")] = False,
) -> None:
    """Run SCRIPT under gdb and record each stop on the dispatch path.

    For each stop you get the native backtrace with short names, the Python stack and
    the tensor arguments, even without debug information. With DWARF, you also get
    file:line, arguments and locals. Ctrl-C goes to the script; a second one ends the
    session. Options may follow SCRIPT; everything after -- goes to the script.

    \b
    Examples:
      tracer gdb train.py --break aten::mm
      tracer gdb -b 'aten::addmm [CPU]' --when 'shape(1)[0] > 128' train.py
      tracer gdb -b aten::cat --interactive train.py
      tracer gdb mm            (a session; tracer gdb --list names the others)
    \f
    \b
    More examples:
      tracer gdb train.py --break at::native::matmul --at 3 -o stops.md
      tracer gdb -b kernel.cpp:41 -- train.py --epochs 1 -o weights.pt
      tracer gdb --overlay mm train.py
      tracer gdb --from run.trace --hop 4711
    """
    from tracer.base.errors import RecordingError
    from tracer.debugger.debugger_errors import DebuggerError
    from tracer.debugger.walk import Walk

    if list_sessions:
        _list_sessions()
        return
    command = _command(script or [], module)
    if interactive and not sys.stdin.isatty():
        fail("--interactive needs a terminal; remove it, or run tracer in a terminal", USAGE)
    try:
        outputs = [path.absolute() for path in outputs or []]  # scripts change folders
        _check_outputs(outputs, force)
        surroundings = _surroundings(python, program, overlay, source, backtrace, preloads or [])
        job = _job(command, own_session, breaks or [], trace, hop, surroundings, interactive)
        with Walk(surroundings, command, interactive=interactive) as walk:
            for spec in job.specs:
                walk.stop_at(spec, at=at, when=when, limit=limit or None, halt=interactive)
            status = _report(walk, outputs, _run(job, walk, interactive))
    except (DebuggerError, RecordingError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    raise typer.Exit(status)


def _list_sessions() -> None:
    from tracer.debugger.walk import session_scripts, summary

    scripts = session_scripts()
    width = max(map(len, scripts))
    with writing():
        for name, path in scripts.items():
            typer.echo(f"{name:{width}}  {summary(path)}")


@dataclass(frozen=True)
class _Job:
    """What to run: a script with breakpoints, a session script, or a recorded script up to a hop."""

    specs: list[str]
    session: Path | None = None
    site: Site | None = None


def _command(script: list[str], module: bool) -> list[str]:
    if module and not script:
        fail("give a module to run: tracer gdb -m MODULE [ARGS]", USAGE)
    return ["-m", *script] if module else script


def _surroundings(
    python: str,
    program: str | None,
    overlay: str | None,
    source: Path | None,
    backtrace: int,
    preloads: list[Path],
) -> Surroundings:
    from tracer.debugger import target
    from tracer.debugger.program import find
    from tracer.debugger.walk import Surroundings

    if source is not None and overlay is None:
        fail("--source needs an overlay; give its operators: --overlay mm", USAGE)
    for path in preloads:
        if not path.is_file():
            fail(f"--preload {path}: no such file", USAGE)
    found = find(program)
    looked = target.look(python)
    overlays = tuple(name.strip() for name in overlay.split(",") if name.strip()) if overlay else ()
    absolute = tuple(path.absolute() for path in preloads)
    return Surroundings(looked, found, overlays, source, backtrace, absolute)


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
        fail("--from TRACE and --hop ID need each other; give both", USAGE)
    if trace is not None and hop is not None:
        if specs:
            fail("--hop says where to stop; remove --break", USAGE)
        from tracer.debugger.again import site

        return _Job([], site=site(chosen_trace(trace), hop))
    session = Path(command[0]) if own_session and command else _session(command)
    if session is None and not specs:
        specs = [f"aten::{name.removeprefix('aten::')}" for name in surroundings.overlays]
        if not specs and not interactive:
            fail("no breakpoint; give one, e.g. --break aten::mm", USAGE)
    return _Job(specs, session=session)


def _session(command: list[str]) -> Path | None:
    """The session script that the command names; None if it names a script or a module."""
    from tracer.debugger.walk import session_scripts

    if not command:
        fail("give a script to run: tracer gdb [options] SCRIPT [ARGS]", USAGE)
    name = command[0]
    if name == "-m" or os.path.isfile(name) or os.path.exists(os.path.join(name, "__main__.py")):
        return None
    scripts = session_scripts()
    if name in scripts:
        return scripts[name]
    near = get_close_matches(name, scripts) or sorted(scripts)
    return fail(f"{name} is neither a script here nor a session; sessions: {', '.join(near)}", USAGE)


def _check_outputs(outputs: list[Path], force: bool) -> None:
    from tracer.recording import naming

    for path in outputs:
        if path.suffix not in (".md", ".jsonl"):
            fail(f"{path}: give a file that ends in .md (markdown) or .jsonl (JSON lines)", USAGE)
    for path in outputs:
        if naming.reserve(str(path), force):
            atexit.register(naming.remove_if_empty, str(path))


def _run(job: _Job, walk: Walk, interactive: bool) -> int | None:
    """Runs the job; returns the exit status if it did not come to its end."""
    from tracer.debugger.walk import SessionError, run_script

    try:
        if job.session is not None:
            run_script(job.session, walk)
        elif job.site is not None:
            _again(job.site, walk, interactive)
        else:
            _to_the_end(walk, interactive)
    except KeyboardInterrupt:
        walk.note("interrupted by Ctrl-C")
        return _INTERRUPTED
    except SessionError as error:
        sys.stderr.write("".join(error.traceback.format()))
        walk.note(f"the session ended early: {error}")
        return 1
    return None


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


def _report(walk: Walk, outputs: list[Path], ended: int | None) -> int:
    """Prints and writes what was found; returns the exit status, which is `ended` if that is known."""
    from tracer.debugger.findings import missing
    from tracer.debugger.report import render
    from tracer.report.github import for_github

    found = walk.findings()
    text = render(found)
    page = for_github(text)
    written = [_written(path, page if path.suffix == ".md" else found.json_lines()) for path in outputs]
    failed = not all(written)
    try:
        if not outputs or failed:  # a report is not lost with its file
            with writing(pages=False):
                sys.stdout.write(text)
    except typer.Exit:  # and the notes are not lost with the report
        failed = True
    for line in [*missing(found.counts), *found.notes]:
        say(line)
    if ended is not None:
        return ended
    status = found.exit_status or 0
    return (128 - status if status < 0 else status) or int(failed)


def _written(path: Path, text: str) -> bool:
    """Writes an output file; False, and one line on stderr, if that fails."""
    from tracer.export.output import new_file
    from tracer.recording import naming

    try:
        with new_file(path) as file:
            file.write(text.encode())
    except OSError as error:
        say(f"cannot write {path}: {error.strerror}")
        return False
    atexit.unregister(naming.remove_if_empty)  # keep a file without stops: no stop is a result too
    say(f"wrote {path}")
    return True
