"""Time by nn.Module."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis import surveys
from tracer.report.page import Column, Page, paragraphs
from tracer.report.reading import Reading, Rows

title = "Modules"
level = 2

_SAID = """\
Outermost op calls by the `nn.Module` that made them, without those of the modules inside it. A
backward op call counts at the module of its forward op call."""
_COLUMNS: list[Column] = [
    ("module", "module", "module"),
    ("calls:", "calls", "count"),
    ("hops:", "hops", "count"),
    ("forward:", "total_ns", "time"),
    ("backward calls:", "backward_calls", "count"),
    ("backward hops:", "backward_hops", "count"),
    ("backward:", "backward_ns", "time"),
    ("share:", "both_ns", "share"),
]


@dataclass(frozen=True)
class Modules:
    modules: Rows
    in_ops_ns: int


def wanted(reading: Reading) -> bool:
    return reading.trace.hops["module"].count() > 0


def data(reading: Reading) -> Modules:
    return Modules(Rows.first(surveys.per_module(reading.hops), reading.most), reading.time_in_ops_ns)


def markdown(data: Modules, page: Page) -> str:
    if not data.modules.rows:
        return ""
    return paragraphs(_SAID, page.all_steps(), page.table(_COLUMNS, data.modules, data.in_ops_ns))
