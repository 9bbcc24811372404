"""Paths of source files as short names that say nothing of the machine."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable

_DUMP = re.compile(r"(.+)\.dump(\d+)\.trace(\.xz)?")
_STANDARD_LIBRARY = re.compile(r"/lib/python3\.\d+/")


def short_path(file: str, folder: str, cwd: str = "") -> str:
    """Relative to the installed packages, to Python's library, or to a folder; else the name alone.

    A relative path stays as it is. A file that is not below `folder` but below `cwd` is relative to the
    folder, `../parts/net.py`.
    """
    if not file.startswith("/"):
        return file
    if "/site-packages/" in file:
        return file.rpartition("/site-packages/")[2]
    if standard := _STANDARD_LIBRARY.search(file):
        return file[standard.end() :]
    if folder and file.startswith(f"{folder}/"):
        return file[len(folder) + 1 :]
    if cwd and file.startswith(f"{cwd}/"):
        return posixpath.relpath(file, folder)
    return posixpath.basename(file)


def without_dumps(paths: Iterable[str]) -> list[str]:
    """Paths of traces without each dump, RUN.dumpNNNN.trace, beside its recording or a later dump of it."""
    known = list(paths)
    runs = {path.removesuffix(".xz").removesuffix(".trace") for path in known}
    last: dict[str, int] = {}
    for path in known:
        if dump := _DUMP.fullmatch(path):
            last[dump[1]] = max(last.get(dump[1], 0), int(dump[2]))

    def is_newest(path: str) -> bool:
        dump = _DUMP.fullmatch(path)
        return dump is None or (dump[1] not in runs and int(dump[2]) == last[dump[1]])

    return list(filter(is_newest, known))


def dumps_left_out(paths: Iterable[str]) -> Counter[str]:
    """How many dumps `without_dumps` leaves out, by the trace that is there instead."""
    known = list(paths)
    kept = without_dumps(known)
    instead = {_recording(path): path for path in sorted(kept, reverse=True)}
    return Counter(instead[_recording(path)] for path in set(known).difference(kept))


def is_dump(path: str) -> bool:
    """Whether the name is one that tracer gives to a dump."""
    return _DUMP.fullmatch(path) is not None


def _recording(path: str) -> str:
    """RUN of RUN.trace and of RUN.dumpNNNN.trace."""
    dump = _DUMP.fullmatch(path)
    return dump[1] if dump else path.removesuffix(".xz").removesuffix(".trace")
