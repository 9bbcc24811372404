"""`tracer tree`: the dispatch tree of a trace, one line a hop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tracer.cli.common import analysing, chosen_trace, writing

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from rich.console import Console

    from tracer.report.tree import Line
    from tracer.trace import Trace

_GROUP = ["process", "thread", "source", "called_from", "backward_node"]
_STYLES = {
    "thread": "bold magenta",
    "group": "bold blue",
    "cost": "bright_black",
    "indent": "bright_black",
    "arrow": "bright_black",
    "op": "bold",
    "key": "cyan",
    "kernel": "green",
    "inputs": "bright_black",
    "time": "yellow",
    "mark": "bold red",
    "link": "bold magenta",
    "device": "bold green",
}


def tree(
    file: Annotated[
        Path | None, typer.Argument(help="A trace; otherwise the newest *.trace here.", metavar="FILE")
    ] = None,
    op: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Ops like mm, aten::add.*, aten::*mm*.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Dispatch keys like CPU, Autograd*.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(metavar="FILE[:LINE]", help="Calls from this file or line.")
    ] = None,
    thread: Annotated[str | None, typer.Option(metavar="THREAD", help="A thread, by number or name.")] = None,
    depth: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Show N levels of hops; 1: outermost.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=0, help="Show at most N hop lines; 0: all.")] = 200,
    fold: Annotated[
        bool, typer.Option("--fold/--no-fold", help="Fold identical subtrees with a count.")
    ] = True,
    api: Annotated[bool, typer.Option("--api", help="Show every CUDA API call, queries too.")] = False,
) -> None:
    """Show the dispatch tree of a trace, one line a hop.

    A line has the op, its dispatch key in brackets, the kernel function, the
    shapes of the inputs, the time with all below it, and its own time (self).
    "->" is a redispatch to the next key; "3 x" three identical subtrees among
    siblings, with their median time. Filters keep hops that match, what
    encloses them and what they call. Where CUDA was recorded, library calls,
    API calls and what the GPU did stand below the hop that caused them; API
    calls that only ask are counted.

    \b
    Examples:
      tracer tree
      tracer tree run.trace --op mm
      tracer tree run.trace --source train.py:41 --depth 3
      tracer tree run.trace --key 'Autograd*' --limit 0 > tree.txt
      tracer tree run.trace --op 'cublas*'
    """
    file = chosen_trace(file)
    with analysing(file) as trace:
        from tracer.analysis import links, trees
        from tracer.report.text import count

        combined = links.combine(trace, every_call=api)
        hops = combined.rows
        forest = trees.Forest.of(hops)
        matching = _matching(trace, hops, op=op, key=key, source=source, thread=thread)
        kept = matching if matching.all() else forest.around(matching)
        shallow = kept if depth is None else kept & (forest.depth < depth)
        groups, nodes = trees.fold(trees.Forest.of(hops.filter(shallow)), _GROUP, identical=fold)
    with writing():
        _show(trace, groups, nodes, limit, combined.details)
        if depth and (deeper := int(kept.sum() - shallow.sum())):
            print(f"{count(deeper, 'deeper hop')} left out; --depth {depth + 1} shows more")
        if limit and len(nodes) > limit:
            print(
                f"{count(len(nodes) - limit, 'more line')} left out; "
                "--limit 0 shows all; --op, --source, --depth narrow"
            )
    verdict = str(trace.certificate.get("verdict", ""))
    if verdict and not verdict.startswith("complete"):
        print(f"tracer: {verdict}", file=sys.stderr)


def _matching(
    trace: Trace,
    hops: pl.DataFrame,
    *,
    op: str | None,
    key: str | None,
    source: str | None,
    thread: str | None,
) -> np.ndarray:
    """True for the hops that meet every condition; ends the command where one meets none."""
    import polars as pl

    chosen = pl.col("id").is_not_null()
    if op is not None:
        chosen &= _among(hops, "op", op, _matches_op)
    if key is not None:
        chosen &= _among(hops, "key", key, fnmatchcase)
    if source is not None:
        lines = [
            _found(hops, name, lambda line: _matches_source(line, source))
            for name in ("source", "called_from")
        ]
        if not any(lines):
            _nothing("source", source, _values(hops, "source"))
        chosen &= pl.col("source").is_in(lines[0]) | pl.col("called_from").is_in(lines[1])
    if thread is not None:
        chosen &= _in_thread(trace, hops, thread)
    mask = hops.select(chosen.fill_null(False)).to_series().to_numpy()
    if len(hops) and not mask.any():
        _end("no hop meets all of these conditions at once; leave one out")
    return mask


def _among(hops: pl.DataFrame, column: str, pattern: str, matches: Callable[[str, str], bool]) -> pl.Expr:
    import polars as pl

    found = _found(hops, column, lambda value: matches(value, pattern))
    if not found:
        _nothing(column, pattern, _values(hops, column))
    return pl.col(column).is_in(found)


def _in_thread(trace: Trace, hops: pl.DataFrame, thread: str) -> pl.Expr:
    import polars as pl

    numbers = trace.threads.filter(pl.col("name").cast(pl.String) == thread)["thread"].to_list()
    if thread.isdecimal():
        numbers.append(int(thread))
    known = set(hops["thread"].unique().to_list())
    if not known & set(numbers):
        _nothing("thread", thread, map(str, sorted(known)))
    return pl.col("thread").is_in(numbers)


def _values(hops: pl.DataFrame, column: str) -> list[str]:
    import polars as pl

    return hops[column].unique().drop_nulls().cast(pl.String).sort().to_list()


def _found(hops: pl.DataFrame, column: str, matches: Callable[[str], bool]) -> list[str]:
    return [value for value in _values(hops, column) if matches(value)]


def _nothing(option: str, wanted: str, values: Iterable[str]) -> NoReturn:
    values = list(values)
    near = get_close_matches(wanted, values, cutoff=0.5) or values[:5]
    hint = f"; there is {', '.join(near)}" if near else ""
    _end(f"no hop has --{option} {wanted}{hint}")


def _end(message: str) -> NoReturn:
    """An empty answer is an answer: said on stderr, and no error."""
    print(f"tracer: {message}", file=sys.stderr)
    raise typer.Exit(0)


def _matches_op(op: str, pattern: str) -> bool:
    """A pattern without a namespace or an overload fits ops of every namespace or overload."""
    names = {op, op.split(".")[0]}
    names |= {name.rpartition("::")[2] for name in names}
    return any(fnmatchcase(name, pattern) for name in names)


def _matches_source(source: str, wanted: str) -> bool:
    """`train.py`, `src/train.py` and `train.py:41` fit `/home/me/src/train.py:41`."""
    file = source.rpartition(":")[0]
    return any(name == wanted or name.endswith(f"/{wanted}") for name in (source, file))


def _show(
    trace: Trace, groups: pl.DataFrame, nodes: pl.DataFrame, limit: int, details: dict[int, str]
) -> None:
    from rich.console import Console

    from tracer.report.tree import fit, group_line, tree_lines

    console = Console(highlight=False)
    width = console.width if console.is_terminal else None
    shown = nodes.head(limit) if limit else nodes
    heads = {row["group"]: row for row in groups.iter_rows(named=True)}
    several = groups.select("process", "thread").n_unique() > 1
    group, place = None, None
    lines = tree_lines(shown, trace.signatures, width=width, base=1, details=details)
    for number, line in zip(shown["group"], lines, strict=True):
        if number != group:
            group, head = number, heads[number]
            if several and place != (place := (head["process"], head["thread"])):
                _print(console, fit([("thread", _thread_line(trace, *place))], width))
            _print(console, fit(group_line(head, trace.environment.get("cwd")), width))
        _print(console, line)


def _thread_line(trace: Trace, process: int, thread: int) -> str:
    import polars as pl

    threads = trace.threads.filter(pl.col("process") == process, pl.col("thread") == thread)
    pids = trace.processes.filter(pl.col("process") == process)["pid"].to_list()
    name = next((name for name in threads["name"].to_list() if name), "")
    return f"process {process}{f' (pid {pids[0]})' if pids else ''}, thread {thread} {name}".rstrip()


def _print(console: Console, line: Line) -> None:
    if not console.is_terminal:
        print("".join(text for _, text in line))
        return
    from rich.text import Text

    text = Text.assemble(*((part, _STYLES[role]) for role, part in line))
    console.print(text, no_wrap=True)
