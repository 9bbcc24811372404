"""Writes output whole or not at all: to a temporary name beside its place, then renamed."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tracer.base.boundary import new_beside

_BLOCK_BYTES = 1 << 20
_GZIP_LEVEL = 6


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that replaces `path` at the end; compressed with gzip if the name ends in .gz.

    If the block fails, nothing is left behind, and the old file at `path` stays.
    """
    descriptor, partial = new_beside(path)
    try:
        with os.fdopen(descriptor, "wb", _BLOCK_BYTES) as file:
            if path.suffix == ".gz":
                packed = gzip.GzipFile(path.stem, "wb", _GZIP_LEVEL, file, mtime=0)
                with io.BufferedWriter(packed, _BLOCK_BYTES) as blocks:
                    yield blocks
            else:
                yield file
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def holds_only(folder: Path, names: Collection[str]) -> bool:
    """Whether a folder has only files of these names, so that it may be replaced."""
    return all(path.name in names and not path.is_dir() for path in folder.iterdir())
