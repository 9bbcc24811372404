"""Captures of CUDA graphs outside of the steps that are recorded: what is captured is recorded all the same.

A replay in a recorded step then leads to the ops and the compiled kernels that were captured.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tracer.base import torch_abi
from tracer.recording.compiled.wrapping import Wrapped


class Captures:
    """Wraps the begin and the end of captures from Python, and resumes the recording between them.

    `resume` returns whether the recording was paused, and resumes it; `pause` pauses it again.
    """

    def __init__(self, native: ModuleType, resume: Callable[[], bool], pause: Callable[[], None]) -> None:
        self._native, self._resume, self._pause = native, resume, pause
        self._wrapped = Wrapped()
        self._entered: dict[int, int] = {}
        """Thread that captures -> its range for the call of compiled code that it is in (0: none)"""
        begin, end = torch_abi.CAPTURES
        self._wrapped.want(torch_abi.CAPTURES_MODULE, begin, self._begins)
        self._wrapped.want(torch_abi.CAPTURES_MODULE, end, self._ends)

    def begin(self) -> None:
        self._wrapped.imported(torch_abi.CAPTURES_MODULE)

    def end(self) -> None:
        """Put torch's functions back."""
        self._wrapped.restore()

    def _begins(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def capture_begin(*arguments: Any, **named: Any) -> Any:
            result = original(*arguments, **named)
            if self._resume():
                self._entered[threading.get_ident()] = self._native.enter_paused_call()
            return result

        return capture_begin

    def _ends(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def capture_end(*arguments: Any, **named: Any) -> Any:
            entered = self._entered.pop(threading.get_ident(), None)
            if entered is None:
                return original(*arguments, **named)
            try:
                return original(*arguments, **named)  # makes the nodes that replays name
            finally:
                self._native.leave_range(entered)
                self._pause()

        return capture_end
