"""What happens to parts of a file that cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tracer.trace.bytes.trace_errors import TraceError

_P = ParamSpec("_P")
_T = TypeVar("_T")
_DIGITS = 19  # of the largest number


class DamagedError(ValueError):
    """A part cannot be read: who reads it leaves it out and counts it."""


def whole(read: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
    """What `read` returns; raises DamagedError whatever it raises.

    The bytes are a stranger's. No list of exceptions has all that they can cause.
    """
    try:
        return read(*arguments, **named)
    except (TraceError, MemoryError):  # of the whole file
        raise
    except Exception as error:
        raise DamagedError(str(error)) from error


def number_of(text: str, most: int = (1 << 63) - 1) -> int | None:
    """The number that a text of a trace is; None of any other text, as `²` or 5,000 digits."""
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS:
        return None
    number = int(text)
    return number if number <= most else None
