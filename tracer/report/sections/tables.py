"""The sections that are one table of hops: what each says is written down here, and nothing is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from tracer.analysis import surveys
from tracer.analysis.flat import flat_table, ranked
from tracer.report.page import Column, Page, paragraphs
from tracer.report.reading import Reading, Rows


@dataclass(frozen=True)
class Table:
    """`when`: what of the recording the open hops are about."""

    rows: Rows
    in_ops_ns: int
    when: str


@dataclass(frozen=True)
class TableSection:
    """A section (tracer.report.section) that is a table, and a paragraph before it.

    rows       the rows of a trace, most important first
    said       the paragraph; {when} in it is `the recording ended`, or of a dump `the trace was dumped`
    whole      whether the table counts the whole recording where others count the steady steps
    wanted     whether a trace has any rows
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Callable[[Reading], pl.DataFrame]
    said: str = ""
    whole: bool = True
    of: str = "id"
    """The column of hops that must have a value in some row"""
    level: int = 2

    def wanted(self, reading: Reading) -> bool:
        column = reading.trace.hops[self.of]
        return bool(column.any() if column.dtype == pl.Boolean else column.count())

    def data(self, reading: Reading) -> Table:
        dumped = reading.trace.certificate.get("dumped_ns") is not None
        when = "the trace was dumped" if dumped else "the recording ended"
        return Table(Rows.first(self.rows(reading), reading.most), reading.time_in_ops_ns, when)

    def markdown(self, data: Table, page: Page) -> str:
        if not data.rows.rows:
            return ""
        said = self.said.format(when=data.when)
        return paragraphs(
            said, page.all_steps() if self.whole else "", page.table(self.columns, data.rows, data.in_ops_ns)
        )


def _threads(reading: Reading) -> pl.DataFrame:
    names = reading.trace.threads.unique(["process", "thread"], keep="last")
    return surveys.per_thread(reading.hops).join(
        names, on=["process", "thread"], how="left", maintain_order="left"
    )


def _backward_nodes(reading: Reading) -> pl.DataFrame:
    return surveys.per_backward_node(reading.hops).with_columns(source=pl.coalesce("source", "called_from"))


def _flat(by: str, sort: str = "total") -> Callable[[Reading], pl.DataFrame]:
    """The rows of `tracer top --by ... --sort ...`."""
    return lambda reading: ranked(flat_table(reading.trace, by=by, phases=reading.phases), sort)


OPEN_HOPS = TableSection(
    "open_hops",
    "Open at the end",
    [
        ("process:", "process", "text"),
        ("thread:", "thread", "text"),
        ("op", "op", "nested"),
        ("key", "key", "code"),
        ("kernel", "kernel", "function"),
        ("line", "source", "line"),
        ("open for:", "open_ns", "time"),
    ],
    lambda reading: surveys.open_hops(reading.hops),
    "These hops had not finished when {when}: what each thread was running.",
    whole=False,
    of="open",
)
EXCEPTIONS = TableSection(
    "exceptions",
    "Exceptions",
    [
        ("raised in", "op", "code"),
        ("key", "key", "code"),
        ("kernel", "kernel", "function"),
        ("line", "source", "line"),
        ("left", "left", "code"),
        ("then", "caught_in", "caught"),
        ("times:", "count", "count"),
    ],
    lambda reading: surveys.exceptions(reading.hops),
    "Hops that raised an exception, the outermost op that it left, and where it was caught.",
    whole=False,
    of="raised",
)
OPS = TableSection(
    "ops",
    "Ops",
    [
        ("op", "op", "code"),
        ("calls:", "calls", "count"),
        ("hops:", "hops", "count"),
        ("total:", "total_ns", "time"),
        ("self:", "self_ns", "time"),
        ("self share:", "self_ns", "share"),
        ("median:", "median_ns", "time"),
        ("p95:", "p95_ns", "time"),
        ("longest:", "longest_ns", "time"),
    ],
    _flat("op", "self"),
    "Total, median, p95 and longest count op calls with everything that they called; an op that calls itself "
    "counts once. Self is the time of the op's own hops.",
)
KEYS = TableSection(
    "keys",
    "Dispatch keys",
    [
        ("key", "key", "code"),
        ("ops:", "ops", "count"),
        ("hops:", "hops", "count"),
        ("self:", "self_ns", "time"),
        ("self share:", "self_ns", "share"),
        ("median self:", "median_self_ns", "time"),
    ],
    lambda reading: surveys.per_key(reading.trace.hops),
)


_COUNTS: list[Column] = [("calls:", "calls", "count"), ("hops:", "hops", "count")]
_BY_PHASE: list[Column] = [
    ("total:", "total_ns", "time"),
    ("share:", "total_ns", "share"),
    ("forward:", "forward_ns", "time"),
    ("backward:", "backward_ns", "time"),
    ("optimizer:", "optimizer_ns", "time"),
    ("rest:", "rest_ns", "time"),
]
SOURCES = TableSection(
    "sources",
    "Source lines",
    [("line", "source", "line"), *_COUNTS, *_BY_PHASE],
    _flat("source"),
    """\
Op calls by the Python line that made them, and their time by the phases that Steps has. The total of a
line that calls a kernel written in Python has the time of that kernel's lines. A backward op
call counts at the forward line that made its autograd node. AccumulateGrad has no forward op, so it
counts at the line that called backward().""",
)
MODULES = TableSection(
    "modules",
    "Modules",
    [("module", "module", "module"), *_COUNTS, ("self:", "self_ns", "time"), *_BY_PHASE],
    _flat("module"),
    """\
Calls, hops and self are of the ops that the `nn.Module` made itself. Total has those of the modules
inside it too, and the phases that Steps has are its parts. A backward op call counts at the module of its
forward op call.""",
    of="module",
)
BACKWARD = TableSection(
    "backward",
    "Backward",
    [
        ("line", "source", "line"),
        ("forward op", "forward_op", "code"),
        ("node", "backward_node", "code"),
        ("what it calls", "ops", "codes"),
        ("op calls:", "calls", "count"),
        ("hops:", "hops", "count"),
        ("total:", "total_ns", "time"),
    ],
    _backward_nodes,
    """\
Outermost op calls of each autograd node, with the forward line and op that made the node.
AccumulateGrad has no forward op: its line is the one that called backward(), or none if that is
not known.""",
    of="backward_node",
)
THREADS = TableSection(
    "threads",
    "Threads",
    [
        ("process:", "process", "text"),
        ("thread:", "thread", "text"),
        ("name", "name", "text"),
        ("calls:", "calls", "count"),
        ("hops:", "hops", "count"),
        ("in ops:", "total_ns", "time"),
        ("first:", "first_ns", "time"),
        ("last:", "last_ns", "time"),
    ],
    _threads,
    "First and last are times since the recording began.",
    whole=False,
)
