"""`tracer steps`: where the wall time of each step went."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tracer.cli.common import SourceFrom, analysing, fail, writing
from tracer.cli.documents import AsJson, print_json
from tracer.cli.filters import File, Limit, Rank
from tracer.cli.job import trace_or_rank
from tracer.cli.lines import print_cells

_GAPS = 10
_MARKED = 3

_Step = Annotated[int | None, typer.Option(metavar="N", min=0, help="Only this step, and its gaps.")]


def steps(
    file: File = None,
    limit: Limit = 40,
    step: _Step = None,
    rank: Rank = None,
    as_json: AsJson = False,
    source_from: SourceFrom = None,
) -> None:
    """Show where the wall time of each step went.

    A row for each step: its wall time, and of that forward, backward, optimizer and
    the rest. Below, between which lines the time outside ops was.

    \b
    Examples:
      tracer steps
      tracer steps run.trace --limit 0
      tracer steps run.trace --step 0
      tracer steps run.trace --json | jq '.steps[0]'
    """
    file = trace_or_rank(file, rank)
    with analysing(file) as trace:
        from tracer.analysis.gaps import gaps, longest_gaps
        from tracer.analysis.step_times import step_times

        times = step_times(trace)
        try:
            outside = gaps(trace, step)
        except LookupError as error:
            fail(str(error))
        if step is not None:
            times = times.filter(times["step"] == step)
        marked = longest_gaps(trace, times, _MARKED)
    if as_json:
        from tracer.report.documents import steps_document

        print_json(steps_document(trace, times, outside, marked, limit))
        return
    from tracer.analysis.source_lines import SourceLines
    from tracer.base.visible import visible
    from tracer.report import step_tables as tables
    from tracer.report.text import count

    shown = tables.chosen_steps(times, limit) if limit else times
    rows = tables.with_lines(outside.table.head(_GAPS).iter_rows(named=True), SourceLines.of(trace))
    cells = [
        [*row, said["text"]]
        for row, said in zip(tables.gap_cells(rows, outside.wall_ns, _lines), rows, strict=True)
    ]
    with writing():
        print_cells(tables.step_titles(shown), tables.step_cells(shown, lambda text: f"{text} !"))
        for line in tables.below_steps(times, len(times) - len(shown)):
            print(visible(line))
        if step is None:  # else the table of gaps is that of the step
            for line in tables.about_marked(marked, SourceLines.of(trace)):
                print(visible(line))
        if rows:
            print()
            print_cells([*tables.gap_titles(), "text"], cells)
            print(tables.about_gaps(outside, only_ops=bool(trace.only_ops)))
            if len(outside.table) > _GAPS:
                print(f"Shown: {_GAPS} of {count(len(outside.table), 'row')}. More: --json.")


def _lines(row: dict[str, Any]) -> str:
    return f"{row['before']} -> {row['after']}"
