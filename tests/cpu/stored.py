"""Recordings that are made once: in build/test-traces, for all workers and for the next sessions.

For tests that only read traces. What is kept counts as long as the text of the test file, torch, Python and
the installed tracer stay the same.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import inspect
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from launching import Launcher

import tracer

STORE = Path(__file__).resolve().parents[2] / "build" / "test-traces"
_DONE = "made"  # a file beside the folder, once all is recorded


def recorded_once(folder: Path, make: Callable[[Launcher], object]) -> Launcher:
    """A launcher in `folder`, with a copy of all that `make` wrote and recorded.

    Traces name their lines by the folder in which they were recorded: `launcher.made_in`.
    """
    kept = STORE / f"{Path(inspect.getfile(make)).stem}-{make.__qualname__}"
    kept.mkdir(parents=True, exist_ok=True)
    place = kept / _key(make)
    with open(kept / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may be making it
        if not (place / _DONE).exists():
            for other in kept.iterdir():
                if other.is_dir():
                    shutil.rmtree(other)
            (place / "files").mkdir(parents=True)
            make(Launcher(place / "files"))
            (place / _DONE).touch()
    shutil.copytree(place / "files", folder, dirs_exist_ok=True, symlinks=True)
    launcher = Launcher(folder)
    launcher.made_in = place / "files"
    return launcher


def _key(make: Callable[[Launcher], object]) -> str:
    parts = [Path(inspect.getfile(make)).read_bytes(), version("torch").encode(), sys.version.encode()]
    return hashlib.sha256(b"\0".join([*parts, _installed_tracer()])).hexdigest()[:16]


@functools.cache
def _installed_tracer() -> bytes:
    """The hash of the installed package, with its extensions."""
    folder = Path(tracer.__file__).parent
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".so"))
    found = hashlib.sha256()
    for path in files:
        found.update(f"{path.relative_to(folder)} {path.stat().st_size}\n".encode())
        found.update(path.read_bytes())
    return found.digest()
