"""What tests make once, in a folder of build/, for all workers and for later sessions."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

BUILD = Path(__file__).resolve().parents[1] / "build"
_MADE = "made"


@contextmanager
def locked(store: Path, key: str) -> Iterator[Path]:
    """The folder `key` of the store, which is its only one; other workers wait."""
    store.mkdir(parents=True, exist_ok=True)
    with open(store / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for other in store.iterdir():
            if other.is_dir() and other.name != key:
                shutil.rmtree(other)
        (store / key).mkdir(exist_ok=True)
        yield store / key


def made_once(store: Path, key: str, make: Callable[[Path], object]) -> Path:
    """The folder `key` of the store, in which `make` has made everything; it begins with an empty one."""
    with locked(store, key) as place:
        if not (place / _MADE).exists():
            shutil.rmtree(place)  # of one that was killed
            place.mkdir()
            make(place)
            (place / _MADE).touch()
    return place


def key_of(*parts: str | bytes | Path) -> str:
    """Differs if one of the parts does; of a path its file."""
    found = hashlib.sha256()
    for part in parts:
        content = part.read_bytes() if isinstance(part, Path) else part
        found.update(hashlib.sha256(content.encode() if isinstance(content, str) else content).digest())
    return found.hexdigest()[:16]


@functools.cache
def compiler() -> str:
    """Which g++ there is."""
    return subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout
