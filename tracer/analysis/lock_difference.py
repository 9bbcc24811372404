"""What a run did that its dispatch lock does not have, and the other way round."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from tracer.analysis.lock import Lock, Node, Section, chain_lines

_LOOKS_AT = 400  # lines of a chain that decide how similar two are
_AROUND = 2
_LONG = (
    3_000  # lines: from here on difflib looks for rare lines first, which aligns worse and takes seconds less
)


@dataclass(frozen=True)
class PathChange:
    """One chain that changed; None: the lock, or the run, does not have it."""

    locked: Node | None
    found: Node | None

    def lines(self) -> list[str]:
        """As a diff: `-` in the lock only, `+` in the run only, with two lines around."""
        one, other = (list(chain_lines(node)) if node else [] for node in (self.locked, self.found))
        if not one or not other:
            return [f"{'-' if one else '+'}{line}" for line in one or other]
        return list(_diff(one, other))


@dataclass(frozen=True)
class LineChange:
    """The chains of one Python line that changed. `only`: the lock or the run, if the other lacks the line."""

    heading: str
    lines: tuple[str, ...]
    only: str | None
    paths: tuple[PathChange, ...]


def compare_locks(locked: Lock, found: Lock) -> list[LineChange]:
    """Chains are equal if all their lines are, and the counts of the run lie within those of the lock."""
    changes = []
    for heading in dict.fromkeys([*found.sections, *locked.sections]):
        one, other = locked.sections.get(heading), found.sections.get(heading)
        paths = tuple(_paths(one, other))
        only = "run" if one is None else "lock" if other is None else None
        if paths or only:
            changes.append(LineChange(heading, other.lines if other else (), only, paths))
    return changes


def _paths(locked: Section | None, found: Section | None) -> Iterator[PathChange]:
    one, other = list(locked.chains) if locked else [], list(found.chains) if found else []
    for chain in list(other):
        same = next((known for known in one if _within(chain, known)), None)
        if same is not None:
            other.remove(chain)
            one.remove(same)
    for chain in list(other):  # of one op: the most similar one
        alternatives = [known for known in one if _op(known) == _op(chain)]
        if alternatives:
            nearest = alternatives[0]
            if len(alternatives) > 1:
                nearest = max(alternatives, key=lambda known: _similarity(known, chain))
            one.remove(nearest)
            other.remove(chain)
            yield PathChange(nearest, chain)
    yield from (PathChange(None, chain) for chain in other)
    yield from (PathChange(chain, None) for chain in one)


def _within(found: Node, locked: Node) -> bool:
    return (
        found.text == locked.text
        and locked.least <= found.least
        and found.most <= locked.most
        and len(found.below) == len(locked.below)
        and all(_within(a, b) for a, b in zip(found.below, locked.below, strict=True))
    )


def _diff(one: list[str], other: list[str]) -> Iterator[str]:
    matcher = SequenceMatcher(None, one, other, autojunk=max(len(one), len(other)) > _LONG)
    for number, group in enumerate(matcher.get_grouped_opcodes(_AROUND)):
        if number:
            yield " ..."
        for kind, begin, end, first, last in group:
            if kind == "equal":
                yield from (f" {line}" for line in one[begin:end])
                continue
            yield from (f"-{line}" for line in one[begin:end])
            yield from (f"+{line}" for line in other[first:last])


def _op(node: Node) -> str:
    return node.text.partition(" [")[0]


def _similarity(one: Node, other: Node) -> float:
    lines, others = (list(chain_lines(node))[:_LOOKS_AT] for node in (one, other))
    return SequenceMatcher(None, lines, others, autojunk=False).ratio()
