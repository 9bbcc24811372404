"""`tracer tree`: the dispatch tree of a trace, one line per hop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracer.cli.common import USAGE, SourceFrom, analysing, choose, chosen_trace, fail, say, writing
from tracer.cli.documents import AsJson, print_json
from tracer.cli.job import rank_of_folder
from tracer.cli.lines import print_line, print_table
from tracer.cli.output import check_svg
from tracer.cli.selection import Selection, nanoseconds

if TYPE_CHECKING:
    import polars as pl

    from tracer.trace import Trace

_GROUP = ["process", "thread", "source", "called_from", "backward_node", "range"]
_STACK = "python_stack"
_TREE_LINES, _FLAT_LINES, _STEP_LINES = 200, 40, 40


def tree(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A trace, or the folder of a job (default: the newest trace here).", metavar="FILE"
        ),
    ] = None,
    rank: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Of the folder of a job: show this rank.")
    ] = None,
    op: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Only these ops: mm, aten::add.*, aten::*mm*.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Only these dispatch keys: CPU, Autograd*.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(metavar="FILE[:LINES]", help="Only calls from this file or lines: a.py:7, a.py:7-9,12."),
    ] = None,
    module: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Only these modules: encoder, layers.*.attention.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Leave out these ops. Repeatable.")
    ] = None,
    min_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only hops that took at least TIME: 100us, 1.5ms.")
    ] = None,
    thread: Annotated[
        str | None, typer.Option(metavar="THREAD", help="Only this thread: number or name.")
    ] = None,
    depth: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Show N levels of hops; 1: only outermost ones.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Show at most N lines (default 200, of a table 40); 0: all."),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Show only this step, and read only its part of the file."),
    ] = None,
    flat: Annotated[bool, typer.Option("--flat", help="Print a sorted table instead of a tree.")] = False,
    by: Annotated[
        str | None,
        typer.Option(metavar="WHAT", help="One row of --flat per op, key, source, module, kernel or range."),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="Sort --flat by self (default), total, calls, hops or median; the lines of a tree by time.",
        ),
    ] = None,
    steps: Annotated[
        bool, typer.Option("--steps", help="Print where the wall time of each step went, and stop there.")
    ] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="Print which lines and ops use the memory, and stop there.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show hops while they are being recorded.")
    ] = False,
    fold: Annotated[
        bool, typer.Option("--fold/--no-fold", help="Show identical subtrees once, with a count.")
    ] = True,
    api: Annotated[
        bool, typer.Option("--api", help="Show every CUDA API call, also those that only read state.")
    ] = False,
    svg: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Draw the hottest path into the file OUT (SVG).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT.")] = False,
    ids: Annotated[bool, typer.Option("--ids", help="Show the id of each line's row first.")] = False,
    as_json: AsJson = False,
    source_from: SourceFrom = None,
) -> None:
    """Show the dispatch tree of a trace, one line per hop.

    A hop is a call of an operator ("aten::mm [CPU]"), or its redispatch to the
    next dispatch key ("->"). A line shows the op, the key in brackets, the kernel
    function, the shapes of the inputs, the total time and the self time.
    "3 x" means three identical subtrees; the times are then medians.
    "[in encoder.gru]" is the nn.Module that was being called.

    If CUDA was recorded, each hop has below it the library calls, the CUDA API
    calls and the GPU work that it caused. Queries, API calls that only read state
    (e.g. cudaGetDevice), are counted, not shown.

    Filters keep the hops that match, the hops around them and those that they call.
    --flat counts only the hops that match: one row per op, key and kernel function.
    --follow prints op calls as they end, until the recording ends: those that match
    or, without --op, --key or --depth, the outermost ones (those that no other op
    made). With --flat it prints a table and updates it.

    --steps prints a row for each step: its wall time, the time in forward, backward
    and optimizer ops, the time outside ops and, below, between which lines that was.

    --memory prints the memory in use at the peak, and the lines and ops that asked for
    it (of a recording with --memory).

    --svg draws the path that took the most time among the hops that match, from the
    Python line to the kernel, as a picture for a slide.

    --ids puts the id of its row before each line. A number alone is the id of a hop;
    "lib 3", "api 5" and "gpu 9" are rows of the tables library_calls, api_calls and
    gpu_activities. A line that folds several rows has the id of the first.

    \b
    Examples:
      tracer tree
      tracer tree run.trace --op mm
      tracer tree run.trace --source train.py:41 --depth 3
      tracer tree run.trace --key 'Autograd*' --limit 0 > tree.txt
      tracer tree run.trace --steps
      tracer tree run.trace --memory
      tracer tree run.trace --op 'cublas*' --step 3
      tracer tree run.trace --flat --by source --sort total
      tracer tree run.trace --op mm --ids
      tracer tree run.trace --flat --json | jq '.rows[0]'
      tracer tree run.trace --op matmul --svg matmul.svg
      tracer tree run.trace --follow --flat
      tracer tree job/ --rank 3

    Exit status 1 if no hop matches.
    """
    least = None if min_time is None else nanoseconds(min_time)
    selection = Selection(op, key, source, thread, step, module, least, tuple(exclude or ()))
    by_time = sort == "time" and not flat
    sort = "self" if by_time or sort is None else sort
    _check(flat, by, sort, follow, fold, api, step)
    if follow and (by_time or module or exclude or min_time):
        fail("--module, --exclude, --min-time and --sort time need a recording that has ended", USAGE)
    if follow and by == "range":
        fail("--by range needs a recording that has ended; remove --follow", USAGE)
    _check_form(flat, follow, ids, as_json)
    others = selection != Selection() or depth is not None or flat or follow or api or ids or not fold
    if steps and (others or memory):
        fail("--steps shows whole steps; of the other options only --limit and --json apply to it", USAGE)
    if memory and others:
        fail(
            "--memory shows the whole recording; of the other options only --limit and --json apply to it",
            USAGE,
        )
    if svg is not None:
        if flat or follow or steps or memory or depth is not None or ids or as_json or api or not fold:
            fail("--svg draws one path; of the other options only filters apply to it", USAGE)
        check_svg(svg, force)
    file = _chosen(file, rank)
    if svg is not None:
        _draw(file, selection, svg)
    elif steps:
        from tracer.cli.steps import show_steps

        show_steps(file, _STEP_LINES if limit is None else limit, as_json=as_json)
    elif memory:
        from tracer.cli.memory import show_memory

        show_memory(file, _FLAT_LINES if limit is None else limit, as_json=as_json)
    elif follow:
        from tracer.cli.follow import follow_trace

        follow_trace(file, selection, depth, flat=flat, by=by or "hop", sort=sort, limit=limit)
    elif flat:
        most = _FLAT_LINES if limit is None else limit
        _flat(file, selection, depth, by=by or "hop", sort=sort, limit=most, as_json=as_json)
    else:
        most = _TREE_LINES if limit is None else limit
        _tree(file, selection, _Form(depth, most, fold, api, ids, as_json, by_time))


def _chosen(file: Path | None, rank: int | None) -> Path:
    if file is not None and file.is_dir():
        return rank_of_folder(file, rank)
    if rank is not None:
        fail("--rank chooses a trace in the folder of a job; give the folder", USAGE)
    return chosen_trace(file)


def _check(
    flat: bool, by: str | None, sort: str, follow: bool, fold: bool, api: bool, step: int | None
) -> None:
    from tracer.analysis.flat import GROUPS, SORTS

    if by is not None and by not in GROUPS:
        fail(f"--by {by}: {choose(by, GROUPS)}", USAGE)
    if sort not in SORTS:
        fail(f"--sort {sort}: {choose(sort, SORTS)}", USAGE)
    if (by is not None or sort != SORTS[0]) and not flat:
        fail("--by and --sort apply to a table; add --flat", USAGE)
    if flat and (api or not fold):
        fail("--api and --no-fold apply to a tree; remove --flat", USAGE)
    if follow and (api or not fold or step is not None):
        fail("--api, --no-fold and --step need a recording that has ended; remove --follow", USAGE)


def _check_form(flat: bool, follow: bool, ids: bool, as_json: bool) -> None:
    if follow and (ids or as_json):
        fail("--ids and --json need a recording that has ended; remove --follow", USAGE)
    if flat and ids:
        fail("--ids applies to a tree; remove --flat", USAGE)
    if ids and as_json:
        fail("--json already has the ids; remove --ids", USAGE)


def _flat(
    file: Path,
    selection: Selection,
    depth: int | None,
    *,
    by: str,
    sort: str,
    limit: int,
    as_json: bool,
) -> None:
    with analysing(file, selection.step) as trace:
        from tracer.analysis import flat, trees
        from tracer.analysis.source_lines import SourceLines

        chosen = selection.matching(trace, trace.hops)
        if depth is not None:
            chosen = chosen & (trees.depths(trees.parent_rows(trace.hops)) < depth)
        table = flat.ranked(flat.flat_table(trace.hops, chosen, by, trace.gpu_activities), sort)
    if as_json:
        from tracer.report.documents import flat_document

        print_json(flat_document(trace, table, by, limit))
        return
    with writing():
        print_table(table, by, limit, SourceLines.of(trace))
    _say_verdict(trace)


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
        by = [*_GROUP, _STACK] if len(trace.python_stacks) else _GROUP
        shown = hops.filter(shallow).with_columns(
            source=trees.own_or_forward_line(), range=ranges.of_the_script()
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
    _say_verdict(trace)


def _draw(file: Path, selection: Selection, output: Path) -> None:
    from tracer.cli.picture import draw_hottest

    with analysing(file, selection.step) as trace:
        from tracer.analysis import links, trees

        combined = links.combine(trace)
        forest = trees.Forest.of(combined.rows)
        matching = selection.matching(trace, combined.rows)
        kept = matching if matching.all() else forest.around(matching)
        if selection.exclude:
            kept = kept & ~forest.below(selection.excluded(combined.rows))
        draw_hottest(trace, combined.rows.filter(kept), combined.details, output)
    _say_verdict(trace)


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


def _say_verdict(trace: Trace) -> None:
    if not trace.certificate["complete"]:
        say(trace.certificate["verdict"])


def _show(
    trace: Trace, groups: pl.DataFrame, nodes: pl.DataFrame, limit: int, details: dict[int, str]
) -> None:
    from rich.console import Console

    from tracer.analysis.source_lines import SourceLines
    from tracer.report.tree import fit, group_line, id_texts, stack_line, title_line, tree_lines

    console, sources = Console(highlight=False), SourceLines.of(trace)
    width = console.width if console.is_terminal else None
    shown = nodes.head(limit) if limit else nodes
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
