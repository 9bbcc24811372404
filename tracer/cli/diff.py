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
    chosen_trace,
    exclusive,
    fail,
    one_of,
    say,
    writing,
)
from tracer.cli.documents import AsJson, print_json
from tracer.cli.lines import print_cells
from tracer.cli.output import HTML, check_output, write_output

if TYPE_CHECKING:
    from tracer.analysis.difference import Change, Difference, Fusion

_ROWS = ("line", "op", "module")


def diff(
    before: Annotated[Path, typer.Argument(help="The trace of the first run.", metavar="BEFORE")],
    after: Annotated[Path, typer.Argument(help="The trace of the second run.", metavar="AFTER")],
    by: Annotated[str, one_of("--by", _ROWS, "Show times by this.")] = "line",
    limit: Annotated[
        int, typer.Option(metavar="N", min=0, help="Show at most N changes and N rows (default 10); 0: all.")
    ] = 10,
    fail_over: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT", help="Exit status 1 only if a step is slower by more than PERCENT, e.g. 10%."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="OUT", help="Write OUT.md or OUT.html instead of the text."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output file.")] = False,
    as_json: AsJson = False,
    source_from: SourceFrom = None,
) -> None:
    """Show what changed between two recordings: structure, inputs, settings and times.

    Op calls are the same if their line (by its text), operator and direction (forward or
    backward) are; a line that was edited is found by its nn.Module, or if its text is
    similar. Of those that changed, the chain of hops, library calls and kernels is shown
    as a diff, in the order in which they ran. Times are medians of the steady steps; where
    the 95 % interval of a ratio reaches 1, that is no change. If both runs recorded
    --values hash, the first op call whose result differs is shown, and the first NaN.

    The exit status is 0 if the structure is the same and 1 if not. With --fail-over it is 1
    only if the steady step became slower by more than that, and the interval says so too.

    \b
    Examples:
      tracer diff before.trace after.trace
      tracer diff main.trace branch.trace --fail-over 10%
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
    before, after = chosen_trace(before), chosen_trace(after)
    from tracer.analysis.difference import difference

    with analysing(before) as first:
        pass
    with analysing(after) as second:
        found = difference(first, second)
    if as_json:
        from tracer.report.documents import difference_document

        print_json(difference_document(first, second, found, limit))
    elif output is not None:
        _write(output, found, (before, after), limit, html)
    else:
        with writing():
            _show(found, by, limit)
    if most is None:
        failed = bool(found.structural)
    else:
        ratio = found.step.ratio
        if ratio is None:
            fail("--fail-over needs three steps in each trace; record more, or call tracer.step()", USAGE)
        failed = ratio.value > 1 + most and ratio.low > 1 + most
    if failed:
        raise typer.Exit(1)


def _percent(text: str) -> float:
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share < math.inf:
        fail(f"--fail-over {text}: give a percentage, e.g. 10%", USAGE)
    return share


def _write(output: Path, found: Difference, files: tuple[Path, Path], limit: int, html: bool) -> None:
    from tracer.report.difference_page import difference_page
    from tracer.report.html.document import render_document

    names = [file.name for file in files]
    text = difference_page(found, names[0], names[1], limit)
    write_output(output, render_document(f"{names[0]} and {names[1]}", text) if html else text)
    say(f"wrote {output}")


def _show(found: Difference, by: str, limit: int) -> None:
    from tracer.base.visible import visible
    from tracer.report.difference_text import first, rows, shown_of, titles, value_lines, verdict

    lines = wrap(verdict(found), 100, subsequent_indent="  ")
    if found.causes:
        lines += wrap(f"likely causes: {'; '.join(found.causes)}", 100, subsequent_indent="  ")
    lines += [line for remark in found.remarks for line in wrap(remark, 100, subsequent_indent="  ")]
    lines += ["", *value_lines(found.values)] if found.values is not None else []
    if found.fusion is not None:
        for line in lines:
            print(visible(line))
        lines = []
        _show_fusion(found.fusion, limit, by)
    changed = found.structural
    for change in first(changed, limit):
        lines += ["", *_told(change)]
    cut = shown_of(len(first(changed, limit)), len(changed), "change")
    lines += ["", cut] if cut else []
    for line in lines:
        print(visible(line))
    timed = rows(by, found)
    if timed:
        print()
        names = 2 if by == _ROWS[0] else 1
        print_cells(
            _times_first(titles(by, found), names, by),
            [_times_first(row, names, by) for row in first(timed, limit)],
        )
        if cut := shown_of(len(first(timed, limit)), len(timed), "row"):
            print(cut)


def _times_first(cells: list[str], names: int, by: str) -> list[str]:
    """The figures before the names, so that a narrow terminal cuts the text of the line."""
    end = len(cells) - (by == _ROWS[0])
    return [*cells[names:end], *cells[:names], *cells[end:]]


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


def _told(change: Change) -> list[str]:
    from tracer.report.difference_text import chain_diff, place

    head = f"{place(change)}  {change.kind.text}".rstrip()
    what = f"  {change.kind.op}: {'; '.join(change.what)}"
    return [head, what, *(f"    {line}" for line in chain_diff(change))]
