"""`tracer watch`: hops while they are being recorded."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from tracer.cli.common import USAGE, chosen_trace, fail, reading, say, writing
from tracer.cli.filters import By, Depth, File, Key, Op, Sort, Source, Thread, selection
from tracer.cli.lines import print_line, print_table, styled, terminal
from tracer.cli.selection import Selection

if TYPE_CHECKING:
    from types import FrameType

    import numpy as np
    import polars as pl
    from rich.console import RenderableType
    from rich.live import Live

    from tracer.analysis.flat import RunningFlat
    from tracer.trace.live.follower import Follower

_PAUSE_SECONDS = 0.2
_TERMINAL_LINES = 100
"""The most lines that go to a terminal at once: neither it nor a reader keeps up with more."""
_TABLE_ROWS = 40


def watch(
    file: File = None,
    table: Annotated[
        bool, typer.Option("--table", help="A sorted table that is updated, in place of lines.")
    ] = False,
    by: By = "hop",
    sort: Sort = "self",
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="At most N lines at once (100; of a table 40); 0: all."),
    ] = None,
    op: Op = None,
    key: Key = None,
    source: Source = None,
    thread: Thread = None,
    depth: Depth = None,
) -> None:
    """Show op calls while they are being recorded.

    Prints the hops that match as they end. Without --op, --key or --depth these are
    the outermost ones. In a pipe --table prints once, at the end.

    \b
    Examples:
      tracer watch
      tracer watch run.trace --op mm
      tracer watch run.trace --table --by op
    """
    if not table and (by, sort) != ("hop", "self"):
        fail("--by and --sort apply to a table; add --table", USAGE)
    if by == "range":
        fail("--by range needs a recording that has ended: tracer top --by range", USAGE)
    file = chosen_trace(file)
    chosen_hops = selection(op, key, source, thread)
    from tracer.trace.live.follower import Follower

    follower = Follower(file)
    try:
        with _asked_to_end() as asked, reading(file), writing(pages=False):
            show: _Table | _Lines = (
                _Table(follower, by, sort, _TABLE_ROWS if limit is None else limit)
                if table
                else _Lines(follower, _TERMINAL_LINES if limit is None else limit)
            )
            try:
                _follow(follower, chosen_hops, depth, show, asked)
            finally:
                show.close()
            if follower.ended:
                _say_end(follower, show.hops)
    except KeyboardInterrupt:
        pass  # Ctrl-C ends following
    finally:
        follower.close()


@contextmanager
def _asked_to_end() -> Iterator[Callable[[], bool]]:
    """Whether there was a Ctrl-C: a second one raises KeyboardInterrupt.

    In the middle of a look the first one must not raise it: polars makes a TypeError of it.
    """
    asked: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if asked:
            signal.default_int_handler(number, frame)
        asked.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)


def _follow(
    follower: Follower,
    selection: Selection,
    depth: int | None,
    show: _Table | _Lines,
    asked_to_end: Callable[[], bool],
) -> None:
    waited = False
    while not follower.wait():
        if not waited:
            say(f"{follower.path} is still empty; waiting for the recording")
        waited = True
        if asked_to_end():
            return
        time.sleep(_PAUSE_SECONDS)
    levels = depth or (None if show.every_level or selection.op or selection.key else 1)
    while not follower.ended and not asked_to_end():
        hops = follower.look(kernels=show.with_kernels)
        chosen = selection.fitting(hops, follower.threads)
        if levels is not None:
            chosen &= (hops["depth"] < levels).to_numpy()
        show.add(hops, chosen)
        if not follower.more and not follower.ended and not asked_to_end():
            time.sleep(_PAUSE_SECONDS)


def _say_end(follower: Follower, hops: int) -> None:
    from tracer.report.text import count

    how = "ended without a stop" if follower.killed else "stopped"
    missed = ""
    if follower.missed:
        missed = f"; {count(follower.missed, 'chunk')} overwritten before tracer read them (--max-size)"
    print(
        f"tracer: the recording {how}; it has {count(hops, 'hop')}{missed}",
        file=sys.stderr,
    )


class _Lines:
    """One line per hop, in the order in which they ended."""

    every_level = False
    with_kernels = False

    def __init__(self, follower: Follower, limit: int) -> None:
        self.hops = 0
        self._follower, self._limit = follower, limit
        self._console, self._width = terminal()
        self._texts: dict[int, str] = {}

    def add(self, hops: pl.DataFrame, chosen: np.ndarray) -> None:
        import polars as pl

        from tracer.analysis.source_lines import SourceLines
        from tracer.report.live_line import live_line
        from tracer.report.text import count
        from tracer.report.tree import plain

        ended = ~hops["open"].to_numpy()
        self.hops += int(ended.sum())
        rows = hops.filter(pl.Series(chosen & ended)).sort("end_ns", maintain_order=True)
        if self._width and self._limit and (more := len(rows) - self._limit) > 0:
            print(f"({count(more, 'more line')}: --table counts them, a pipe receives all)")
            rows = rows.tail(self._limit)
        self._know(rows["inputs"].unique().drop_nulls().to_list())
        sources = SourceLines(self._follower.folder)
        lines = [
            live_line(row, self._texts, width=self._width, sources=sources)
            for row in rows.iter_rows(named=True)
        ]
        if self._console.is_terminal:
            for line in lines:
                print_line(self._console, line)
        elif lines:
            sys.stdout.write("".join(plain(line) + "\n" for line in lines))
            sys.stdout.flush()

    def _know(self, signatures: list[int]) -> None:
        from tracer.analysis.inputs_text import signature_texts

        new = [number for number in signatures if number not in self._texts]
        if new:
            self._texts |= signature_texts(self._follower.signatures_table(new), new)

    def close(self) -> None:
        """There is nothing left to print."""


class _Table:
    """A flat table: updated on a terminal, printed once at the end in a pipe."""

    every_level = True

    def __init__(self, follower: Follower, by: str, sort: str, limit: int) -> None:
        from tracer.analysis.flat import RunningFlat

        self.hops = 0
        self.with_kernels = by in ("hop", "kernel")
        self._follower, self._by, self._sort, self._limit = follower, by, sort, limit
        self._counts: RunningFlat = RunningFlat(by)
        self._console, width = terminal()
        self._stack = ExitStack()
        self._live: Live | None = None
        if width:
            from rich.live import Live

            self._live = self._stack.enter_context(
                Live(console=self._console, auto_refresh=False, transient=True)
            )

    def add(self, hops: pl.DataFrame, chosen: np.ndarray) -> None:
        self.hops += int((~hops["open"]).sum())
        if len(hops):
            self._counts.add(hops, chosen)
        if self._live:
            self._live.update(self._screen(), refresh=True)

    def close(self) -> None:
        from tracer.analysis.flat import ranked

        self._stack.close()
        from tracer.analysis.source_lines import SourceLines

        sources = SourceLines(self._follower.folder)
        table = ranked(self._counts.table(), self._sort)
        print_table(table, self._by, self._sort, self._limit, sources)

    def _screen(self) -> RenderableType:
        from rich.text import Text

        from tracer.analysis.flat import ranked
        from tracer.report.flat import flat_lines

        table = ranked(self._counts.table(), self._sort)
        room = max(self._console.height - 2, 1)
        limit = min(self._limit or room, room)
        from tracer.analysis.source_lines import SourceLines

        sources, width = SourceLines(self._follower.folder), self._console.width
        lines = flat_lines(table, self._by, sort=self._sort, limit=limit, width=width, sources=sources)
        return Text("\n").join(styled(line) for line in islice(lines, room))
