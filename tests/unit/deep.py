"""Folders in each other, more of them than a path may have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def deep(top: Path, count: int) -> Iterator[None]:
    """`count` folders in each other, until the end; pytest could not delete them."""
    top.mkdir(parents=True, exist_ok=True)
    at = os.open(top, os.O_RDONLY)
    for _ in range(count):
        os.mkdir("a", dir_fd=at)
        below = os.open("a", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    try:
        yield
    finally:
        for folder in top.parent.iterdir():  # it may have another name by now
            while (folder / "a" / "a").exists():
                (folder / "a" / "a").rename(folder / "b")
                (folder / "a").rmdir()
                (folder / "b").rename(folder / "a")
