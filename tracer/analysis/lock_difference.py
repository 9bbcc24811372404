"""What a run did that its dispatch lock does not have, and the other way round."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from tracer.analysis.chain import Chain, diff, similarity, within
from tracer.analysis.lock import Lock, Section

_LOOKS_AT = 400  # lines of a chain that decide how similar two are
_SAME_LINE = 0.6  # similarity of two texts of a line, before and after it was edited


@dataclass(frozen=True)
class PathChange:
    """One chain that changed; None: the lock, or the run, does not have it."""

    locked: Chain | None
    found: Chain | None

    def lines(self) -> list[str]:
        """As a diff: `-` in the lock only, `+` in the run only, with two lines around."""
        if self.locked and self.found:
            return list(diff(self.locked, self.found))
        return [f"{'-' if self.locked else '+'}{link.line}" for link in self.locked or self.found or ()]


@dataclass(frozen=True)
class LineChange:
    """The chains of one Python line that changed. `only`: lock or run, if the other lacks the line."""

    heading: str
    lines: tuple[str, ...]
    only: str | None
    paths: tuple[PathChange, ...]
    was: str = ""
    """The heading in the lock, if the text of the line was edited"""


def compare_locks(locked: Lock, found: Lock) -> list[LineChange]:
    """Chains are equal if all their lines are, and the counts of the run lie within those of the lock.

    A line whose text was edited is the same line if the texts are similar; that alone is no change.
    """
    was = _edited(
        [heading for heading in locked.sections if heading not in found.sections],
        [heading for heading in found.sections if heading not in locked.sections],
    )
    changes = []
    for heading in dict.fromkeys([*found.sections, *locked.sections]):
        if heading in was.values() and heading not in found.sections:
            continue
        one = locked.sections.get(was.get(heading, heading))
        other = found.sections.get(heading)
        paths = tuple(_paths(one, other))
        only = "run" if one is None else "lock" if other is None else None
        if paths or only:
            lines = other.lines if other else ()
            changes.append(LineChange(heading, lines, only, paths, was.get(heading, "")))
    return changes


def _edited(gone: list[str], new: list[str]) -> dict[str, str]:
    """new heading -> the one in the lock: of one file and autograd node, the most similar texts first."""
    pairs = [
        (SequenceMatcher(None, texts[0], texts[1]).ratio(), one, other)
        for one in gone
        for other in new
        if (parts := (one.partition(": "), other.partition(": ")))[0][0] == parts[1][0]
        and all(texts := (parts[0][2], parts[1][2]))
    ]
    found: dict[str, str] = {}
    for similar, one, other in sorted(pairs, key=lambda pair: -pair[0]):
        if similar >= _SAME_LINE and other not in found and one not in found.values():
            found[other] = one
    return found


def _paths(locked: Section | None, found: Section | None) -> Iterator[PathChange]:
    one, other = list(locked.chains) if locked else [], list(found.chains) if found else []
    for chain in list(other):
        same = next((known for known in one if within(chain, known)), None)
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


def _op(chain: Chain) -> str:
    return chain[0].op


def _similarity(one: Chain, other: Chain) -> float:
    return similarity(one[:_LOOKS_AT], other[:_LOOKS_AT])
