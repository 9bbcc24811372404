"""What a run did that its dispatch lock does not have, and the other way round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tracer.analysis.chain import Chain, diff, shape, similarity, within
from tracer.analysis.likeness import EDITED, Likeness
from tracer.analysis.lock import Lock, Section

_LOOKS_AT = 400  # lines of a chain that decide how similar two are
_A_LINE = 200  # what one of them takes, in pairs of characters; sixteen pairs of lines take 1


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
    likeness = Likeness()
    was = _edited(
        [heading for heading in locked.sections if heading not in found.sections],
        [heading for heading in found.sections if heading not in locked.sections],
        likeness,
    )
    edited = set(was.values())
    changes = []
    for heading in dict.fromkeys([*found.sections, *locked.sections]):
        if heading in edited and heading not in found.sections:
            continue
        one = locked.sections.get(was.get(heading, heading))
        other = found.sections.get(heading)
        paths = tuple(_paths(one, other, likeness))
        only = "run" if one is None else "lock" if other is None else None
        if paths or only:
            lines = other.lines if other else ()
            changes.append(LineChange(heading, lines, only, paths, was.get(heading, "")))
    return changes


def _edited(gone: list[str], new: list[str], likeness: Likeness) -> dict[str, str]:
    """new heading -> the one in the lock: of one file and autograd node, the most similar texts first."""
    places: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for one in gone:
        place, _, text = one.partition(": ")
        places[place].append((text, one))
    pairs = [
        (similar, one, other)
        for other, (place, _, others) in ((heading, heading.partition(": ")) for heading in new)
        for text, one in (places.get(place, ()) if not likeness.spent else ())
        if text and others and (similar := likeness.of(text, others)) >= EDITED
    ]
    found: dict[str, str] = {}
    taken: set[str] = set()
    for _, one, other in sorted(pairs, key=lambda pair: -pair[0]):
        if other not in found and one not in taken:
            found[other] = one
            taken.add(one)
    return found


def _paths(locked: Section | None, found: Section | None, likeness: Likeness) -> Iterator[PathChange]:
    known = dict(enumerate(locked.chains)) if locked else {}
    shapes, ops = defaultdict[object, list[int]](list), defaultdict[str, list[int]](list)
    for place, chain in known.items():
        shapes[shape(chain)].append(place)
    new = []
    for chain in found.chains if found else ():
        places = shapes[shape(chain)]
        same = next((place for place in places if within(chain, known[place])), None)
        if same is None:
            new.append(chain)
        else:
            places.remove(same)
            del known[same]
    for place, chain in known.items():
        ops[_op(chain)].append(place)
    left = []
    for chain in new:  # of one op: the most similar one
        alternatives = ops[_op(chain)]
        if not alternatives:
            left.append(chain)
            continue
        nearest = _nearest(chain, known, alternatives, likeness) if len(alternatives) > 1 else 0
        yield PathChange(known.pop(alternatives.pop(nearest)), chain)
    yield from (PathChange(None, chain) for chain in left)
    yield from (PathChange(chain, None) for chain in known.values())


def _nearest(chain: Chain, known: dict[int, Chain], places: list[int], likeness: Likeness) -> int:
    """Which of `places` has the most similar one; the first of them if there is no work left to tell."""
    best, most = 0, -1.0
    for at, place in enumerate(places):
        one, other = known[place][:_LOOKS_AT], chain[:_LOOKS_AT]
        if not likeness.may(len(one) * (_A_LINE + len(other) // 16)):
            break
        if (now := similarity(one, other)) > most:
            best, most = at, now
    return best


def _op(chain: Chain) -> str:
    return chain[0].op
