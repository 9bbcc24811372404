"""The function behind a region that was compiled before the recording, from the frames that call it."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

_DEEPEST = 10
"""Wrappers around a function"""
_WRAPPERS = "runtime_wrappers.py"
"""AOTAutograd's file whose functions forward() and backward() call the regions of one graph"""


class Frame(NamedTuple):
    """A frame of code that Dynamo generated. `codes`: its function, and those that it may call."""

    codes: list[CodeType]
    compile_id: str | None


_of_graphs: weakref.WeakKeyDictionary[type, Frame] = weakref.WeakKeyDictionary()
"""AOTAutograd's class of a graph -> the frame that called its forward: below a backward there is none"""


_waiting: weakref.WeakKeyDictionary[type, list[Callable[[Frame], None]]] = weakref.WeakKeyDictionary()
"""Who wants that frame, of graphs whose forward was not called in the recording yet"""


def tell_frame(told: Callable[[Frame], None]) -> None:
    """Calls `told` with the frame that Dynamo compiled, from inside of a call of its region.

    Of a backward that runs first, once its forward calls this.
    """
    graph: type | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if graph is None and frame.f_code.co_filename.endswith(_WRAPPERS):
            graph = _graph_of(frame)
        original = _original(frame.f_code)
        if original is not None:
            found = Frame([original, *_functions_in(frame)], _compile_id(original, frame.f_code))
            told(found)
            if graph is not None:
                _of_graphs[graph] = found
                for later in _waiting.pop(graph, ()):
                    later(found)
            return
        frame = frame.f_back
    if graph is not None and graph in _of_graphs:
        told(_of_graphs[graph])
    elif graph is not None:
        _waiting.setdefault(graph, []).append(told)


def _graph_of(frame: FrameType) -> type | None:
    if frame.f_code.co_varnames[:1] != ("ctx",):
        return None
    graph = getattr(type(frame.f_locals["ctx"]), "_forward_cls", None)
    return graph if isinstance(graph, type) else None


def _original(code: CodeType) -> CodeType | None:
    """The code that Dynamo made this one from; None: it is not Dynamo's."""
    known: Any = getattr(sys.modules.get("torch._dynamo.utils"), "orig_code_map", {})
    found: CodeType | None = known.get(code)
    return found


def _functions_in(frame: FrameType) -> Iterator[CodeType]:
    """Those in its variables, and what these are wrapped around."""
    for value in list(frame.f_locals.values()):
        for _ in range(_DEEPEST):
            if not isinstance(value, FunctionType):
                break
            yield value.__code__
            value = getattr(value, "__wrapped__", None)


def _compile_id(original: CodeType, generated: CodeType) -> str | None:
    """From the entry of Dynamo's cache that has the generated code."""
    entries = sys.modules["torch._dynamo.eval_frame"]._debug_get_cache_entry_list(original)
    return next((str(entry.compile_id) for entry in entries if entry.code is generated), None)
