"""`tracer ledger`: where the host's time of a step goes, layer by layer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracer.cli.common import (
    USAGE,
    TraceFile,
    analysing,
    chosen_trace,
    exclusive,
    fail,
    say,
    say_steps,
    writing,
)
from tracer.cli.documents import AsJson, print_json
from tracer.cli.lines import print_cells
from tracer.cli.output import check_output, write_output

if TYPE_CHECKING:
    from tracer.analysis.ledger import Ledger, Scope
    from tracer.trace import Trace

_STEPS = re.compile(r"(\d+)-(\d+)")


def ledger(
    file: TraceFile = None,
    step: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Show step N (default: the median steady step).")
    ] = None,
    steps: Annotated[
        str | None, typer.Option(metavar="A-B", help="Show the mean of steps A to B, e.g. 10-40.")
    ] = None,
    process: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Show process N (default: the first with steps)."),
    ] = None,
    line: Annotated[
        str | None,
        typer.Option(metavar="FILE:LINE", help="Only what this line called, backward ops too."),
    ] = None,
    op: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="Only these ops and the hops inside: aten::add.*."),
    ] = None,
    path: Annotated[
        bool, typer.Option("--path", help="A row for each hop of the op or line, as a tree.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="OUT.md", help="Write markdown to OUT.md."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT.md.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show where the host's time of a step goes, layer by layer.

    A row for each layer: Python between ops, the autograd engine, each dispatch key,
    kernel functions, library calls, CUDA calls. Each has only its own time, so the
    rows add up to the wall time of the step. The cost of recording is measured and
    has a row of its own. So has the time that nothing explains.

    \b
    Examples:
      tracer ledger run.trace
      tracer ledger run.trace --steps 10-40
      tracer ledger run.trace --line train.py:41
      tracer ledger run.trace --op aten::linear --path
      tracer ledger run.trace --json | jq .bare_ns
    """
    wanted = _steps(step, steps)
    exclusive(line=line, op=op)
    exclusive(json=as_json, output=output)
    if path and line is None and op is None:
        fail("--path needs --op or --line", USAGE)
    if output is not None:
        check_output(output, force)
    file = chosen_trace(file)
    of = line or op or ""
    with analysing(file, needs_all_ops=True) as trace:
        found, steady = _found(trace, file, process, wanted, _scope(line, op, path), of)
    if as_json:
        from tracer.report.ledger_document import ledger_document

        print_json(ledger_document(str(file), found, of))
    elif output is not None:
        from tracer.report.ledger_document import ledger_page

        write_output(output, ledger_page(file.name, found, of, steady))
        say(f"wrote {output}")
    else:
        from tracer.base.visible import visible
        from tracer.report import ledger_text as text

        with writing():
            print(visible(text.heading(found, of, steady)))
            print_cells(text.TITLES, text.cells(found))
            for sentence in text.below(found, of):
                print(visible(sentence))


def _steps(step: int | None, steps: str | None) -> tuple[int, int] | None:
    if steps is None:
        return None if step is None else (step, step)
    exclusive(step=step, steps=steps)
    match = _STEPS.fullmatch(steps.strip())
    if match is None or int(match[1]) > int(match[2]):
        fail(f"--steps {steps}: give the first and the last step, e.g. 10-40", USAGE)
    return int(match[1]), int(match[2])


def _found(
    trace: Trace,
    file: Path,
    process: int | None,
    wanted: tuple[int, int] | None,
    scope: Scope | None,
    of: str,
) -> tuple[Ledger, list[int] | None]:
    """The ledger, and the wall times of the steady steps that its step is the median of."""
    import polars as pl

    from tracer.analysis.ledger import ledger as made
    from tracer.analysis.ledger import median_step

    processes = trace.steps["process"].unique().sort().to_list()
    if not processes:
        fail(f"{file} has no step; call tracer.step() at the end of each, or step an optimizer")
    if process is not None and process not in processes:
        fail(f"process {process} of {file} has no step; choose one of {', '.join(map(str, processes))}")
    if process is None and len(processes) > 1:
        say(f"showing process {processes[0]} of {len(processes)}; others: --process N")
    mine = trace.steps.filter(pl.col("process") == (processes[0] if process is None else process))
    say_steps(mine)
    chosen, number = median_step(mine)
    steady = None
    if wanted is None:
        wanted = number, number
        same = mine.filter(pl.col("phase").cast(pl.String) == "steady")
        steady = (same["end_ns"] - same["start_ns"]).to_list()
    try:
        found = made(trace, chosen, *wanted, scope)
    except ValueError:
        known = mine["step"].to_list()
        fail(f"{file} has no {_named(wanted)}; it has steps {min(known)} to {max(known)}")
    if found.empty:
        what = f"hop fits {of!r}" if of else "hop is"
        tree = f"tracer tree {file} --step {wanted[0]}"
        fail(f"no {what} in {_named(wanted)} of {file}; what ran there: {tree}")
    return found, steady


def _named(wanted: tuple[int, int]) -> str:
    return f"step {wanted[0]}" if wanted[0] == wanted[1] else f"steps {wanted[0]}-{wanted[1]}"


def _scope(line: str | None, op: str | None, path: bool) -> Scope | None:
    from functools import cache

    from tracer.analysis.ledger import Scope
    from tracer.analysis.patterns import fits_op
    from tracer.cli.selection import fits_source

    if op is not None:
        fitting = cache(lambda name: fits_op(name, op))
        return Scope(lambda name, _: name is not None and fitting(name), path=path)
    if line is not None:
        there = cache(lambda source: fits_source(source, line))
        return Scope(lambda _, source: source is not None and there(source), gap=True, path=path)
    return None
