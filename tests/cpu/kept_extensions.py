"""C++ extensions that tests compile: kept in build/test-extensions, for all workers and later sessions.

Each takes g++ ten seconds. Ninja compiles one again if its text, its options or a header of torch changed.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lazily import torch

STORE = Path(__file__).resolve().parents[2] / "build" / "test-extensions"


@contextmanager
def kept_extension(name: str) -> Iterator[None]:
    """What `torch.utils.cpp_extension` compiles as `name` within this block stays in the store."""
    kept = STORE / name
    kept.mkdir(parents=True, exist_ok=True)
    place = kept / made_with()
    with open(kept / "lock", "w") as lock, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may be compiling it
        for other in kept.iterdir():
            if other.is_dir() and other != place:
                shutil.rmtree(other)
        place.mkdir(exist_ok=True)
        (place / name / "lock").unlink(missing_ok=True)  # torch's own, of a process that was killed
        patch.setenv("PATH", sysconfig.get_path("scripts"), prepend=":")  # ninja
        patch.setenv("TORCH_EXTENSIONS_DIR", str(place))
        yield


@functools.cache
def made_with() -> str:
    """Which torch, Python and compiler: what ninja does not ask."""
    compiler = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout
    parts = [torch.__version__, torch.__file__, sys.version, compiler]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
