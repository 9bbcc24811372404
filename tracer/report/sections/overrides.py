"""Overrides that were enabled: which calls they computed, and which they handed over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class Overrides:
    """As the certificate has them."""

    overrides: list[dict[str, Any]]


def wanted(reading: Reading) -> bool:
    return reading.trace.certificate.get("overrides") is not None


def data(reading: Reading) -> Overrides:
    return Overrides(reading.trace.certificate["overrides"])


def markdown(data: Overrides, page: Page) -> str:
    return paragraphs(_SAID, table_of(data.overrides))


def table_of(overrides: list[dict[str, Any]]) -> str:
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
    return "\n\n".join(filter(None, [table(titles, rows), "\n".join(_remarks(overrides))]))


def _when(one: dict[str, Any]) -> str:
    start = "the beginning" if not one["from_ns"] else duration(one["from_ns"])
    end = "the end" if one["to_ns"] is None else duration(one["to_ns"])
    several = f" ({count(one['times'], 'time')})" if one["times"] > one["processes"] else ""
    return f"{start} to {end}{several}"


def _remarks(overrides: list[dict[str, Any]]) -> Iterator[str]:
    for one in overrides:
        name = f"{code(one['name'])} for {code(one['operator'])}"
        for reason, calls in sorted(one["handed_over"].items(), key=lambda item: -item[1]):
            yield f"- {name} handed {count(calls, 'call')} over to stock: {prose(reason)}"
        if one["never_ran"]:
            yield f"- **{name} never ran**: {prose(one['never_ran'])}"
