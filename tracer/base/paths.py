"""Paths of source files as short names that say nothing of the machine."""

from __future__ import annotations

import posixpath
import re

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
