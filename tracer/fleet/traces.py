"""Where traces are: on this machine, or at a URL that fsspec opens."""

from __future__ import annotations

import os
import posixpath
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

from tracer.analysis.job.recordings import recordings
from tracer.base.visible import printable
from tracer.fleet.fleet_errors import FleetError
from tracer.trace.bytes.damage import DamagedError, whole
from tracer.trace.bytes.start import START_BYTES, Start, start_of, start_of_file

_ENDS = (".trace", ".trace.xz")
_MAGIC = "*?["


@dataclass(frozen=True)
class TraceFile:
    """A trace: its absolute path or URL as a text, its job, and what changes when the file does.

    `dumps` is how many dumps of the same recording are left out, as this trace is there. `instead` has them,
    the newest first: the next one is read if this trace cannot be. `error`: why a trace is not to be read.
    `file`: the path to open, if that differs.
    """

    path: str
    job: str
    version: str
    dumps: int = 0
    instead: tuple[TraceFile, ...] = ()
    error: str | None = None
    file: str = ""

    @property
    def opened(self) -> str:
        return self.file or self.path

    @property
    def name(self) -> str:
        return posixpath.basename(self.path)


def find(paths: Iterable[str], job: str | None = None) -> list[TraceFile]:
    """The traces in these files, folders (with the folders in them) and URLs, each once, by path.

    Dumps are left out beside their recording, or a later dump of it: a shell's `job/*.trace` names them too.
    The job of a trace is its folder's name; of two folders with one name, their names with as many parents as
    it takes. Raises FleetError if a path does not exist, or a folder or pattern has no trace.
    """
    versions: dict[str, str] = {}
    for path in paths:
        found = _remote(path) if "://" in path else _local(path)
        if not found:
            raise FleetError(
                f"{path} has no *.trace; record one a rank into it: tracer record -o DIR/ SCRIPT"
            )
        versions |= found
    found_there = recordings(versions, _start)
    names = _short(sorted({posixpath.dirname(path) for path in versions}))

    def trace(path: str, dumps: int, error: str | None = None) -> TraceFile:
        of_job = printable(job or names[posixpath.dirname(path)])
        version = _with_dumps(versions[path], dumps)
        return TraceFile(printable(path), of_job, version, dumps, error=error, file=path)

    chosen = []
    for one in found_there:
        first, *older = [trace(path, sum(one.left_out(path))) for path in one.paths]
        chosen.append(replace(first, instead=tuple(older)))
        chosen += [trace(path, 0, printable(why)) for path, why in one.mixed]
    return sorted(chosen, key=lambda trace: trace.path)


def _start(path: str) -> Start | None:
    """The recording of a trace; None if it cannot be read, which its reader will say."""
    if "://" not in path:
        return start_of_file(path)
    system, there = _system(path)
    try:
        return whole(lambda: start_of(system.cat_file(there, 0, START_BYTES)))
    except DamagedError:  # each kind of store has errors of its own
        return None


@contextmanager
def on_this_machine(path: str, scratch: str | None) -> Iterator[str]:
    """A local path of the trace; of one that is elsewhere a copy in `scratch`, which is deleted after."""
    if "://" not in path:
        yield path
        return
    folder = tempfile.mkdtemp(prefix="tracer-fleet-", dir=scratch)
    try:
        system, there = _system(path)
        local = os.path.join(folder, posixpath.basename(there))
        system.get_file(there, local)
        yield local
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _local(path: str) -> dict[str, str]:
    given = Path(path).absolute()
    if not given.exists():
        raise FleetError(f"{path} does not exist; give traces, folders of traces, or URLs")
    found = _below(str(given)) if given.is_dir() else [str(given)]
    return {file: _version(_status(file)) for file in found}


def _below(folder: str) -> list[str]:
    """What is called as traces are, in the folder and those in it; of folders only such without any.

    It may be a stranger's, with any number of folders in each other. No link to a folder is followed.
    """
    found, left = [], [folder]
    while left:
        try:
            entries = [*os.scandir(left.pop())]
        except OSError:  # it may not be read, or has gone
            continue
        found += [entry.path for entry in entries if entry.name.endswith(_ENDS)]
        left += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    parents: set[str] = set()
    for path in found:
        while (path := os.path.dirname(path)) not in parents:
            parents.add(path)
    return sorted(path for path in found if path not in parents)


def _status(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError:  # a link in a circle, or to nothing: its reader will say so
        return os.lstat(path)


def _version(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns}"


def _with_dumps(version: str, dumps: int) -> str:
    """The parts say how many were left out, so they are made again where that changes."""
    return f"{version} {dumps} dumps" if dumps else version


def _remote(url: str) -> dict[str, str]:
    system, path = _system(url)
    try:
        if any(sign in path for sign in _MAGIC):
            found = [file for file in system.glob(path) if file.endswith(_ENDS)]
        elif system.isdir(path):
            found = [file for file in system.find(path) if file.endswith(_ENDS)]
        elif system.exists(path):
            found = [path]
        else:
            raise FleetError(f"{url} does not exist; give traces, folders of traces, or URLs")
        return {system.unstrip_protocol(file): str(system.ukey(file)) for file in found}
    except OSError as error:
        raise FleetError(f"cannot read {url}: {error.strerror or error}") from error


def _system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise FleetError(f"{url} needs the package fsspec; install it: pip install fsspec") from None
    try:
        return url_to_fs(url)
    except (ImportError, ValueError) as error:  # a protocol whose package is missing, or that nobody knows
        raise FleetError(f"cannot open {url}: {' '.join(str(error).split())}") from error


def _short(folders: list[str]) -> dict[str, str]:
    """folder -> its name, with as many parents as make it unlike the others."""
    upwards = sorted((folder.rstrip("/").split("/")[::-1], folder) for folder in folders)
    parts = [each for each, _ in upwards]
    # Those that share most words are neighbours.
    shared = [0, *(_shared(*pair) for pair in pairwise(parts)), 0]
    return {
        folder: "/".join(each[max(both) :: -1]) or "/"
        for (each, folder), both in zip(upwards, pairwise(shared), strict=False)
    }


def _shared(one: list[str], other: list[str]) -> int:
    """How many words they begin with that are the same."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
