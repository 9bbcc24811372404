"""Modules of benchmarks/, which are no package: tests import them by this."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def benchmark(name: str) -> ModuleType:
    with pytest.MonkeyPatch.context() as path:
        path.syspath_prepend(BENCHMARKS)
        return importlib.import_module(name)
