"""Settings, versions and machines of both sides, where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracer.trace import Trace

Sides = tuple[Sequence["Trace"], Sequence["Trace"]]
_FACTS = ("torch", "torch_cuda", "python", "cpu", "cores", "platform")


def facts_of(sides: Sides) -> dict[str, tuple[Any, Any]]:
    one, other = (_shared([trace.environment for trace in side]) for side in sides)
    return different(one, other, _FACTS)


def settings_of(sides: Sides) -> dict[str, tuple[Any, Any]]:
    """torch's settings at the end of each recording, and each variable of the environment on its own."""
    found = [[dict(trace.environment.get("settings") or {}) for trace in side] for side in sides]
    variables = [[settings.pop("variables", None) or {} for settings in side] for side in found]
    unset = dict.fromkeys([name for side in variables for of_run in side for name in of_run], "not set")
    one, other = (
        _shared([{**known, **unset, **own} if known else {} for known, own in zip(*side, strict=True)])
        for side in zip(found, variables, strict=True)
    )
    return different(one, other, tuple(dict.fromkeys([*one, *other])))


def _shared(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What all runs of a side have."""
    return {name: value for name, value in runs[0].items() if all(run.get(name) == value for run in runs)}


def different(
    before: dict[str, Any], after: dict[str, Any], names: Sequence[str]
) -> dict[str, tuple[Any, Any]]:
    """What both sides know, and know differently."""
    return {
        name: (before[name], after[name])
        for name in names
        if before.get(name) is not None and after.get(name) is not None and before[name] != after[name]
    }
