"""C++ extensions that tests compile: kept in build/test-extensions, for all workers and later sessions.

Each takes g++ ten seconds. Ninja compiles one again if its text, its options or a header of torch changed.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kept_once import BUILD, compiler, key_of, locked
from lazily import torch

STORE = BUILD / "test-extensions"


@contextmanager
def kept_extension(name: str) -> Iterator[None]:
    """What `torch.utils.cpp_extension` compiles as `name` within this block stays in the store."""
    with locked(STORE / name, made_with()) as place, pytest.MonkeyPatch.context() as patch:
        (place / name / "lock").unlink(missing_ok=True)  # torch's own, of a process that was killed
        patch.setenv("PATH", sysconfig.get_path("scripts"), prepend=":")  # ninja
        patch.setenv("TORCH_EXTENSIONS_DIR", str(place))
        yield


def made_with() -> str:
    """Which torch, Python and compiler: what ninja does not ask."""
    return key_of(torch.__version__, torch.__file__, sys.version, compiler())
