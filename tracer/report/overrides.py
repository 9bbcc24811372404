"""The section of a report on overrides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracer.report.cells import code, prose, table
from tracer.report.text import count, duration


def overrides_section(overrides: list[dict[str, Any]]) -> str:
    """A table of what was on, then a line for each reason why a call was not computed by it."""
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
