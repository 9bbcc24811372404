"""Recordings that are made once: in build/test-traces, for all workers and for the next sessions.

For tests that only read traces. What is kept counts as long as the text of the test file, torch, Python and
the installed tracer stay the same.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from kept_once import BUILD, key_of, made_once
from launching import Launcher

import tracer

STORE = BUILD / "test-traces"


def recorded_once(folder: Path, make: Callable[[Launcher], object]) -> Launcher:
    """A launcher in `folder`, with a copy of all that `make` wrote and recorded.

    Traces name their lines by the folder in which they were recorded: `launcher.made_in`.
    """
    kept = STORE / f"{Path(inspect.getfile(make)).stem}-{make.__qualname__}"
    key = key_of(Path(inspect.getfile(make)), version("torch"), sys.version, _installed_tracer())

    def record(place: Path) -> None:
        (place / "files").mkdir()  # beside them is a mark that they are whole
        make(Launcher(place / "files"))

    files = made_once(kept, key, record) / "files"
    shutil.copytree(files, folder, dirs_exist_ok=True, symlinks=True)
    launcher = Launcher(folder)
    launcher.made_in = files
    return launcher


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
