"""`tracer top`: hops in a sorted table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracer.cli.common import SourceFrom, analysing, say, say_verdict, writing
from tracer.cli.documents import AsJson, print_json
from tracer.cli.filters import (
    By,
    Depth,
    Exclude,
    File,
    Key,
    Limit,
    MinTime,
    Module,
    Op,
    Rank,
    Sort,
    Source,
    Step,
    Thread,
    selection,
)
from tracer.cli.job import trace_or_rank
from tracer.cli.lines import print_table

if TYPE_CHECKING:
    from tracer.trace import Trace


def top(
    file: File = None,
    by: By = "hop",
    sort: Sort = "self",
    limit: Limit = 40,
    op: Op = None,
    key: Key = None,
    source: Source = None,
    module: Module = None,
    exclude: Exclude = None,
    min_time: MinTime = None,
    thread: Thread = None,
    depth: Depth = None,
    step: Step = None,
    rank: Rank = None,
    as_json: AsJson = False,
    source_from: SourceFrom = None,
) -> None:
    """Show which ops, lines or modules take the time.

    A row counts the hops that match: of an op at one key in one kernel function
    (--by hop), of an op, a key, a Python line, a module, a kernel function or a
    range. Self times add up to the time in these hops. The share is of the column that
    sorts the rows.

    \b
    Examples:
      tracer top
      tracer top run.trace --by source --sort total
      tracer top run.trace --op 'aten::*mm*' --step 3

    Exit status 1 if no hop matches.
    \f
    A hop inside another of its row does not count in the row's total. The total of a
    module or a range has the modules or ranges inside it too; wall is the time from
    begin to end.
    """
    chosen_hops = selection(op, key, source, thread, step, module, min_time, exclude)
    file = trace_or_rank(file, rank)
    with analysing(file, step) as trace:
        from tracer.analysis import flat, trees
        from tracer.analysis.source_lines import SourceLines

        chosen = chosen_hops.matching(trace, trace.hops, marks=True)
        if depth is not None:
            chosen = chosen & (trees.depths(trees.parent_rows(trace.hops)) < depth)
        table = flat.ranked(flat.flat_table(trace, chosen, by), sort)
        whole_ns = flat.whole_ns(trace, chosen)
    if as_json:
        from tracer.report.documents import flat_document

        print_json(flat_document(trace, table, by, limit))
        return
    for said in (_included(trace), _busy(trace)) if step is None else ():
        if said:
            say(said)
    with writing():
        print_table(table, by, sort, limit, SourceLines.of(trace), whole_ns)
    say_verdict(trace)


def _included(trace: Trace) -> str:
    """Which steps the times are of; "" without warm-up."""
    import polars as pl

    from tracer.report.text import count

    warm = trace.steps.filter(pl.col("phase").cast(pl.String) == "warmup").height
    steps = count(trace.steps.height, "step")
    return f"of the whole recording: {steps}, {warm:,} of them warm-up; one step: --step N" if warm else ""


def _busy(trace: Trace) -> str:
    """Whether other work had the cores meanwhile; "" if not, or not known."""
    import polars as pl

    from tracer.report.step_tables import about_busy

    return about_busy(trace.steps.with_columns(wall_ns=pl.col("end_ns") - pl.col("start_ns")))
