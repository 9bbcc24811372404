"""Options that several commands have: which trace, which hops, how many rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from tracer.analysis.groups import GROUPS, SORTS
from tracer.cli.common import one_of
from tracer.cli.completion import traces
from tracer.cli.help import MORE
from tracer.cli.selection import Selection, nanoseconds

File = Annotated[
    Path | None,
    typer.Argument(
        help="A trace, or the folder of a job (default: the newest trace here).",
        metavar="FILE",
        autocompletion=traces,
    ),
]
Rank = Annotated[int | None, typer.Option(metavar="N", min=0, help="Show this rank of the folder of a job.")]
Op = Annotated[
    str | None, typer.Option(metavar="PATTERN", help="Only these ops: mm, aten::add.*, aten::*mm*.")
]
Key = Annotated[str | None, typer.Option(metavar="PATTERN", help="Only these dispatch keys: CPU, Autograd*.")]
Source = Annotated[
    str | None,
    typer.Option(metavar="FILE[:LINES]", help="Only this file or these lines: a.py:7-9,12."),
]
Module = Annotated[
    str | None, typer.Option(metavar="PATTERN", help="Only these modules: encoder, layers.*.attn.")
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Leave out these ops. Repeatable.", rich_help_panel=MORE),
]
MinTime = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only hops of at least TIME: 100us, 1.5ms.")
]
Thread = Annotated[
    str | None,
    typer.Option(
        "--thread", metavar="THREAD", help="Only this thread: number or name.", rich_help_panel=MORE
    ),
]
Depth = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Only N levels of hops; 1: outermost ones.")
]
Step = Annotated[int | None, typer.Option(metavar="N", min=0, help="Only this step; the rest is not read.")]
Limit = Annotated[int, typer.Option(metavar="N", min=0, help="Show at most N lines; 0: all.")]
By = Annotated[str, one_of("--by", GROUPS, "Make a row of each.")]
Sort = Annotated[str, one_of("--sort", SORTS, "Sort by this, largest first.")]


def selection(
    op: str | None = None,
    key: str | None = None,
    source: str | None = None,
    thread: str | None = None,
    step: int | None = None,
    module: str | None = None,
    min_time: str | None = None,
    exclude: Iterable[str] | None = None,
) -> Selection:
    """The hops that these options choose; a wrong value ends the command."""
    least = None if min_time is None else nanoseconds(min_time)
    return Selection(op, key, source, thread, step, module, least, tuple(exclude or ()))
