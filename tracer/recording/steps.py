"""The steps of the program (training steps, batches) while it runs, and which of them are recorded."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from types import FrameType, ModuleType

from tracer.base.interrupts import is_of_the_program
from tracer.base.this_torch import this_torch
from tracer.recording.captures import Captures
from tracer.recording.documents import write_document
from tracer.recording.optimizer_hook import OptimizerHook, at_its_end, backward_pass
from tracer.recording.options import Options
from tracer.recording.setups import Optimizers

BY_CALL = "tracer.step()"
BY_OPTIMIZER = "optimizer.step()"


class Steps:
    """Counts the steps of this process, and pauses the recording outside of those that are wanted.

    A step ends when the script calls `tracer.step()`. As long as it never does, a step ends when
    the optimizer that stepped first returns from `step()`. That is one object: once it is collected,
    the next optimizer that steps continues the count. If a hook of the backward pass steps it, the step
    ends when that pass does.
    """

    def __init__(
        self,
        native: ModuleType,
        wanted: tuple[int, int | None] | None,
        last_ended: Callable[[], object] | None = None,
    ) -> None:
        """`wanted`: the first step that is recorded, and the one after the last (None: no end).

        `last_ended` is called when the last wanted step has ended, on the thread that ended it.
        """
        self._native = native
        self._wanted = wanted
        self._last_ended = last_ended
        self._optimizer: weakref.ref | None = None
        self._optimizers = Optimizers(partial(write_document, native, "optimizers"))
        self._in_backward = -1
        """The backward pass that ends a step when it ends; -1: none"""
        self.ended = 0
        self.counted_by: str | None = None
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._paused = False
        self._over = False
        self._captures = Captures(native, self._resume_to_capture, self._pause_after_capture)
        self._capturing = 0
        """Captures that are recorded in a pause, at this moment"""
        self._captured = False
        """Whether something was recorded before the first wanted step"""

    def begin(self) -> None:
        """Right after the recording has begun."""
        is_compiling = this_torch().compiler.is_compiling

        def stepped(optimizer: object, *_: object) -> None:
            # torch.compile compiles hooks into the steps that it compiles: nothing else may be in this one.
            if not is_compiling():
                self._optimizer_stepped(optimizer)

        self._hook = OptimizerHook(self._native, stepped)
        if self._wanted:
            self._captures.begin()
            if self._wanted[0] > 0:
                self._pause()

    def end(self) -> None:
        self._over = True
        self._hook.remove()
        self._captures.end()

    def called(self) -> None:
        """The script said that a step has ended."""
        self._of_this_process()
        with self._lock:
            if self.counted_by != BY_CALL:
                self._count_calls()
            self._advance()

    def _optimizer_stepped(self, optimizer: object) -> None:
        """Called by the hook, so the second frame above is the step's."""
        try:
            self._of_this_process()
            if not self._over:
                self._optimizers.stepped(optimizer)
            if self._over or self.counted_by == BY_CALL or _is_nested(optimizer, sys._getframe(2)):
                return
            with self._lock:
                if self._optimizer is None or self._optimizer() is None:
                    self._optimizer = weakref.ref(optimizer)
                if self._optimizer() is optimizer:
                    self.counted_by = BY_OPTIMIZER
                    self._end_with_backward()
        except Exception as error:  # an audit hook; a class without weak references
            if is_of_the_program(error):
                raise

    def _end_with_backward(self) -> None:
        """End the step: now, or with the backward pass in which the optimizer steps."""
        current = backward_pass()
        if current >= 0 and current == self._in_backward:
            return
        if self._in_backward >= 0:  # that pass ended with an exception
            self._backward_ended(self._in_backward)
        if current >= 0 and at_its_end(lambda: self._backward_ended(current)):
            self._in_backward = current
        else:
            self._advance()

    def _backward_ended(self, which: int) -> None:
        self._of_this_process()
        with self._lock:
            if self._in_backward == which and not self._over and self.counted_by == BY_OPTIMIZER:
                self._in_backward = -1
                self._advance()

    def _of_this_process(self) -> None:
        """A forked process counts its own steps."""
        if os.getpid() == self._pid:
            return
        self._pid = os.getpid()
        self._lock = threading.RLock()  # another thread of the parent may hold the old one
        self._optimizer = None
        self._optimizers = Optimizers(partial(write_document, self._native, "optimizers"))
        self._in_backward = -1
        self._capturing = 0
        self._captured = False
        self.ended = 0
        self.counted_by = None
        if self._wanted and self._wanted[0] > 0:
            self._captured = not self._paused  # what came since the fork is of no wanted step
            self._pause()

    def _count_calls(self) -> None:
        """From here on the script counts, from 0."""
        if self.ended and self._wanted:
            (self._pause if self._wanted[0] > 0 else self._resume)()
        self.ended = 0
        self.counted_by = BY_CALL

    def _advance(self) -> None:
        self.ended += 1
        first, end = self._wanted or (0, None)
        if self.ended == first:
            self._resume()
            if self._captured:
                self._native.step(0)
        else:
            self._native.step(self.ended)
        if self.ended == end:
            self._pause()
            if self._last_ended is not None:
                self._last_ended()

    def _pause(self) -> None:
        self._paused = True
        if not self._capturing:
            self._native.pause()

    def _resume(self) -> None:
        self._paused = False
        self._native.resume()

    def _resume_to_capture(self) -> bool:
        self._of_this_process()
        with self._lock:
            if not self._paused:
                return False
            self._capturing += 1
            self._captured = True
            self._native.resume()
            return True

    def _pause_after_capture(self) -> None:
        with self._lock:
            self._capturing -= 1
            if self._paused and not self._capturing:
                self._native.pause()

    def document(self) -> dict[str, object]:
        """The steps, for the certificate."""
        return {"wanted": self._wanted, "ended": self.ended, "counted_by": self.counted_by}


def _is_nested(optimizer: object, step: FrameType) -> bool:
    """Whether another `step` of this optimizer called this one, as that of its base class."""
    caller = step.f_back
    while caller is not None:
        if caller.f_code is step.f_code and caller.f_locals.get("self") is optimizer:
            return True
        caller = caller.f_back
    return False


_current: Steps | None = None


def begin(native: ModuleType, options: Options, last_ended: Callable[[], object] | None = None) -> None:
    """Begin to count the steps of this process: its recording has just begun."""
    global _current
    _current = Steps(native, options.steps, last_ended)
    _current.begin()


def called() -> None:
    """The script said that a step has ended; does nothing without a recording."""
    if _current is not None:
        _current.called()


def end() -> dict[str, object] | None:
    """The steps of this process, for its certificate."""
    global _current
    steps, _current = _current, None
    if steps is None:
        return None
    steps.end()
    return steps.document()
