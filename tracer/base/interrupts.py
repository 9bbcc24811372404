"""What interrupts tracer's own code in a thread of the program: Ctrl-C, handlers of signals, audit hooks."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, MethodType
from typing import Any

Handler = Any
"""As signal.getsignal gives it"""
Action = Any
"""A struct sigaction"""
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT}
"""What fails would fail again at once, and of a trace that was cut the recorder's own handler knows"""


@contextmanager
def waiting(*, then_raised: bool = True) -> Iterator[None]:
    """Delays signals that the program handles, and Ctrl-C, until the block ends; then they are raised.

    Without `then_raised` Ctrl-C is dropped. A handler may raise, as one of a timeout does.
    """
    # current_thread() would make a lasting object for a thread that the program does not know.
    sigaction = _sigaction() if threading.get_ident() == threading.main_thread().ident else None
    if sigaction is None:
        yield
        return
    noted: list[int] = []
    handled = (number for number in signal.valid_signals() if callable(signal.getsignal(number)))
    given: list[int] = [signal.SIGINT, *({*handled} - _FAULTS - {signal.SIGINT})]
    kept: dict[int, tuple[Handler, Action]] = {}
    raised = _retried(given, lambda number: _take(number, kept, noted, sigaction))
    try:
        yield
    finally:
        raised = _retried([*kept], lambda number: _give_back(number, kept, sigaction)) or raised
        for each in noted:
            if each != signal.SIGINT or then_raised:
                signal.raise_signal(each)
        if raised is not None and (then_raised or not isinstance(raised, KeyboardInterrupt)):
            raise raised


def _retried(numbers: list[int], what: Callable[[int], None]) -> BaseException | None:
    """Does it for each signal; returns what a handler of the program raised meanwhile."""
    raised = None
    while numbers:
        try:
            what(numbers[-1])
            numbers.pop()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) or is_of_the_program(error):
                raised = error
            else:  # an audit hook of the program refuses it
                numbers.pop()
    return raised


def _take(
    number: int, kept: dict[int, tuple[Handler, Action]], noted: list[int], sigaction: Callable[..., object]
) -> None:
    if number not in kept:
        action = ctypes.create_string_buffer(512)  # more than a struct sigaction
        sigaction(number, None, action)  # a library may have installed one that Python does not know
        kept[number] = signal.getsignal(number), action
    signal.signal(number, lambda number, _: noted.append(number))


def _give_back(
    number: int, kept: dict[int, tuple[Handler, Action]], sigaction: Callable[..., object]
) -> None:
    handler, action = kept[number]
    signal.signal(number, signal.SIG_DFL if handler is None else handler)
    sigaction(number, action, None)


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


def _sigaction() -> Callable[..., object] | None:
    """What sets the handler that the kernel calls; None: an audit hook of the program refuses ctypes."""
    try:
        found: Callable[..., object] = ctypes.CDLL(None).sigaction
    except Exception as error:
        if is_of_the_program(error):
            raise
        return None
    return found
