"""A folder that one writes into, and which may be a stranger's: below it no link is followed."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tracer.base.boundary import open_regular

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Folder:
    """An open folder; what is done in it is done there, whatever its path leads to by then.

    The path may be a link if the user named it. Names in the folder may not: a link there leads where its
    author wants, and raises OSError.
    """

    def __init__(self, path: str | os.PathLike[str], *, named: bool = True) -> None:
        """`named`: the user named the path. Raises OSError."""
        self._descriptor = _opened(os.fspath(path), None, named)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def below(self, *names: str, make: bool = False) -> Folder:
        """The folder `name/name` in it; `make` makes those that are missing. Raises OSError."""
        at = os.dup(self._descriptor)
        for name in names:
            try:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=at)
                found = _opened(name, at, False)
            finally:
                os.close(at)
            at = found
        folder = Folder.__new__(Folder)
        folder._descriptor = at
        return folder

    def open_regular(self, name: str) -> int:
        """A descriptor of a regular file in it. Raises OSError for everything else."""
        return open_regular(name, os.O_RDONLY | os.O_NOFOLLOW, self._descriptor)

    def write(self, name: str, data: bytes | memoryview) -> None:
        """A file, all of it or nothing; what had its name is replaced. Raises OSError."""
        partial = f".{name}.{os.getpid()}"
        self.remove(partial)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(partial, flags, 0o666, dir_fd=self._descriptor)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            self._rename(partial, name)
        except BaseException:
            os.unlink(partial, dir_fd=self._descriptor)
            raise

    @contextmanager
    def new(self, name: str) -> Iterator[Folder]:
        """A folder to fill in it, which at the end replaces what has its name. Raises OSError.

        If the block fails, nothing is left behind, and what has the name stays.
        """
        partial = f".{name}.{os.getpid()}"
        old = f"{partial}.old"
        for left in (partial, old):
            self.remove(left)
        os.mkdir(partial, dir_fd=self._descriptor)
        try:
            with self.below(partial) as made:
                yield made
            with suppress(FileNotFoundError):
                self._rename(name, old)
            self._rename(partial, name)
        except BaseException:
            self.remove(partial)
            with suppress(OSError):  # there is none, or a new one
                self._rename(old, name)
            raise
        self.remove(old)

    def _rename(self, name: str, to: str) -> None:
        os.rename(name, to, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def remove(self, name: str) -> None:
        """Deletes a folder in it, or a link; as much of it as can be deleted."""
        try:
            os.unlink(name, dir_fd=self._descriptor)
        except OSError:  # a folder, or nothing
            with suppress(RecursionError):  # a thousand folders in each other stay
                shutil.rmtree(f"/proc/self/fd/{self._descriptor}/{name}", ignore_errors=True)


def _opened(name: str, at: int | None, named: bool) -> int:
    try:
        return os.open(name, _FOLDER | (0 if named else os.O_NOFOLLOW), dir_fd=at)
    except OSError as error:
        if not named and os.path.islink(name if at is None else f"/proc/self/fd/{at}/{name}"):
            raise OSError(errno.ELOOP, f"{os.path.basename(name)} is a link, which is not followed") from None
        raise error
