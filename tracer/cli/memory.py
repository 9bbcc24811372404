"""`tracer memory`: which lines and ops use the memory."""

from __future__ import annotations

from tracer.cli.common import SourceFrom, analysing, fail, writing
from tracer.cli.documents import AsJson, print_json
from tracer.cli.filters import File, Limit, Rank
from tracer.cli.job import trace_or_rank
from tracer.cli.lines import print_cells


def memory(
    file: File = None,
    limit: Limit = 40,
    rank: Rank = None,
    as_json: AsJson = False,
    source_from: SourceFrom = None,
) -> None:
    """Show which lines and ops use the memory.

    A table for each device: the memory in use at the peak, and the lines and ops that
    asked for it. The trace must have been recorded with --memory.

    \b
    Examples:
      tracer memory
      tracer memory run.trace --limit 0
    """
    file = trace_or_rank(file, rank)
    with analysing(file) as trace:
        from tracer.analysis.memory_use import memory_use
        from tracer.analysis.source_lines import NO_LINE, SourceLines
        from tracer.report import memory_tables as tables
        from tracer.report.text import count

        uses = memory_use(trace)
    if as_json:
        from tracer.report.documents import memory_document

        print_json(memory_document(trace, uses, limit))
        return
    if not uses:
        fail(tables.without_blocks(trace.environment))
    sources, none = SourceLines.of(trace), tables.no_op(trace)
    several = len({use.process for use in uses}) > 1

    def line(source: str | None) -> str:
        return sources.name(source) if source else NO_LINE

    with writing():
        for number, use in enumerate(uses):
            shown = use.table.head(limit) if limit else use.table
            rows = shown.to_dicts()
            cells = tables.memory_cells(rows, line, lambda op: op or none)
            texts = [[*row, sources.text(known["source"])] for row, known in zip(cells, rows, strict=True)]
            if number:
                print()
            print(tables.about(use, several))
            if by_line := tables.lines_at_peak(use, line):
                print(by_line)
            print_cells([*tables.memory_titles(), "text"], texts)
            if len(shown) < len(use.table):
                print(f"Shown: {len(shown)} of {count(len(use.table), 'row')}. More: --limit 0.")
