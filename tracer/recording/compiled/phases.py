"""The compiler's own time, from the events that torch logs, and where it gave up a graph or a function."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

_MOST_REASONS = 1000
_LONGEST_REASON = 500
_LOADS = "AOTAutogradCache.inductor_load"


_GRAPH_BREAKS = ("Unsupported", "UserError")
"""Errors by which Dynamo says that it cannot go on; their text begins with the reason"""


_REASONS = {"generic_jump": "Data-dependent branching"}
"""First words in torch's list, and what TORCH_LOGS and its metrics say instead"""


class _Break(NamedTuple):
    reason: str
    source: str | None
    not_compiled: str | None = None
    """The function that Dynamo gave up as a whole; None if only a graph ended"""


class Phases:
    """Marks the phases of compilations as ranges of tracer's own, and collects graph breaks.

    Only texts are kept: an error of torch holds frames, and with them tensors of the program.
    """

    def __init__(self, native: ModuleType) -> None:
        self._native = native
        self._open: dict[int, list[tuple[str, int]]] = {}
        """thread -> open phases. Not a threading.local: Python 3.11 can hang for ever when it frees one"""
        self._process = os.getpid()
        self._breaks: dict[_Break, int] = {}
        self._seen = 0
        """How many entries of torch's list of reasons were read"""

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
                self._gave_up(told[0])
        finally:
            self._end(name)

    def is_loading(self) -> bool:
        """Whether this thread loads what AOTAutograd's cache has."""
        return any(name == _LOADS for name, _ in self._open.get(threading.get_ident(), ()))

    def collect_breaks(self, given_up: _Break | None = None) -> None:
        """Copies torch's list: a reset of the compiler clears it.

        `given_up`: a function that is not compiled. Dynamo may have tried to end a graph in it for the same
        reason before.
        """
        if self._process != os.getpid():  # forked: the parent lists its own
            self._process = os.getpid()
            self._breaks.clear()
        reasons = getattr(sys.modules.get("torch._dynamo.utils"), "graph_break_reasons", [])
        if len(reasons) < self._seen:
            self._seen = 0
        new = reasons[self._seen :]
        self._seen += len(new)
        for reason in new:
            frame = reason.user_stack[-1] if reason.user_stack else None
            where = None if frame is None else f"{frame.filename}:{frame.lineno}"
            text = _in_one_line(reason.reason)
            found = _Break(_REASONS.get(text.partition(" ")[0], text), where)
            if given_up is None or found[:2] != given_up[:2]:
                self._count(found)
        if given_up is not None:
            self._count(given_up)

    def document(self) -> dict[str, Any]:
        try:
            self.collect_breaks()
        except Exception:  # of another torch the list has other things
            pass
        return {"breaks": [{**one._asdict(), "times": times} for one, times in self._breaks.items()]}

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
            self.collect_breaks()

    def _gave_up(self, told: Mapping[str, Any]) -> None:
        """A compilation failed, and nothing of its function is compiled. `told`: torch's metrics of it."""
        function, file, line = (told.get(name) for name in ("co_name", "co_filename", "co_firstlineno"))
        code = _code_in_compilation()
        if function is None:  # beyond the recompile limit; and in a backward, which is not Dynamo's
            if code is None:
                return
            function, file, line = code.co_name, code.co_filename, code.co_firstlineno
        if code is not None and code.co_name == function:
            function = getattr(code, "co_qualname", function)  # Net.forward, from Python 3.11 on
        if told.get("fail_user_frame_filename") and told.get("fail_user_frame_lineno"):
            file, line = told["fail_user_frame_filename"], told["fail_user_frame_lineno"]
        kind, reason = str(told["fail_type"]), _in_one_line(told.get("fail_reason") or "")
        if kind not in _GRAPH_BREAKS or not reason:
            reason = f"{kind}: {reason}" if reason else kind
        self.collect_breaks(_Break(reason, f"{file}:{line}", str(function)))

    def _count(self, found: _Break) -> None:
        if found in self._breaks or len(self._breaks) < _MOST_REASONS:
            self._breaks[found] = self._breaks.get(found, 0) + 1


def _in_one_line(reason: object) -> str:
    """The first line of a reason; of "backend='x' raised:" also what it raised."""
    first, _, rest = str(reason).strip().partition("\n")
    if first.endswith(":"):
        first = f"{first} {rest.strip().partition(chr(10))[0]}".strip()
    return first[:_LONGEST_REASON]


def _code_in_compilation() -> CodeType | None:
    """The function that Dynamo compiles in this thread, from the arguments of its own function for that."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and not (
        frame.f_code.co_name == "_compile" and frame.f_code.co_filename.endswith("convert_frame.py")
    ):
        frame = frame.f_back
    code = frame.f_locals.get("code") if frame is not None else None
    return code if isinstance(code, CodeType) else None


def _compile_id() -> str:
    guards = sys.modules.get("torch._guards")
    current = guards.CompileContext.current_compile_id() if guards else None
    return "" if current is None else str(current)
