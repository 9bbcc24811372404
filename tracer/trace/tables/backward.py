"""Backward hops: the autograd node that each ran in, and the forward hop that made the node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.arrays import Codes, climb, concatenate, lookup, low, take
from tracer.trace.bytes.events import EventBlock
from tracer.trace.bytes.threads import Span

_LARGEST_ORDER = 16
"""Backwards of backwards that are followed to the first forward line."""


@dataclass
class Nodes:
    """Autograd nodes that threads began to evaluate."""

    name: list[Codes] = field(default_factory=list)
    process: list[NDArray[np.int64]] = field(default_factory=list)
    maker: list[NDArray[np.int64]] = field(default_factory=list)
    sequence: list[NDArray[np.int64]] = field(default_factory=list)
    ticks: list[NDArray[np.int64]] = field(default_factory=list)
    count: int = 0


def node_rows(
    block: EventBlock, span: Span, events: NDArray[np.int64], names: Mapping[int, int], nodes: Nodes
) -> Codes:
    """The row in `nodes` of the node that each event names (-1: none); adds them."""
    second = block.second[span.others][events]
    name_id = low(second)
    nodes.name.append(lookup(names, name_id))
    nodes.process.append(np.full(len(events), span.process, np.int64))
    nodes.maker.append((second >> np.uint64(32)).astype(np.int64))
    nodes.sequence.append(block.first[span.others][events].astype(np.int64))
    nodes.ticks.append(block.other_ticks[span.others][events])
    rows = np.where(name_id != 0, np.arange(len(events)) + nodes.count, -1).astype(np.int32)
    nodes.count += len(events)
    return rows


def forward_hops(
    nodes: Nodes, spans: list[Span], offsets: NDArray[np.int64], columns: dict[str, np.ndarray]
) -> NDArray[np.int64]:
    """For each node the hop that made it, the innermost one; -1: none that was recorded.

    A thread numbers the nodes that it makes. `sequence` of a hop is the number that came next when it
    was entered, and it made `made` nodes:

        aten::linear  sequence 7, made 1: node 7
          aten::addmm   sequence 7, made 1: node 7, this is the innermost
        aten::mm      sequence 8, made 0: it needed no gradient
                      node 8 was made between hops
        aten::sin     sequence 9, made 1: node 9
    """
    forward = np.full(nodes.count, -1, np.int64)
    process = concatenate(nodes.process, np.int64)
    maker = concatenate(nodes.maker, np.int64)
    number = concatenate(nodes.sequence, np.int64)
    ticks = concatenate(nodes.ticks, np.int64)
    first, parent = columns["sequence"], columns["parent"]
    end = first + columns["made"]
    groups: dict[tuple[int, int], list[np.ndarray]] = {}
    for span, offset in zip(spans, offsets.tolist(), strict=True):
        size = span.enters.stop - span.enters.start
        makers = np.flatnonzero(columns["made"][offset : offset + size]) + offset
        groups.setdefault((span.process, span.torch_thread), []).append(makers)
    for (of_process, torch_thread), parts in groups.items():
        wanted = np.flatnonzero((process == of_process) & (maker == torch_thread))
        wanted = wanted[number[wanted] != fmt.ACCUMULATE_GRAD]
        hops = np.concatenate(parts)
        if not len(wanted) or not len(hops):
            continue
        hops = hops[
            np.argsort(first[hops], kind="stable")
        ]  # of those with the same number the innermost is last
        found = take(hops, np.searchsorted(first[hops], number[wanted], "right") - 1)
        found = climb(parent, found, lambda at, of=number[wanted]: end[at] <= of)  # type: ignore[misc]
        began = columns["start"][np.maximum(found, 0)] <= ticks[wanted]
        forward[wanted] = np.where(began, found, -1)
    return forward


def forward_sources(called_from: Codes, forward: NDArray[np.int64]) -> Codes:
    """The line of the forward hop, of a hop of a backward of a backward too."""
    source = called_from
    linked = np.flatnonzero(forward >= 0)
    if len(linked):
        source = called_from.copy()
    for _ in range(_LARGEST_ORDER):
        source[linked] = source[forward[linked]]
        # Only what hangs on a hop that is linked itself changes again.
        linked = linked[forward[forward[linked]] >= 0]
        if not len(linked):
            break
    return source


def take_modules_of_forward(module: Codes, forward: NDArray[np.int64]) -> None:
    """Gives hops of a backward pass that run in no module the one of their forward hop."""
    without = np.flatnonzero((module < 0) & (forward >= 0))
    for _ in range(_LARGEST_ORDER):
        module[without] = module[forward[without]]
        # What hangs on a hop that has just got one changes again.
        without = without[(module[without] < 0) & (forward[forward[without]] >= 0)]
        if not len(without):
            break
