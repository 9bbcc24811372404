"""What recordings were told to record, where that differs: it looks like a change of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracer.trace import Trace

_NOT_COMPARED = frozenset({"override", "then_stop", "max_dumps"})
"""The chains show overrides; --then-stop matters only with --max-size, and dumps are other files"""


def options(before: Trace, after: Trace) -> list[str]:
    """`recorded with another --ops: all before, aten::*mm* after`, one sentence for each option."""
    return [
        f"recorded with another --{name.replace('_', '-')}: {_words(one)} before, {_words(other)} after"
        for name, one, other in _differing(before, after)
    ]


def options_within(sides: Sequence[Sequence[Trace]]) -> list[str]:
    """The same of runs of one side, which should have no such difference."""
    return [
        f"{side[0].path} and {trace.path} are of one side and were recorded with another "
        f"--{name.replace('_', '-')}; record them with the same options"
        for side in sides
        for trace in side[1:]
        for name, _, _ in _differing(side[0], trace)
    ]


def _differing(before: Trace, after: Trace) -> list[tuple[str, Any, Any]]:
    one, other = (trace.environment.get("options") or {} for trace in (before, after))
    return [
        (name, one[name], other[name])
        for name in one
        if name in other and name not in _NOT_COMPARED and one[name] != other[name]
    ]


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return ", ".join("" if part is None else str(part) for part in value) or "all"
    return "none" if value in (None, 0, "") else str(value)
