"""The compiler's own time, from the events that torch logs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from tracer.recording.compiled.breaks import Breaks

_LOADS = "AOTAutogradCache.inductor_load"


class Phases:
    """Marks the phases of compilations as ranges of tracer's own, and tells `breaks` of those that end."""

    def __init__(self, native: ModuleType, breaks: Breaks) -> None:
        self._native = native
        self._breaks = breaks
        self._open: dict[int, list[tuple[str, int]]] = {}
        """thread -> open phases. Not a threading.local: Python 3.11 can hang for ever when it frees one"""

    def event(self, arguments: tuple[Any, ...]) -> None:
        """A phase of the compiler began (B) or ended (E) in this thread: the arguments of torch's logger."""
        _, name, _, phase, *told = arguments
        if phase == "B":
            entered = self._native.enter_range(f"phase:{name}:{_compile_id()}")
            self._open.setdefault(threading.get_ident(), []).append((name, entered))
            return
        if phase != "E":
            return
        try:
            if told and isinstance(told[0], Mapping) and told[0].get("fail_type"):
                self._breaks.gave_up(told[0])
        finally:
            self._end(name)

    def is_loading(self) -> bool:
        """Whether this thread loads what AOTAutograd's cache has."""
        return any(name == _LOADS for name, _ in self._open.get(threading.get_ident(), ()))

    def _end(self, name: str) -> None:
        stack = self._open.get(threading.get_ident(), [])
        if not any(opened == name for opened, _ in stack):
            return
        while stack:  # what has no end of its own ended with an exception
            opened, entered = stack.pop()
            self._native.leave_range(entered)
            if opened == name:
                break
        if not stack:
            del self._open[threading.get_ident()]
            self._breaks.compiled()


def _compile_id() -> str:
    guards = sys.modules.get("torch._guards")
    current = guards.CompileContext.current_compile_id() if guards else None
    return "" if current is None else str(current)
