"""Paths of source files as short names that say nothing of the machine."""

from __future__ import annotations

import posixpath
import re

_DUMP = re.compile(r"(.+)\.dump(\d+)\.trace(\.xz)?")
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/", re.DOTALL)
_STANDARD_LIBRARY = re.compile(r"/lib/python3\.\d+/")


def short_path(file: str, folder: str, cwd: str = "") -> str:
    """Relative to the installed packages, to Python's library, or to a folder; else the name alone.

    A relative path stays as it is. A file that is not below `folder` but below `cwd` is relative to the
    folder, `../parts/net.py`, if that is below `cwd` too. Else it is relative to `cwd`, since the way there
    would name the folders of both.
    """
    if not file.startswith("/"):
        return file
    if packages := _PACKAGES.match(file):
        return file[packages.end() :]
    if standard := _STANDARD_LIBRARY.search(file):
        return file[standard.end() :]
    if folder and file.startswith(f"{folder}/"):
        return file[len(folder) + 1 :]
    if cwd and file.startswith(f"{cwd}/"):
        return posixpath.relpath(file, folder if folder.startswith(f"{cwd}/") else cwd)
    return posixpath.basename(file)


def is_dump(path: str) -> bool:
    """Whether the name is one that tracer gives to a dump."""
    return _DUMP.fullmatch(path) is not None


def dump_number(path: str) -> int:
    """NNNN of RUN.dumpNNNN.trace, 0 of another name."""
    dump = _DUMP.fullmatch(path)
    return int(dump[2]) if dump else 0


def recording_name(path: str) -> str:
    """RUN of RUN.trace and of RUN.dumpNNNN.trace."""
    dump = _DUMP.fullmatch(path)
    return dump[1] if dump else path.removesuffix(".xz").removesuffix(".trace")
