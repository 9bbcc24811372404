"""`tracer lock`: the dispatch paths of a run as a text to keep, and the check of a later run against it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracer.cli.common import USAGE, SourceFrom, TraceFile, analysing, chosen_trace, fail, say, writing
from tracer.cli.documents import AsJson, print_json
from tracer.cli.output import check_output, write_output

if TYPE_CHECKING:
    from tracer.analysis.lock import Lock
    from tracer.analysis.lock_difference import LineChange

_DEFAULT = Path("dispatch.lock")


def lock(
    file: TraceFile = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="LOCK", help="Write to LOCK (default: dispatch.lock)."),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(metavar="LOCK", help="Compare FILE with LOCK."),
    ] = None,
    steady: Annotated[
        bool, typer.Option("--steady", help="Leave out warm-up steps, where kernels are still chosen.")
    ] = False,
    limit: Annotated[
        int, typer.Option(metavar="N", min=0, help="Show at most N changed lines; 0: all.")
    ] = 10,
    force: Annotated[bool, typer.Option("--force", help="Overwrite LOCK.")] = False,
    as_json: AsJson = False,
    source_from: SourceFrom = None,
) -> None:
    """Write a run's dispatch paths as text, or check a run against it.

    A lock has each Python line, the ops that it called, their hops, library calls
    and families of GPU kernels. It has no times, no addresses and no numbers of
    lines: two runs of one program give the same lock.

    With --check the exit status is 1 if a path is only in the run or only in the
    lock. To accept what changed, write the lock again.

    \b
    Examples:
      tracer lock run.trace -o dispatch.lock
      tracer lock run.trace --check dispatch.lock
      tracer lock run.trace -o dispatch.lock --force
    \f
    \b
    More examples:
      tracer lock run.trace --check dispatch.lock --json | jq '.changes[].heading'
      tracer lock run.trace --steady -o dispatch.lock
    """
    if check is not None and (output is not None or force):
        fail("--check writes nothing; remove -o and --force", USAGE)
    if as_json and check is None:
        fail("--json prints what --check finds; add --check LOCK", USAGE)
    if check is None:
        _write(chosen_trace(file), output or _DEFAULT, steady, force)
        return
    from tracer.analysis.lock_difference import compare_locks

    locked = _read(check)
    file = chosen_trace(file)
    found = _found(file, steady)
    changes = compare_locks(locked, found)
    if as_json:
        from tracer.report.documents import lock_document

        print_json(lock_document(str(file), locked, found, changes, limit))
    else:
        _show(file, check, locked, found, changes, limit)
    if changes:
        raise typer.Exit(1)


def _write(file: Path, output: Path, steady: bool, force: bool) -> None:
    check_output(output, force)
    found = _found(file, steady)
    from tracer.analysis.lock_text import written
    from tracer.report.text import count

    write_output(output, written(found))
    paths = sum(len(section.chains) for section in found.sections.values())
    say(f"{output}: {count(paths, 'path')} of {count(len(found.sections), 'line')}")
    say(f"next: tracer lock --check {output} TRACE")


def _found(file: Path, steady: bool) -> Lock:
    """The lock of a trace. Says what the trace lacks."""
    with analysing(file) as trace:
        from tracer.analysis.lock import lock_of

        if steady and "steady" not in trace.steps["phase"].to_list():
            fail(f"--steady: {file} has no steady step; record more steps, or remove --steady")
        found = lock_of(trace, steady=steady)
    if not trace.certificate["complete"]:
        say(f"{file}: {trace.certificate['verdict']}; paths may be missing")
    return found


def _read(path: Path) -> Lock:
    from tracer.analysis.lock_text import LockError, load

    try:
        return load(path)
    except LockError as error:
        fail(f"{path}, {error}", USAGE)
    except UnicodeDecodeError:
        fail(f"{path} is not a dispatch lock; write one: tracer lock run.trace -o {_DEFAULT}", USAGE)
    except FileNotFoundError:
        fail(f"{path} does not exist; write it: tracer lock run.trace -o {path}", USAGE)
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror or error}", USAGE)


def _show(file: Path, check: Path, locked: Lock, found: Lock, changes: list[LineChange], limit: int) -> None:
    from tracer.report.lock_lines import change_lines
    from tracer.report.text import count

    if locked.torch != found.torch:
        versions = [side.torch or "unknown" for side in (locked, found)]
        say(f"{check} was written with torch {versions[0]}, {file} with torch {versions[1]}")
    with writing():
        if changes:
            lines = len(found.sections.keys() | locked.sections.keys())
            print(f"{len(changes):,} of {count(lines, 'line')} changed")
        else:
            paths = sum(len(section.chains) for section in found.sections.values())
            print(f"no change: {count(paths, 'path')} of {count(len(found.sections), 'line')}")
        for change in changes[:limit] if limit else changes:
            print("\n" + "\n".join(change_lines(change)))
        if limit and len(changes) > limit:
            print(f"\nShown: {limit} of {count(len(changes), 'changed line')}. More: --limit 0.")
        if changes:
            print(f"\nTo accept: tracer lock {file} -o {check} --force")
