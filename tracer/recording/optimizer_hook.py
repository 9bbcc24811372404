"""A hook of torch's optimizers that may come and go at any moment, also while hooks are being called."""

from __future__ import annotations

import _thread
import sys
import time
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from tracer.base.interrupts import is_of_the_program
from tracer.base.this_torch import this_torch

_PAUSE = 0.001  # seconds between two looks


class OptimizerHook:
    """Has torch call a function after each `step` of each optimizer, until some time after `remove`.

    torch goes through a dict of hooks, and if that changes meanwhile the training ends with a RuntimeError.
    A recording may begin or end there, if it was attached or has its steps: then the change waits for the
    end of that step.
    """

    def __init__(self, native: ModuleType, function: Callable[..., None]) -> None:
        self._native = native
        self._function = function
        self._handle: Any = None
        self._wanted = True
        # Without an import: the module may be gone from sys.modules, and torch.optim hides it.
        module = this_torch().optim.Optimizer.register_step_post_hook.__globals__
        self._register: Callable[..., Any] = module["register_optimizer_step_post_hook"]
        self._file = self._register.__code__.co_filename
        self._when_no_optimizer_steps(self._add)

    def remove(self) -> None:
        """The function may still be called, until the step of now has ended."""
        self._wanted = False
        self._when_no_optimizer_steps(self._take_out)

    def _add(self) -> None:
        if self._wanted:
            self._handle = self._register(self._function)

    def _take_out(self) -> None:
        if self._handle is not None:
            self._handle.remove()

    def _when_no_optimizer_steps(self, act: Callable[[], None]) -> None:
        """Now, or on a short-lived thread when the step of now has ended."""
        if not self._an_optimizer_steps():
            act()
            return

        def wait() -> None:
            while self._an_optimizer_steps():
                time.sleep(_PAUSE)
            act()

        try:
            _thread.start_new_thread(wait, ())
        except Exception as error:  # the process ends, or an audit hook refuses
            if is_of_the_program(error):
                raise

    def _an_optimizer_steps(self) -> bool:
        """Whether a thread is in the file of torch that goes through the hooks."""
        known: bool | None = self._native.runs_code_of(self._file)
        if known is not None:
            return known
        # Not in Python 3.11, whose frames are known: there this call can hang for ever (gh-106883).
        for frame in sys._current_frames().values():
            inner: FrameType | None = frame
            while inner is not None:
                if inner.f_code.co_filename == self._file:
                    return True
                inner = inner.f_back
        return False


def backward_pass() -> int:
    """The number of the backward pass that runs on this thread; -1: none."""
    torch = this_torch()
    return int(torch._C._current_graph_task_id())


def at_its_end(function: Callable[[], object]) -> bool:
    """Have the backward pass that runs on this thread call a function when it ends; False: it cannot."""
    try:
        this_torch().autograd.Variable._execution_engine.queue_callback(function)
    except RuntimeError:
        return False
    return True
