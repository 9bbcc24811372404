"""The steps of the program (training steps, batches) while it runs, and which of them are recorded."""

from __future__ import annotations

import os
import weakref
from types import ModuleType
from typing import Any

from tracer.recording.options import Options

BY_CALL = "tracer.step()"
BY_OPTIMIZER = "optimizer.step()"


class Steps:
    """Counts the steps of this process, and pauses the recording outside of those that are wanted.

    A step ends where the script calls `tracer.step()`; as long as it never does, where the
    optimizer that stepped first returns from `step()` (only if `count_optimizer` was called).
    """

    def __init__(self, native: ModuleType, wanted: tuple[int, int | None] | None) -> None:
        """`wanted`: the first step that is recorded, and the one after the last (None: no end)."""
        self._native = native
        self._wanted = wanted
        self._pid = os.getpid()
        self._optimizer: weakref.ref | None = None
        self._hook: Any = None
        self.ended = 0
        self.counted_by: str | None = None

    def begin(self) -> None:
        """Right after the recording has begun."""
        if self._wanted and self._wanted[0] > 0:
            self._native.pause()

    def count_optimizer(self) -> None:
        """Count the steps of the optimizer too: it is told by a hook after each of its steps."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._hook = register_optimizer_step_post_hook(self._optimizer_stepped)

    def end(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def called(self) -> None:
        """The script said that a step has ended."""
        self._of_this_process()
        if self.counted_by != BY_CALL:
            self.ended = 0
            self.counted_by = BY_CALL
        self._advance()

    def _optimizer_stepped(self, optimizer: object, *_: object) -> None:
        self._of_this_process()
        if self.counted_by == BY_CALL:
            return
        if self._optimizer is None or self._optimizer() is None:
            self._optimizer = weakref.ref(optimizer)
        if self._optimizer() is optimizer:
            self.counted_by = BY_OPTIMIZER
            self._advance()

    def _of_this_process(self) -> None:
        """A forked process counts its own steps."""
        if os.getpid() != self._pid:
            self._pid = os.getpid()
            self.ended = 0

    def _advance(self) -> None:
        self.ended += 1
        first, end = self._wanted or (0, None)
        if self.ended == first:
            self._native.resume()
        else:
            self._native.step(self.ended)
        if self.ended == end:
            self._native.pause()

    def document(self) -> dict[str, object] | None:
        """What the certificate says of them; None where none ended and none was asked for."""
        if self._wanted is None and not self.ended:
            return None
        return {"wanted": self._wanted, "ended": self.ended, "counted_by": self.counted_by}


_current: Steps | None = None


def begin(native: ModuleType, options: Options) -> None:
    """Count the steps of this process from here on: its recording has just begun."""
    global _current
    _current = Steps(native, options.steps)
    # Where all steps are kept, the ranges that torch opens around those of the optimizer tell.
    if options.steps or options.is_ring:
        _current.count_optimizer()
    _current.begin()


def called() -> None:
    """The script said that a step has ended; nothing happens where nothing is recorded."""
    if _current is not None:
        _current.called()


def end() -> dict[str, object] | None:
    """What the certificate of this process says of its steps."""
    global _current
    steps, _current = _current, None
    if steps is None:
        return None
    steps.end()
    return steps.document()
