"""Where Dynamo ended a graph or gave up a function, and why."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tracer.recording.compiled.definition import place_of

_MOST_REASONS = 1000
_LONGEST_REASON = 500
_GRAPH_BREAKS = ("Unsupported", "UserError")
"""Errors by which Dynamo says that it cannot go on; their text begins with the reason"""
_REASONS = {"generic_jump": "Data-dependent branching"}
"""First words in torch's list, and what TORCH_LOGS and its metrics say instead"""


class _Break(NamedTuple):
    reason: str
    source: str | None
    not_compiled: str | None = None
    """The function that Dynamo gave up as a whole; None if only a graph ended"""


class Breaks:
    """The breaks of one recording; those of before are read from torch's list, once.

    Later ones are taken when torch makes their reason: it clears its list at each torch._dynamo.reset().
    Only texts are kept: an error of torch holds frames, and with them tensors of the program.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._found: dict[_Break, list[None]] = {}
        """With an element for each time: append() needs no lock"""
        self._pending: dict[int, list[_Break]] = {}
        """thread -> breaks of the compilation that goes on there"""

    def read_list(self) -> None:
        """Before the first graph_ended()."""
        for reason in list(getattr(sys.modules.get("torch._dynamo.utils"), "graph_break_reasons", ())):
            self._count(_break_of(reason))

    def graph_ended(self, reason: Any) -> None:
        """torch has made a GraphCompileReason in this thread."""
        if reason.graph_break:
            self._of_this_process()
            self._pending.setdefault(threading.get_ident(), []).append(_break_of(reason))

    def compiled(self) -> None:
        """The outermost compilation of this thread has ended."""
        self._of_this_process()
        for found in self._pending.pop(threading.get_ident(), ()):
            self._count(found)

    def gave_up(self, told: Mapping[str, Any]) -> None:
        """A compilation failed, and nothing of its function is compiled. `told`: torch's metrics of it."""
        given_up = _given_up(told)
        if given_up is None:
            return
        self._of_this_process()
        for found in self._pending.pop(threading.get_ident(), ()):
            if found[:2] != given_up[:2]:  # it may have tried to end a graph in it for the same reason
                self._count(found)
        self._count(given_up)

    def document(self) -> list[dict[str, Any]]:
        self._of_this_process()
        for thread in list(self._pending):
            for found in self._pending.pop(thread, ()):
                self._count(found)
        return [{**one._asdict(), "times": len(times)} for one, times in self._found.items()]

    def _of_this_process(self) -> None:
        if self._process != os.getpid():  # forked: the parent lists its own
            self._process = os.getpid()
            self._found.clear()
            self._pending.clear()

    def _count(self, found: _Break) -> None:
        if found in self._found or len(self._found) < _MOST_REASONS:
            self._found.setdefault(found, []).append(None)


def _break_of(reason: Any) -> _Break:
    """`reason`: a GraphCompileReason."""
    frame = reason.user_stack[-1] if reason.user_stack else None
    where = None if frame is None else f"{frame.filename}:{frame.lineno}"
    text = in_one_line(reason.reason)
    return _Break(_REASONS.get(text.partition(" ")[0], text), where)


def _given_up(told: Mapping[str, Any]) -> _Break | None:
    function, file, line = (told.get(name) for name in ("co_name", "co_filename", "co_firstlineno"))
    code = _code_in_compilation()
    place = f"{file}:{line}"
    if function is None:  # beyond the recompile limit; and in a backward, which is not Dynamo's
        if code is None:
            return None
        function = code.co_name
    if code is not None and code.co_name == function:
        function = getattr(code, "co_qualname", function)  # Net.forward, from Python 3.11 on
        place = place_of(code)
    if told.get("fail_user_frame_filename") and told.get("fail_user_frame_lineno"):
        place = f"{told['fail_user_frame_filename']}:{told['fail_user_frame_lineno']}"
    kind, reason = str(told["fail_type"]), in_one_line(told.get("fail_reason") or "")
    if kind not in _GRAPH_BREAKS or not reason:
        reason = f"{kind}: {reason}" if reason else kind
    return _Break(reason, place, str(function))


def in_one_line(reason: object) -> str:
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
