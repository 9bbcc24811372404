"""Which of several files of one name is read: a recording, a dump of it, or an older dump."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tracer.base.paths import dump_number, is_dump, recording_name
from tracer.trace.bytes.start import Start

_NOISE_NS = 1_000_000_000
_UNLIKE = 2
"""Ranks of a newer job may have begun this many times as far apart as those of an older one, and 1 s more"""


@dataclass(frozen=True)
class Recording:
    """The files of one recording: the first one that can be read is used.

    `mixed` has the files with the same name that are of another recording, and why each is not used.
    """

    paths: tuple[str, ...]
    mixed: tuple[tuple[str, str], ...] = ()

    def left_out(self, used: str) -> tuple[int, int]:
        """How many dumps are left out, as their recording is used, or as a later one is."""
        dumps = sum(is_dump(path) for path in self.paths[self.paths.index(used) + 1 :])
        return (0, dumps) if is_dump(used) else (dumps, 0)


def recordings(paths: Iterable[str], start_of: Callable[[str], Start | None]) -> list[Recording]:
    """The recordings in these files, by path. RUN.trace and RUN.dumpNNNN.trace have one name, RUN.

    Files of one name may be of several recordings. Then the one is used that fits the other names in the
    folder. A file without a `Start` cannot be read, or only its reader knows why: it counts as of the
    recording that is used.
    """
    folders: dict[str, dict[str, list[str]]] = {}
    for path in sorted(set(paths)):
        names = folders.setdefault(posixpath.dirname(path), {})
        names.setdefault(recording_name(path), []).append(path)
    found = [one for names in folders.values() for one in _of_folder(names, start_of)]
    return sorted(found, key=lambda one: one.paths[0])


def _of_folder(
    names: Mapping[str, list[str]], start_of: Callable[[str], Start | None]
) -> Iterable[Recording]:
    starts = {path: start_of(path) for own in names.values() if len(own) > 1 for path in own}
    several = {name for name, own in names.items() if len({starts.get(path) for path in own} - {None}) > 1}
    if several:
        starts |= {own[0]: start_of(own[0]) for own in names.values() if len(own) == 1}
    center = _center([[starts.get(path) for path in own] for own in names.values()]) if several else None
    for name, own in names.items():
        traces = [path for path in own if not is_dump(path)]
        files = [*traces[:1], *sorted(filter(is_dump, own), key=dump_number, reverse=True)]
        yield _recording(files, starts, center if name in several else None)
        for path in traces[1:]:  # RUN.trace and RUN.trace.xz
            yield Recording((path,))


def _recording(files: list[str], starts: Mapping[str, Start | None], center: Start | None) -> Recording:
    if center is None:
        return Recording(tuple(files))
    known = [start for path in files if (start := starts[path]) is not None]
    used = min(known, key=lambda start: (abs(start.wall_ns - center.wall_ns), -start.wall_ns))
    paths = [path for path in files if starts[path] in (None, used)]
    best = posixpath.basename(next(path for path in paths if starts[path] == used))
    mixed = [
        (path, _mixed(start, best, used))
        for path in files
        if (start := starts[path]) is not None and start != used
    ]
    return Recording(tuple(paths), tuple(mixed))


def _mixed(start: Start, best: str, used: Start) -> str:
    return (
        f"is of another recording ({start.in_words()}) than {best} ({used.in_words()}), "
        "whose recording is used; keep one job a folder"
    )


def _center(names: Sequence[Sequence[Start | None]]) -> Start:
    """A start that is near one of each name. Of jobs that are all here, the last one."""
    known = [own for starts in names if (own := {start for start in starts if start is not None})]
    one_a_second = {start.wall_ns // _NOISE_NS: start for own in known for start in own}
    apart = {
        start: max(min(abs(start.wall_ns - other.wall_ns) for other in own) for own in known)
        for start in one_a_second.values()
    }
    enough = min(apart.values()) * _UNLIKE + _NOISE_NS
    return max(
        (start for start, most in apart.items() if most <= enough), key=lambda start: (start.wall_ns, start)
    )
