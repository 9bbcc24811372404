"""Delays Ctrl-C until the end of a block."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def waiting(*, then_raised: bool = True) -> Iterator[None]:
    """Delays Ctrl-C until the block ends; then raises it (`then_raised`) or drops it."""
    # current_thread() would make a lasting object for a thread that the program does not know.
    if threading.get_ident() != threading.main_thread().ident:
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
    """The handler that the kernel calls: a library may have installed one that Python does not know."""
    action = ctypes.create_string_buffer(512)  # more than a struct sigaction
    ctypes.CDLL(None).sigaction(signal.SIGINT, None, action)
    return action
