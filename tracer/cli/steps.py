"""`tracer tree --steps`: where the wall time of each step went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tracer.cli.common import analysing, writing
from tracer.cli.documents import print_json
from tracer.cli.lines import print_cells

_GAPS = 10


def show_steps(file: Path, limit: int, *, as_json: bool) -> None:
    """Prints a row for each step, at most `limit` (0: all), and the longest times outside ops."""
    with analysing(file) as trace:
        from tracer.analysis.gaps import gaps
        from tracer.analysis.step_times import step_times

        steps, outside = step_times(trace), gaps(trace)
    if as_json:
        from tracer.report.documents import steps_document

        print_json(steps_document(trace, steps, outside, limit))
        return
    from tracer.analysis.source_lines import SourceLines
    from tracer.report import step_tables as tables
    from tracer.report.text import count

    shown = tables.chosen_steps(steps, limit) if limit else steps
    rows = tables.with_lines(outside.table.head(_GAPS).iter_rows(named=True), SourceLines.of(trace))
    cells = [
        [*row, said["text"]]
        for row, said in zip(tables.gap_cells(rows, outside.wall_ns, _lines), rows, strict=True)
    ]
    with writing():
        print_cells(tables.step_titles(shown), tables.step_cells(shown, lambda text: f"{text} !"))
        for line in tables.below_steps(steps, len(steps) - len(shown)):
            print(line)
        if rows:
            print()
            print_cells([*tables.gap_titles(), "text"], cells)
            print(tables.about_gaps(outside))
            if len(outside.table) > _GAPS:
                print(f"Shown: {_GAPS} of {count(len(outside.table), 'row')}. More: --json.")


def _lines(row: dict[str, Any]) -> str:
    return f"{row['before']} -> {row['after']}"
