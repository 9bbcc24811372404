"""What interrupts tracer's own code in a thread of the program: Ctrl-C, handlers of signals, audit hooks."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, MethodType


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

    found = _action()
    if found is None:
        yield
        return
    action, sigaction = found
    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        sigaction(signal.SIGINT, action, None)
    if interrupted and then_raised:
        signal.raise_signal(signal.SIGINT)


def is_of_the_program(error: BaseException) -> bool:
    """Whether a handler of the program raised it, of a signal that came while code of tracer's ran.

    What that code itself raises is no matter of the program's; a timeout is, and must reach it. An audit hook
    of the program that refuses what tracer asks for refuses it to tracer alone.
    """
    try:
        found, handlers = error.__traceback__, _handlers()
        while found is not None:
            if found.tb_frame.f_code in handlers:
                return True
            found = found.tb_next
    except Exception:  # such a hook refuses tb_frame, too
        pass
    return False


def _handlers() -> set[CodeType]:
    handlers = map(signal.getsignal, signal.valid_signals())
    functions = (handler.__func__ if type(handler) is MethodType else handler for handler in handlers)
    return {function.__code__ for function in functions if type(function) is FunctionType}


def _action() -> tuple[ctypes.Array[ctypes.c_char], Callable[..., object]] | None:
    """The handler that the kernel calls, and what sets it; None: an audit hook of the program refuses ctypes.

    A library may have installed one that Python does not know.
    """
    try:
        action = ctypes.create_string_buffer(512)  # more than a struct sigaction
        sigaction = ctypes.CDLL(None).sigaction
        sigaction(signal.SIGINT, None, action)
    except Exception as error:
        if is_of_the_program(error):
            raise
        return None
    return action, sigaction
