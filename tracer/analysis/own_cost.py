"""What recording a hop cost the program, as its process measured it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FEWEST = 30
"""Timed events of a kind; of fewer the mean says little."""


@dataclass(frozen=True)
class HopCost:
    """Mean nanoseconds that one hop costs: within its recorded time, and around it."""

    inside_ns: float
    around_ns: float

    @property
    def ns(self) -> float:
        return self.inside_ns + self.around_ns


@dataclass(frozen=True)
class OwnCost:
    """Of outermost hops, which also look for the Python line, and of those inside other hops.

    `timed`: how many events the process timed in the program; 0: the costs are those of a loop, which are
    lower bounds. `boxed`: the loop called ops as `--values scalars` does.
    """

    outermost: HopCost
    inner: HopCost
    timed: int
    boxed: bool = False


def own_cost(certificate: Mapping[str, Any], process: int) -> OwnCost | None:
    """None if the process was not stopped in order, or recorded with a tracer that did not measure.

    About one event of 64 is timed where it happens, in the caches that the program leaves, but not what the
    wrapper does around it. A loop, after the recording, is timed as a whole and by the same events. So:

        cost = whole loop * events in the program / events in the loop
    """
    stated = (certificate.get("own_cost") or {}).get(process) or {}
    program, loop = stated.get("program") or {}, stated.get("loop") or {}
    found = {kind: _of_kind(program, loop.get(kind) or {}, kind) for kind in ("outermost", "inner")}
    outermost, inner = found["outermost"], found["inner"]
    if outermost is None or inner is None or not (_is_known(outermost) and _is_known(inner)):
        return None
    timed = sum(_events(program, kind) for kind in ("outermost", "inner", "exit"))
    return OwnCost(outermost, inner, timed if timed >= FEWEST else 0, stated.get("boxed") is True)


def _is_known(cost: HopCost) -> bool:
    """No hop costs a second, nor is what a damaged trace says a number."""
    return all(0 <= ns < 1e9 for ns in (cost.inside_ns, cost.around_ns))


def _of_kind(program: Mapping[str, Any], loop: Mapping[str, Any], kind: str) -> HopCost | None:
    whole = loop.get("ns")
    if not whole or not _event_ns(loop, kind):
        return None
    known = min(_events(program, kind), _events(program, "exit")) >= FEWEST
    timed = program if known else loop
    factor = _event_ns(timed, kind) / _event_ns(loop, kind)
    inside = _part(timed, kind, "after_ns") + _part(timed, "exit", "before_ns")
    inside = min(inside, whole * factor)
    return HopCost(inside, whole * factor - inside)


def _event_ns(timed: Mapping[str, Any], kind: str) -> float:
    return sum(_part(timed, one, name) for one in (kind, "exit") for name in ("before_ns", "after_ns"))


def _part(timed: Mapping[str, Any], kind: str, name: str) -> float:
    return float((timed.get(kind) or {}).get(name) or 0.0)


def _events(timed: Mapping[str, Any], kind: str) -> int:
    return int((timed.get(kind) or {}).get("events") or 0)
