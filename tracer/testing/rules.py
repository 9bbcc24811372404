"""What a test may ask of its dispatch paths: the arguments of the marker and of the fixture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any


class RuleError(ValueError):
    """A rule that does not exist, or a value that it does not take."""


@dataclass(frozen=True)
class Rules:
    """Checked rules.

    no_sync       the host must not wait for the GPU
    max_launches  at most this many kernel launches
    must_run      patterns of operators; each must run
    never         patterns of operators that must not run
    snapshot      compare all paths with the test's snapshot
    """

    no_sync: bool = False
    max_launches: int | None = None
    must_run: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    snapshot: bool = False

    @property
    def empty(self) -> bool:
        return self == Rules()


def rules_of(given: Mapping[str, Any], before: Rules | None = None) -> Rules:
    """The rules by their names; those not given as in `before`. Raises RuleError."""
    names = [field.name for field in fields(Rules)]
    for name in given:
        if name not in names:
            near = get_close_matches(name, names, 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise RuleError(f"dispatch: unknown rule {name!r}; choose {', '.join(names)}{hint}")
    made = {**{name: getattr(before or Rules(), name) for name in names}, **given}
    for name in ("no_sync", "snapshot"):
        if not isinstance(made[name], bool):
            raise RuleError(f"dispatch: {name}={made[name]!r}: give True or False")
    most = made["max_launches"]
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 0):
        raise RuleError(f"dispatch: max_launches={most!r}: give a number from 0")
    for name in ("must_run", "never"):
        made[name] = _patterns(name, made[name])
    return Rules(**made)


def _patterns(name: str, given: object) -> tuple[str, ...]:
    patterns = [given] if isinstance(given, str) else given
    if not isinstance(patterns, Iterable):
        raise RuleError(f'dispatch: {name}={given!r}: give operators, e.g. ["aten::mm", "aten::*conv*"]')
    patterns = tuple(patterns)
    if not all(isinstance(pattern, str) and pattern for pattern in patterns):
        raise RuleError(f'dispatch: {name}={given!r}: give operators, e.g. ["aten::mm", "aten::*conv*"]')
    return patterns
