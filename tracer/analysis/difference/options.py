"""What two recordings were told to record, where that differs: it looks like a change of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracer.trace import Trace

_NOT_COMPARED = frozenset({"override", "then_stop", "max_dumps"})
"""The chains show overrides; --then-stop matters only with --max-size, and dumps are other files"""


def options(before: Trace, after: Trace) -> list[str]:
    """`recorded with --ops: all before, aten::*mm* after`, one sentence for each option."""
    sides = [trace.environment.get("options") or {} for trace in (before, after)]
    return [
        f"recorded with another --{name.replace('_', '-')}: {_words(sides[0][name])} before, "
        f"{_words(sides[1][name])} after"
        for name in sides[0]
        if name in sides[1] and name not in _NOT_COMPARED and sides[0][name] != sides[1][name]
    ]


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return ", ".join("" if part is None else str(part) for part in value) or "all"
    return "none" if value in (None, 0, "") else str(value)
