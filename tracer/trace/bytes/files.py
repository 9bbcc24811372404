"""Opens files that a trace, or a user, names."""

from __future__ import annotations

import errno
import os
import stat


def open_regular(path: str | os.PathLike[str]) -> int:
    """A descriptor for reading a regular file. Raises OSError for everything else.

    A trace may come from anyone and name any path. Opening a FIFO waits for a writer, and opening a device
    may change it.
    """
    _check(os.stat(path))
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        _check(os.fstat(descriptor))  # it may have been replaced since
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
