"""Overrides that were enabled: which calls they computed, and which they handed over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import polars as pl

from tracer.analysis.source_lines import NO_LINE
from tracer.report.cells import code, prose, table
from tracer.report.page import Page, paragraphs
from tracer.report.reading import Reading
from tracer.report.text import count, duration

title = "Overrides"
level = 2

_SAID = """\
Kernel functions that replaced PyTorch's while they were enabled. Ran: calls that they computed;
handed over: calls that they left to PyTorch's kernel; hops: recorded hops of their kernel function,
of both kinds of calls."""


Lines = Mapping[tuple[str, str, str], Mapping[str, int]]
"""Override, operator and reason -> line -> calls"""
_MOST_LINES = 5


@dataclass(frozen=True)
class Overrides:
    """As the certificate has them; `lines` of calls that were left to stock, where the trace marks these."""

    overrides: list[dict[str, Any]]
    lines: Lines


def wanted(reading: Reading) -> bool:
    return reading.trace.certificate.get("overrides") is not None


def data(reading: Reading) -> Overrides:
    return Overrides(reading.trace.certificate["overrides"], left_to_stock(reading.trace.hops))


def left_to_stock(hops: pl.DataFrame) -> Lines:
    """The lines of calls that an override left to stock, those with most calls first."""
    left = hops.filter(pl.col("handed_over").is_not_null())
    names = pl.col("override", "op", "handed_over").cast(pl.String)
    line = pl.coalesce("called_from", "source").cast(pl.String).fill_null(NO_LINE)
    counted = left.group_by(names, line=line).len().sort("len", "line", descending=[True, False])
    found: dict[tuple[str, str, str], dict[str, int]] = {}
    for *of, at, calls in counted.iter_rows():
        found.setdefault((of[0], of[1], of[2]), {})[at] = calls
    return found


def markdown(data: Overrides, page: Page) -> str:
    return paragraphs(_SAID, table_of(data.overrides, data.lines, page))


def table_of(
    overrides: list[dict[str, Any]], lines: Lines = MappingProxyType({}), page: Page | None = None
) -> str:
    """A table of what was enabled, then a line for each reason why a call was not computed by it."""
    rows = [
        [
            code(one["name"]),
            prose(one["mode"]),
            code(f"{one['operator']} [{one['key']}]"),
            code(one["kernel"] or one["registered_at"] or ""),
            _when(one),
            f"{one['ran']:,}",
            f"{sum(one['handed_over'].values()):,}",
            f"{one['hops']:,}",
        ]
        for one in overrides
    ]
    titles = ["override", "mode", "operator", "kernel function", "on", "ran:", "handed over:", "hops:"]
    return "\n\n".join(filter(None, [table(titles, rows), "\n".join(_remarks(overrides, lines, page))]))


def _when(one: dict[str, Any]) -> str:
    start = "the beginning" if not one["from_ns"] else duration(one["from_ns"])
    end = "the end" if one["to_ns"] is None else duration(one["to_ns"])
    several = f" ({count(one['times'], 'time')})" if one["times"] > one["processes"] else ""
    return f"{start} to {end}{several}"


def _remarks(overrides: list[dict[str, Any]], lines: Lines, page: Page | None) -> Iterator[str]:
    for one in overrides:
        name = f"{code(one['name'])} for {code(one['operator'])}"
        for reason, calls in sorted(one["handed_over"].items(), key=lambda item: -item[1]):
            at = _at(lines.get((one["name"], one["operator"], reason), {}), page)
            yield f"- {name} handed {count(calls, 'call')} over to stock: {prose(reason)}{at}"
        if one["never_ran"]:
            yield f"- **{name} never ran**: {prose(one['never_ran'])}"


def _at(lines: Mapping[str, int], page: Page | None) -> str:
    """`, at train.py:7 (3 calls), train.py:9`"""
    if not lines or page is None:
        return ""
    shown = [
        page.line(None if line == NO_LINE else line) + (f" ({count(calls, 'call')})" if calls > 1 else "")
        for line, calls in list(lines.items())[:_MOST_LINES]
    ]
    more = f" and {count(len(lines) - len(shown), 'more line')}" if len(lines) > len(shown) else ""
    return f", at {', '.join(shown)}{more}"
