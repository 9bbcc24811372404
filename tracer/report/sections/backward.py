"""Op calls of each autograd node."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracer.analysis import surveys
from tracer.report.page import Column, Page, paragraphs
from tracer.report.reading import Reading, Rows

title = "Backward"
level = 2

_SAID = """\
Outermost op calls of each autograd node, with the forward line and op that made the node.
AccumulateGrad has no forward op: its line is the one that called backward(), or none if that is
not known."""
_COLUMNS: list[Column] = [
    ("line", "source", "line"),
    ("forward op", "forward_op", "code"),
    ("node", "backward_node", "code"),
    ("what it calls", "ops", "codes"),
    ("op calls:", "calls", "count"),
    ("hops:", "hops", "count"),
    ("total:", "total_ns", "time"),
]


@dataclass(frozen=True)
class Backward:
    nodes: Rows
    in_ops_ns: int


def wanted(reading: Reading) -> bool:
    return reading.trace.hops["backward_node"].count() > 0


def data(reading: Reading) -> Backward:
    nodes = surveys.per_backward_node(reading.hops).with_columns(source=pl.coalesce("source", "called_from"))
    return Backward(Rows.first(nodes, reading.most), reading.time_in_ops_ns)


def markdown(data: Backward, page: Page) -> str:
    if not data.nodes.rows:
        return ""
    return paragraphs(_SAID, page.all_steps(), page.table(_COLUMNS, data.nodes, data.in_ops_ns))
