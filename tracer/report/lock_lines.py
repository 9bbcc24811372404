"""What differs from a dispatch lock, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from tracer.analysis.lock_difference import LineChange, PathChange
from tracer.base.visible import visible

PATH_LINES = 24
"""Lines of a changed path that are shown"""
_MOST_PLACES = 4
_TITLES = {
    "run": "this line is not in the lock",
    "lock": "the run did not call this line, or called no op there",
    None: "other paths",
}


def change_lines(change: LineChange, most: int = PATH_LINES) -> Iterator[str]:
    """The Python line, where it is now, and the diff of each of its paths that changed."""
    yield visible(change.heading)
    places = ", ".join(change.lines[:_MOST_PLACES]) + ", ..." * (len(change.lines) > _MOST_PLACES)
    if places and change.lines != (change.heading,):
        yield visible(f"  at {places}")
    if change.was:
        yield visible(f"  was {change.was}")
    yield f"  {_TITLES[change.only]}:"
    for number, path in enumerate(change.paths):
        if number:
            yield ""
        yield from _path_lines(path, most)


def _path_lines(path: PathChange, most: int) -> Iterator[str]:
    lines = path.lines()
    yield from (visible(f"    {line}") for line in lines[:most])
    if len(lines) > most:
        yield f"    ... {len(lines) - most} more lines"
