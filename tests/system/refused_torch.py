"""A plugin of pytest that refuses torch while tests are collected: pytest -p refused_torch --collect-only.

It prints where torch was asked for, a line for each place.
"""

from __future__ import annotations

import importlib.abc
import sys
import traceback
from importlib.machinery import ModuleSpec
from types import ModuleType

REFUSED = "torch", "torchgen", "triton"


class Refusing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules, so that who asks whether there is a torch hears yes, and does not load them."""

    def __init__(self) -> None:
        self.places: list[str] = []

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in REFUSED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        frames = [frame for frame in traceback.extract_stack()[:-1] if "importlib" not in frame.filename]
        asking = [f"{frame.filename}:{frame.lineno} ({frame.line})" for frame in reversed(frames[-3:])]
        self.places.append(f"{spec.name} is imported by {', called by '.join(asking)}")
        raise ImportError(f"{spec.name} is imported while tests are collected")

    def exec_module(self, module: ModuleType) -> None: ...


refusing = Refusing()
sys.meta_path.insert(0, refusing)


def pytest_collection_finish() -> None:
    loaded = [f"{name} is imported" for name in (*REFUSED, "tracer._C") if name in sys.modules]
    print("\n".join(refusing.places + loaded))
