"""Whose time it was, moment by moment: that of the main thread, or of others while that one waits."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from tracer.analysis.host_nodes import HOP
from tracer.analysis.spans import OUTSIDE, Spans, spans
from tracer.analysis.trees import outermost_rows


@dataclass(frozen=True)
class Piece:
    """A time, in nanoseconds, and the node that had it, or OUTSIDE with the outermost nodes around it.

    `other_thread`: the node is of another thread than the one that runs the program.
    """

    start: int
    end: int
    owner: int
    other_thread: bool = False
    before: int = OUTSIDE
    after: int = OUTSIDE


@dataclass(frozen=True)
class Timeline:
    """Pieces without holes; nodes are places in the table that was given.

    order       all nodes, those around others first
    parents     for each node the one around it, or OUTSIDE
    counted     the nodes whose time is in the pieces
    previous    for each counted outermost node the outermost one before it
    """

    pieces: list[Piece]
    order: list[int]
    parents: list[int]
    counted: list[int]
    previous: dict[int, int] = field(default_factory=dict)

    def before(self, place: int, fits: list[bool]) -> bool:
        """Whether the outermost node before this one fits."""
        found = self.previous.get(place, OUTSIDE)
        return found >= 0 and fits[found]


def timeline(nodes: pl.DataFrame, begin: int, end: int) -> Timeline:
    """Of host_nodes, between two moments.

    At each moment it is the innermost node of the main thread. Where that is in none, as it waits for the
    threads of autograd, it is that of another thread: the one with the most time in ops first.
    """
    parents, order = [OUTSIDE] * len(nodes), []
    free, busy, counted = [(begin, end)], [], []
    indexed = nodes.with_row_index("place")
    for number, thread in enumerate(_threads(nodes)):
        mine = indexed.filter(pl.col("thread") == thread)
        places = mine["place"].to_list()
        found = spans(mine["start_ns"].to_list(), mine["end_ns"].to_list(), begin, end)
        for local, parent in enumerate(found.parents):
            parents[places[local]] = places[parent] if parent >= 0 else OUTSIDE
        by_start = sorted(
            range(len(places)), key=lambda local: (mine["start_ns"][local], -mine["end_ns"][local])
        )
        order += [places[local] for local in by_start]
        taken = _taken(found, places, free, other_thread=number > 0)
        busy += taken
        owners = {piece.owner for piece in taken}
        counted += [place for place in places if number == 0 or place in owners or parents[place] in owners]
        free = _left(free, taken)
    busy.sort(key=lambda piece: piece.start)
    return _with_gaps(busy, parents, order, counted, begin, end)


def _threads(nodes: pl.DataFrame) -> list[int]:
    """The main thread first: most time in ops outside the backward pass; then most time in ops."""
    length = pl.col("end_ns") - pl.col("start_ns")
    outermost = pl.col("outermost")
    forward = outermost & ~pl.col("backward").fill_null(False)
    ranked = (
        nodes.group_by("thread")
        .agg(
            forward=length.filter(forward).sum(),
            all=length.filter(outermost).sum(),
            hops=(pl.col("node") == HOP).sum(),
        )
        .sort("forward", "all", "hops", "thread", descending=[True, True, True, False])
    )
    threads = ranked["thread"].to_list()
    others = ranked.filter(pl.col("thread") != threads[0]).sort("all", descending=True) if threads else ranked
    return [*threads[:1], *others["thread"].to_list()]


def _taken(
    found: Spans, places: list[int], free: list[tuple[int, int]], *, other_thread: bool
) -> list[Piece]:
    """The pieces of a thread that lie in time that is free."""
    pieces, number = [], 0
    for start, end, owner in zip(found.starts, found.ends, found.owners, strict=True):
        if owner < 0:
            continue
        while number < len(free) and free[number][1] <= start:
            number += 1
        at = number
        while at < len(free) and free[at][0] < end:
            first, last = max(start, free[at][0]), min(end, free[at][1])
            pieces.append(Piece(first, last, places[owner], other_thread))
            at += 1
    return pieces


def _left(free: list[tuple[int, int]], taken: list[Piece]) -> list[tuple[int, int]]:
    left, number = [], 0
    for begin, end in free:
        now = begin
        while number < len(taken) and taken[number].start < end:
            if taken[number].start > now:
                left.append((now, taken[number].start))
            now = taken[number].end
            number += 1
        if now < end:
            left.append((now, end))
    return left


def _with_gaps(
    busy: list[Piece], parents: list[int], order: list[int], counted: list[int], begin: int, end: int
) -> Timeline:
    pieces, now, before = [], begin, OUTSIDE
    previous: dict[int, int] = {}
    roots = outermost_rows(np.array(parents, np.int64)).tolist()
    for piece in busy:
        root = roots[piece.owner]
        if piece.start > now:
            pieces.append(Piece(now, piece.start, OUTSIDE, before=before, after=root))
        if root != before:
            previous.setdefault(root, before)
        pieces.append(piece)
        now, before = piece.end, root
    if now < end:
        pieces.append(Piece(now, end, OUTSIDE, before=before))
    return Timeline(pieces, order, parents, counted, previous)
