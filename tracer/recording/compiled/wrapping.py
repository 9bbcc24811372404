"""Functions of torch's Python part that are replaced while recording, and put back at its end."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from tracer.base import torch_abi

_COMPILER = ("torch._dynamo", "torch._inductor")

Make = Callable[[Callable[..., Any]], Callable[..., Any]]


class Wrapped:
    """The replaced functions of one recording.

    A function is named by its module and its path there: ("torch._dynamo.utils", "Class.method"). It is
    replaced as soon as its module is there. Nothing is imported for it.
    """

    def __init__(self) -> None:
        self._wanted: list[tuple[str, str, Make]] = []
        self._placed: list[tuple[Any, str, Any, Any]] = []
        self.missing: set[str] = set()
        """Functions that this torch does not have"""

    @property
    def modules(self) -> list[str]:
        return list(dict.fromkeys(module for module, _, _ in self._wanted))

    def want(self, module: str, path: str, make: Make) -> None:
        """Replace a function by what `make` makes of it."""
        self._wanted.append((module, path, make))

    def imported(self, name: str) -> None:
        """A module has been imported: its functions are there."""
        module = sys.modules.get(name)
        if module is None:
            return
        for wanted, path, make in self._wanted:
            if wanted == name:
                self._place(module, path, make)
        for *_, ours in self._placed:
            _hide_from_dynamo(ours)

    def restore(self) -> None:
        """Put the originals back, unless another tool has put its own function over ours."""
        for owner, name, original, ours in reversed(self._placed):
            if vars(owner).get(name) is ours:
                setattr(owner, name, original)
            if isinstance(owner, ModuleType):
                _exchange_by_name(name, ours, original)
        self._placed.clear()

    def _place(self, module: ModuleType, path: str, make: Make) -> None:
        *above, name = path.split(".")
        owner: Any = module
        for part in above:
            owner = getattr(owner, part, None)
        original = None if owner is None else vars(owner).get(name)
        if not isinstance(original, FunctionType):
            self.missing.add(f"{module.__name__}.{path}")
            return
        if any(placed[:2] == (owner, name) for placed in self._placed):
            return
        ours = functools.wraps(original)(make(original))
        setattr(owner, name, ours)
        self._placed.append((owner, name, original, ours))
        if owner is module:
            _exchange_by_name(name, original, ours)


def _exchange_by_name(name: str, old: object, new: object) -> None:
    """In the compiler's modules that have imported a function by its name."""
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(_COMPILER) and getattr(module, "__dict__", {}).get(name) is old:
            setattr(module, name, new)


def _hide_from_dynamo(function: Any) -> None:
    """Dynamo must not compile our function where it runs inside of one that Dynamo looks at."""
    frames = sys.modules.get(torch_abi.COMPILER_FRAMES)
    skip = getattr(frames, "skip_code", None)
    if skip is not None:
        skip(function.__code__)
