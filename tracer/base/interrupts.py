"""Ctrl-C that waits for the end of a block."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def waiting(*, then_raised: bool = True) -> Iterator[None]:
    """Ctrl-C waits until the block ends. `then_raised`: it comes then; else it is dropped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupted = False

    def note(*_: object) -> None:
        nonlocal interrupted
        interrupted = True

    action = _action()
    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        ctypes.CDLL(None).sigaction(signal.SIGINT, action, None)
    if interrupted and then_raised:
        signal.raise_signal(signal.SIGINT)


def _action() -> ctypes.Array[ctypes.c_char]:
    """What the kernel calls: a library may have installed a handler that Python does not know."""
    action = ctypes.create_string_buffer(512)  # more than a struct sigaction
    ctypes.CDLL(None).sigaction(signal.SIGINT, None, action)
    return action
