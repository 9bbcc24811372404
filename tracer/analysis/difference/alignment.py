"""Which kinds of op calls of two traces are the same: file and line by their text, not by position."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tracer.analysis.difference.kinds import Key, Kind
from tracer.analysis.likeness import EDITED, Likeness
from tracer.analysis.source_lines import NO_LINE

_LEAST_COMMON = 0.5  # of the lines of the smaller file: else it is another file
_COMMON = 50  # files that have a line: more, and it tells no file from another
Pair = tuple[Kind | None, Kind | None]
Files = Mapping[str, set[Any]]
"""What each file has, e.g. the texts of lines"""


def aligned(before: dict[Key, Kind], after: dict[Key, Kind]) -> list[Pair]:
    """Pairs in the order of `before`, then the kinds that only `after` has.

    Kinds are the same if file, text of the line, op and direction are. A file that was renamed or copied
    is found by what it has in common. Of the kinds left, those in the same file of the same op and
    direction are paired if they ran in the same nn.Module, or if the texts of their lines are similar.
    """
    after = _renamed(before, after)
    partners = {key: key for key in before if key in after}
    _pair_modules(before, after, partners)
    _pair_texts(before, after, partners)
    pairs: list[Pair] = [
        (kind, after[partners[key]] if key in partners else None) for key, kind in before.items()
    ]
    taken = set(partners.values())
    return pairs + [(None, kind) for key, kind in after.items() if key not in taken]


def renamed_files(before: Files, after: Files) -> dict[str, str]:
    """File of `after` -> the file of `before` that it is under another name: they have most in common."""
    gone, come = (
        [file for file in one if file not in other] for one, other in ((before, after), (after, before))
    )
    scores = sorted(
        ((_score(before[one], after[other]), one, other) for one, other in _alike(before, after, gone, come)),
        reverse=True,
    )
    names: dict[str, str] = {}
    taken: set[str] = set()
    for score, one, other in scores:
        if score >= _LEAST_COMMON and other not in names and one not in taken:
            names[other] = one
            taken.add(one)
    return names


def _alike(before: Files, after: Files, gone: list[str], come: list[str]) -> Iterator[tuple[str, str]]:
    """Pairs of files that have a line in common which few others have."""
    having: defaultdict[Any, list[str]] = defaultdict(list)
    for file in gone:
        for line in before[file]:
            having[line].append(file)
    for other in come:
        found = [files for line in after[other] if len(files := having.get(line, [])) <= _COMMON]
        yield from ((one, other) for one in dict.fromkeys(file for files in found for file in files))


def _score(before: set[Any], after: set[Any]) -> float:
    return len(before & after) / min(len(before), len(after))


def _renamed(before: dict[Key, Kind], after: dict[Key, Kind]) -> dict[Key, Kind]:
    """`after` with the names of files that `before` has."""
    names = renamed_files(_by_file(before), _by_file(after))
    return {(names.get(file, file), *rest): kind for (file, *rest), kind in after.items()}  # type: ignore[misc]


def _by_file(side: Iterable[Key]) -> Files:
    files: defaultdict[str, set[Any]] = defaultdict(set)
    for file, text, *_ in side:  # a line counts once, however many op calls its backward has
        files[file].add(text)
    return files


def _left(kinds: dict[Key, Kind], taken: Iterable[Key]) -> Iterator[tuple[Key, Kind]]:
    known = set(taken)
    return ((key, kind) for key, kind in kinds.items() if key not in known)


def _pair_modules(before: dict[Key, Kind], after: dict[Key, Kind], partners: dict[Key, Key]) -> None:
    """Adds for each kind of `before` that is left the first one of `after` that ran in the same modules."""
    waiting: defaultdict[tuple[Any, ...], deque[Key]] = defaultdict(deque)
    for key, kind in _left(after, partners.values()):
        waiting[_without_text(key), kind.modules].append(key)
    for key, kind in [*_left(before, partners)]:
        if kind.modules and (others := waiting.get((_without_text(key), kind.modules))):
            partners[key] = others.popleft()


def _pair_texts(before: dict[Key, Kind], after: dict[Key, Kind], partners: dict[Key, Key]) -> None:
    """Adds for each kind of `before` that is left the first one of `after` whose line is similar."""
    likeness = Likeness()
    waiting: defaultdict[tuple[str, str, bool], dict[Key, Kind]] = defaultdict(dict)
    for key, kind in _left(after, partners.values()):
        waiting[_without_text(key)][key] = kind
    for key, kind in [*_left(before, partners)]:
        if likeness.spent:
            break
        others = waiting[_without_text(key)]
        found = next((other for other in others if _similar(likeness, kind, others[other])), None)
        if found is not None:
            del others[found]
            partners[key] = found


def _without_text(key: Key) -> tuple[str, str, bool]:
    file, _, op, backward = key
    return file, op, backward


def _similar(likeness: Likeness, one: Kind, other: Kind) -> bool:
    if NO_LINE in (one.line, other.line):
        return False
    if one.text[:1] == other.text[:1] and (
        one.text.startswith(other.text) or other.text.startswith(one.text)
    ):
        return bool(one.text and other.text)
    return likeness.of(one.text, other.text) >= EDITED
