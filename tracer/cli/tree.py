"""`tracer tree`: the dispatch tree of a trace, one line per hop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracer.cli.common import SourceFrom, analysing, exclusive, one_of, say_verdict, writing
from tracer.cli.documents import AsJson, print_json
from tracer.cli.filters import (
    Depth,
    Exclude,
    File,
    Key,
    Limit,
    MinTime,
    Module,
    Op,
    Rank,
    Source,
    Step,
    Thread,
    selection,
)
from tracer.cli.help import MORE
from tracer.cli.job import trace_or_rank
from tracer.cli.lines import print_line, terminal
from tracer.cli.selection import Selection

if TYPE_CHECKING:
    import polars as pl

    from tracer.trace import Trace

_STACK = "python_stack"


def tree(
    file: File = None,
    op: Op = None,
    key: Key = None,
    source: Source = None,
    module: Module = None,
    exclude: Exclude = None,
    min_time: MinTime = None,
    thread: Thread = None,
    depth: Depth = None,
    limit: Limit = 200,
    step: Step = None,
    sort: Annotated[str, one_of("--sort", ("order", "time"), "As they ran, or longest first.")] = "order",
    fold: Annotated[
        bool,
        typer.Option("--fold/--no-fold", help="Show identical subtrees one by one.", rich_help_panel=MORE),
    ] = True,
    api: Annotated[
        bool, typer.Option("--api", help="Show every CUDA API call.", rich_help_panel=MORE)
    ] = False,
    ids: Annotated[bool, typer.Option("--ids", help="Show the id of each row.")] = False,
    rank: Rank = None,
    as_json: AsJson = False,
    source_from: SourceFrom = None,
) -> None:
    """Show the dispatch tree of a trace, one line per hop.

    A hop is a call of an operator, or its redispatch to the next dispatch key
    ("->"). A line has the total and the self time, the op, the key in brackets, the
    kernel function and the shapes of the inputs. "3 x": three identical subtrees,
    with median times. With CUDA each hop has below it the calls and the GPU work
    that it caused. Filters keep the hops that match, those around them and those
    that they call.

    \b
    Examples:
      tracer tree run.trace --op mm
      tracer tree run.trace --source train.py:41 --depth 3
      tracer tree run.trace --key 'Autograd*' --limit 0 > tree.txt

    Exit status 1 if no hop matches.
    \f
    API calls that only read state (cudaGetDevice) are counted, not shown.

    --ids puts the id of its row before each line. A number alone is the id of a hop;
    "lib 3", "api 5" and "gpu 9" are rows of the tables library_calls, api_calls and
    gpu_activities. A line that folds several rows has the id of the first.

    \b
    More examples:
      tracer tree run.trace --op 'cublas*' --step 3
      tracer tree run.trace --op mm --ids
      tracer tree job/ --rank 3
    """
    exclusive(ids=ids, json=as_json)
    chosen = selection(op, key, source, thread, step, module, min_time, exclude)
    file = trace_or_rank(file, rank)
    _tree(file, chosen, _Form(depth, limit, fold, api, ids, as_json, sort == "time"))


@dataclass(frozen=True)
class _Form:
    """How a tree is shown: the values of the options."""

    depth: int | None
    limit: int
    fold: bool
    api: bool
    ids: bool
    as_json: bool
    by_time: bool


def _tree(file: Path, selection: Selection, form: _Form) -> None:
    depth, limit, fold, ids, as_json = form.depth, form.limit, form.fold, form.ids, form.as_json
    with analysing(file, selection.step) as trace:
        from tracer.analysis import links, ranges, trees
        from tracer.analysis.row_ids import with_ids

        combined = links.combine(trace, every_call=form.api)
        hops = combined.rows
        forest = trees.Forest.of(hops)
        matching = selection.matching(trace, hops)
        kept = matching if matching.all() else forest.around(matching)
        if selection.exclude:
            kept = kept & ~forest.below(selection.excluded(hops))
        if selection.min_ns is not None:  # what a hop calls may be shorter
            kept = kept & (hops["end_ns"] - hops["start_ns"] >= selection.min_ns).to_numpy()
        shallow = kept if depth is None else kept & (forest.depth < depth)
        by = [*trees.OF_A_GROUP, _STACK] if len(trace.python_stacks) else trees.OF_A_GROUP
        shown = hops.filter(shallow)
        shown = shown.with_columns(
            source=trees.own_or_forward_line(), range=ranges.headings(shown, trace.ranges)
        )
        groups, nodes = trees.fold(trees.Forest.of(shown), by, identical=fold)
        if form.by_time:
            groups, nodes = trees.longest_first(groups, nodes)
        nodes = with_ids(nodes, hops) if ids or as_json else nodes
        levels = int(forest.depth[kept].max(initial=-1)) + 1
        deeper = int(kept.sum() - shallow.sum())
    if as_json:
        from tracer.report.documents import tree_document

        document = tree_document(trace, groups, nodes, combined.details, limit)
        print_json(document | {"deeper_hops_left_out": deeper})
        return
    with writing():
        _show(trace, groups, nodes, limit, combined.details)
        for line in _footer(limit, len(nodes), depth or levels, levels, deeper):
            print(line)
    say_verdict(trace)


def _footer(limit: int, lines: int, depth: int, levels: int, deeper: int) -> Iterator[str]:
    """What the tree does not show: `Shown: 30 of 89 lines, 1 of 12 levels. More: --limit 0, --depth 2.`"""
    from tracer.report.text import count

    shown, more, less = [], [], ""
    if limit and lines > limit:
        shown, more, less = [f"{limit:,} of {count(lines, 'line')}"], ["--limit 0"], " Less: --op, --source."
    if deeper:
        shown.append(f"{depth} of {count(levels, 'level')} ({count(deeper, 'deeper hop')} hidden)")
        more.append(f"--depth {depth + 1}")
    if shown:
        yield f"Shown: {', '.join(shown)}. More: {', '.join(more)}.{less}"


def _show(
    trace: Trace, groups: pl.DataFrame, nodes: pl.DataFrame, limit: int, details: dict[int, str]
) -> None:
    from tracer.analysis.source_lines import SourceLines
    from tracer.report.handed_over import with_handed_over
    from tracer.report.tree import fit, group_line, id_texts, stack_line, title_line, tree_lines

    (console, width), sources = terminal(), SourceLines.of(trace)
    shown = with_handed_over(nodes.head(limit) if limit else nodes, trace.certificate)
    ids = id_texts(shown)
    heads = {row["group"]: row for row in groups.iter_rows(named=True)}
    several = groups.select("process", "thread").n_unique() > 1
    group: int | None = None
    place: tuple[int, int] | None = None
    left = None if width is None else width - len(ids[0] if ids else "")
    lines = tree_lines(shown, trace.signatures, width=left, details=details)
    if len(shown):
        print_line(console, [("id", " " * len(ids[0]) if ids else ""), *title_line(shown, left)])
    for row, (number, line) in enumerate(zip(shown["group"], lines, strict=True)):
        if number != group:
            group, head = number, heads[number]
            if several and place != (there := (head["process"], head["thread"])):
                place = there
                print_line(console, fit([("thread", _thread_line(trace, *there))], width))
            print_line(console, fit(group_line(head, sources), width))
            for frame in _outer_frames(trace, head.get(_STACK)):
                print_line(console, fit(stack_line(frame, sources), width))
        print_line(console, [("id", ids[row]), *line] if ids else line)


def _outer_frames(trace: Trace, stack: int | None) -> list[str]:
    return [] if stack is None else trace.python_stacks["frames"][stack].to_list()[1:]


def _thread_line(trace: Trace, process: int, thread: int) -> str:
    import polars as pl

    threads = trace.threads.filter(pl.col("process") == process, pl.col("thread") == thread)
    pids = trace.processes.filter(pl.col("process") == process)["pid"].to_list()
    name = next((name for name in threads["name"].to_list() if name), "")
    return f"process {process}{f' (pid {pids[0]})' if pids else ''}, thread {thread} {name}".rstrip()
