"""Which kinds of op calls of two traces are the same: file and line by their text, not by position."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from difflib import SequenceMatcher
from typing import Any

from tracer.analysis.difference.kinds import Key, Kind
from tracer.analysis.source_lines import NO_LINE

_LEAST_COMMON = 0.5  # of the lines of the smaller file: else it is another file
_LEAST_SIMILAR = 0.6  # of the text of two lines: else it is another line
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
    for similar in (_same_module, _similar_text):
        _pair(before, after, partners, similar)
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
        (
            (len(common) / min(len(before[one]), len(after[other])), one, other)
            for one in gone
            for other in come
            if (common := before[one] & after[other])
        ),
        reverse=True,
    )
    names: dict[str, str] = {}
    for score, one, other in scores:
        if score >= _LEAST_COMMON and other not in names and one not in names.values():
            names[other] = one
    return names


def _renamed(before: dict[Key, Kind], after: dict[Key, Kind]) -> dict[Key, Kind]:
    """`after` with the names of files that `before` has."""
    names = renamed_files(_by_file(before), _by_file(after))
    return {(names.get(file, file), *rest): kind for (file, *rest), kind in after.items()}  # type: ignore[misc]


def _by_file(side: Iterable[Key]) -> Files:
    files: defaultdict[str, set[Any]] = defaultdict(set)
    for file, text, *_ in side:  # a line counts once, however many op calls its backward has
        files[file].add(text)
    return files


def _pair(
    before: dict[Key, Kind],
    after: dict[Key, Kind],
    partners: dict[Key, Key],
    similar: Callable[[Kind, Kind], bool],
) -> None:
    """Adds the first similar kind of `after` that is left for each of `before` that is left."""
    taken = set(partners.values())
    left: dict[tuple[str, str, bool], list[Key]] = defaultdict(list)
    for key in after:
        if key not in taken:
            left[_without_text(key)].append(key)
    for key, kind in before.items():
        if key in partners:
            continue
        candidates = left[_without_text(key)]
        found = next((other for other in candidates if similar(kind, after[other])), None)
        if found is not None:
            candidates.remove(found)
            partners[key] = found


def _without_text(key: Key) -> tuple[str, str, bool]:
    file, _, op, backward = key
    return file, op, backward


def _same_module(one: Kind, other: Kind) -> bool:
    return bool(one.modules) and one.modules == other.modules


def _similar_text(one: Kind, other: Kind) -> bool:
    if NO_LINE in (one.line, other.line):
        return False
    if one.text.startswith(other.text) or other.text.startswith(one.text):
        return bool(one.text and other.text)
    return SequenceMatcher(None, one.text, other.text, autojunk=False).ratio() >= _LEAST_SIMILAR
