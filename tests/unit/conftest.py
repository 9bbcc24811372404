"""Unit tests run in this process: they start no other, compile nothing and do not import torch.

So all of them take seconds, and can run at every save. What needs a process, a compiler or torch belongs
to tests/system or tests/cpu.
"""

from __future__ import annotations

import importlib.abc
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from tracer.base import this_torch

HERE = Path(__file__).parent
RULE = "is for tests/system or tests/cpu: tests/unit starts no process and imports no torch"


def refuse(*_: object, **__: object) -> NoReturn:
    pytest.fail(f"a process {RULE}", pytrace=True)


class NoTorch(importlib.abc.MetaPathFinder):
    """Refuses torch."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "torch":
            pytest.fail(f"torch {RULE}", pytrace=True)


@pytest.hookimpl(tryfirst=True)  # before `-m` leaves tests out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """So `-m "unit or promise"` chooses all of this folder, and the real runs of the others."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("unit")


@pytest.fixture(autouse=True, scope="session")
def names_of_the_sample() -> None:
    """The demangler has a process of its own: it names what the recording from a GPU has before the tests."""
    if "gpu_trace" in sys.modules:
        from tracer.trace.bytes.reader import read_recording
        from tracer.trace.names.demangle import prepare

        prepare(read_recording(sys.modules["gpu_trace"].PATH).definitions.symbol_names())


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system"):
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr(sys, "meta_path", [NoTorch(), *sys.meta_path])
    # A test of another folder may have imported it before in this process: then no finder would be asked.
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(this_torch, "_seen", None)
