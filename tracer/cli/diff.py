"""`tracer diff`: what changed between two recordings."""

from __future__ import annotations

import math
from pathlib import Path
from textwrap import fill, wrap
from typing import TYPE_CHECKING, Annotated

import typer

from tracer.cli.common import (
    USAGE,
    SourceFrom,
    analysing,
    exclusive,
    fail,
    one_of,
    progress,
    reading,
    say,
    say_steps,
    writing,
)
from tracer.cli.completion import traces
from tracer.cli.documents import AsJson, print_json
from tracer.cli.lines import print_cells
from tracer.cli.output import HTML, check_output, write_output
from tracer.cli.sides import Sides, chosen_sides

if TYPE_CHECKING:
    from tracer.analysis.difference import Change, Difference, Fusion
    from tracer.trace import Trace

    Traces = tuple[list[Trace], list[Trace]]

_ROWS = ("line", "op", "module")


def diff(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="BEFORE AFTER", autocompletion=traces),
    ] = None,
    before: Annotated[
        list[Path] | None,
        typer.Option(
            "--before",
            metavar="TRACE ...",
            help="Runs before the change.",
            autocompletion=traces,
        ),
    ] = None,
    after: Annotated[
        list[Path] | None,
        typer.Option("--after", metavar="TRACE ...", help="Runs after the change.", autocompletion=traces),
    ] = None,
    by: Annotated[str, one_of("--by", _ROWS, "Make a row of each.")] = "line",
    limit: Annotated[
        int, typer.Option(metavar="N", min=0, help="Show at most N changes and N rows; 0: all.")
    ] = 10,
    fail_over: Annotated[
        str | None,
        typer.Option(metavar="PERCENT", help="Exit status 1 only if a step is slower by more."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="OUT", help="Write to OUT.md or OUT.html."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output file.")] = False,
    as_json: AsJson = False,
    source_from: SourceFrom = None,
) -> None:
    """Show what changed between recordings, in structure and times.

    Op calls are matched by the text of their line, operator and direction. Of those
    that changed you see the chain of hops, library calls and kernels as a diff.

    Times are medians of the steady steps. With two or more runs a side, a time
    changed if the sides differ by more than runs of one side do. With one, it
    changed if it moved beyond what unchanged lines show.

    The exit status is 1 if the structure changed. With --fail-over it is 1 only if a
    step became slower by more than that.

    \b
    Examples:
      tracer diff before.trace after.trace
      tracer diff --before a1.trace a2.trace --after b1.trace b2.trace
      tracer diff --before main*.trace --after branch*.trace --fail-over 10%
    \f
    A line that was edited is found by its nn.Module, or if its text is similar. If
    both runs recorded --values hash, you see the first op call whose result differs,
    and the first NaN. Changes with one likely cause are one entry.

    \b
    More examples:
      tracer diff before.trace after.trace --by module
      tracer diff before.trace after.trace -o diff.html
      tracer diff before.trace after.trace --json | jq .causes
    """
    exclusive(json=as_json, output=output)
    most = None if fail_over is None else _percent(fail_over)
    html = output is not None and output.suffix.lower() in HTML
    if output is not None:
        if not html and output.suffix.lower() != ".md":
            fail(f"{output}: a page is markdown or HTML; give a file that ends in .md or .html", USAGE)
        check_output(output, force, html=html)
    sides = chosen_sides(files, before, after)
    traces, found = _compared(sides)
    if as_json:
        from tracer.report.documents import difference_document

        print_json(difference_document(*traces, found, limit))
    elif output is not None:
        _write(output, traces, found, sides, limit)
    else:
        with writing():
            _show(found, by, limit)
    failed = bool(found.structural) if most is None else _is_slower(found, most)
    if failed:
        raise typer.Exit(1)


def _compared(sides: Sides) -> tuple[Traces, Difference]:
    from tracer.analysis.difference import DifferenceError, difference

    traces: Traces = ([], [])
    for side, files in zip(traces, sides, strict=True):
        for file in files:
            with analysing(file) as trace:
                side.append(trace)
    say_steps(traces[0][0].steps)
    last = sides[1][-1]
    with progress(f"comparing with {last}"), reading(last):
        try:
            return traces, difference(*traces)
        except DifferenceError as error:
            fail(str(error), USAGE)


def _is_slower(found: Difference, most: float) -> bool:
    """Whether a step is, by more than `most` and by the rule; with a single run on a side it says by what."""
    from tracer.analysis.difference.times import SLOWER
    from tracer.report.decision_text import fail_over_reason

    step, machine = found.step, found.pace.value if found.pace and found.pace.uniform else 1.0
    low = step.beside.low if step.beside else step.ratio.low / machine if step.ratio else 0.0
    failed = step.verdict == SLOWER and low > 1 + most
    if not found.several:
        try:
            say(fail_over_reason(found, failed))
        except ValueError as error:
            fail(f"--fail-over needs {error}", USAGE)
    return failed


def _percent(text: str) -> float:
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share < math.inf:
        fail(f"--fail-over {text}: give a percentage, e.g. 10%", USAGE)
    return share


def _write(output: Path, traces: Traces, found: Difference, sides: Sides, limit: int) -> None:
    before, after = (", ".join(file.name for file in side) for side in sides)
    if output.suffix.lower() in HTML:
        from tracer.report.html.difference import render_difference

        text = render_difference(*traces, found, (before, after), limit)
    else:
        from tracer.report.difference_page import difference_page

        text = difference_page(found, before, after, limit)
    write_output(output, text)
    say(f"wrote {output}")


def _show(found: Difference, by: str, limit: int) -> None:
    from tracer.base.visible import visible
    from tracer.report.decision_text import decision
    from tracer.report.difference_text import first, folded, rows, shown_of, titles, value_lines, verdict

    lines = wrap(verdict(found), 100, subsequent_indent="  ")
    if found.causes:
        lines += wrap(f"likely causes: {'; '.join(found.causes)}", 100, subsequent_indent="  ")
    said = [*decision(found), *found.remarks]
    lines += [line for sentence in said for line in wrap(sentence, 100, subsequent_indent="  ")]
    lines += ["", *value_lines(found.values)] if found.values is not None else []
    if found.fusion is not None:
        for line in lines:
            print(visible(line))
        lines = []
        _show_fusion(found.fusion, limit, by)
    changed = folded(found.structural)
    for change, others in first(changed, limit):
        lines += ["", *_change(change), *_explained(change, others, limit)]
    cut = shown_of(len(first(changed, limit)), len(changed), "change")
    lines += ["", cut] if cut else []
    for line in lines:
        print(visible(line))
    timed = rows(by, found)
    if timed:
        print()
        print_cells(titles(by, found), list(first(timed, limit)))
        if cut := shown_of(len(first(timed, limit)), len(timed), "row"):
            print(cut)


def _show_fusion(found: Fusion, limit: int, by: str) -> None:
    from tracer.base.visible import visible
    from tracer.report import fusion_text as text
    from tracer.report.difference_text import first, shown_of

    head, *sentences = text.fusion_lines(found)
    print(f"\n{visible(head)}")
    for sentence in sentences:
        print(fill(visible(sentence), 100, initial_indent="  ", subsequent_indent="    "))
    shown = list(first(found.kernels, limit))
    for kernel in shown:
        print(f"\n{visible(text.kernel_name(kernel))}\n  {text.kernel_costs(kernel)}")
        cells = [[visible(cell) for cell in text.op_cells(op)] for op in kernel.ops]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for line, op, calls, words in cells:
            print(f"    {line:<{widths[0]}}  {calls:>{widths[2]}} x {op:<{widths[1]}}  {words}".rstrip())
    notes = [*text.notes(shown), shown_of(len(shown), len(found.kernels), "kernel")]
    if any(notes):
        print("", *filter(None, notes), sep="\n")
    if by == "module" and found.modules:
        print(f"\n{fill(text.MODULES_SAID, 100)}")
        modules = list(first(found.modules, limit))
        print_cells(text.MODULE_TITLES, [text.module_cells(module) for module in modules])
        if cut := shown_of(len(modules), len(found.modules), "module"):
            print(cut)
    elif found.lines:
        print(f"\n{fill(text.LINES_SAID, 100)}")
        lines = list(first(found.lines, limit))
        print_cells(text.LINE_TITLES, [text.line_cells(line) for line in lines])
        if cut := shown_of(len(lines), len(found.lines), "line"):
            print(cut)


def _explained(change: Change, others: list[Change], limit: int) -> list[str]:
    from tracer.report.difference_text import explained

    return wrap(explained(change, others, limit), 100, initial_indent="  ", subsequent_indent="    ")


def _change(change: Change) -> list[str]:
    from tracer.report.difference_text import chain_diff, place

    head = f"{place(change)}  {change.kind.text}".rstrip()
    what = f"  {change.kind.op}: {'; '.join(change.what)}"
    return [head, what, *(f"    {line}" for line in chain_diff(change))]
