"""The compiler's own time, from the events that torch logs, and where it gave up a graph."""

from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import Any

_MOST_REASONS = 1000
_LOADS = "AOTAutogradCache.inductor_load"


class Phases:
    """Marks the phases of compilations as ranges of tracer's own, and collects graph breaks."""

    def __init__(self, native: ModuleType) -> None:
        self._native = native
        self._open = threading.local()
        self._breaks: dict[tuple[Any, ...], int] = {}
        self._seen = 0
        """Of torch's list of reasons"""

    def event(self, arguments: tuple[Any, ...]) -> None:
        """A phase of the compiler began (B) or ended (E) in this thread: the arguments of torch's logger."""
        _, name, _, phase, *_ = arguments
        stack = self._open.__dict__.setdefault("stack", [])
        if phase == "B":
            stack.append((name, self._native.enter_range(f"phase:{name}:{_compile_id()}")))
            return
        if phase != "E" or not any(opened == name for opened, _ in stack):
            return
        while stack:  # what has no end of its own ended with an exception
            opened, entered = stack.pop()
            self._native.leave_range(entered)
            if opened == name:
                break
        if not stack:
            self.collect_breaks()

    def is_loading(self) -> bool:
        """Whether this thread loads what AOTAutograd's cache has."""
        return any(name == _LOADS for name, _ in self._open.__dict__.get("stack", ()))

    def collect_breaks(self) -> None:
        """Copies torch's list: a reset of the compiler clears it."""
        reasons = getattr(sys.modules.get("torch._dynamo.utils"), "graph_break_reasons", [])
        if len(reasons) < self._seen:
            self._seen = 0
        for reason in reasons[self._seen :]:
            if len(self._breaks) < _MOST_REASONS:
                frame = reason.user_stack[-1] if reason.user_stack else None
                where = None if frame is None else f"{frame.filename}:{frame.lineno}"
                key = (str(reason.reason).strip().split("\n")[0], where)
                self._breaks[key] = self._breaks.get(key, 0) + 1
        self._seen = len(reasons)

    def document(self) -> dict[str, Any]:
        try:
            self.collect_breaks()
        except Exception:  # of another torch the list has other things
            pass
        return {
            "breaks": [
                {"reason": reason, "source": source, "times": times}
                for (reason, source), times in self._breaks.items()
            ]
        }


def _compile_id() -> str:
    guards = sys.modules.get("torch._guards")
    current = guards.CompileContext.current_compile_id() if guards else None
    return "" if current is None else str(current)
