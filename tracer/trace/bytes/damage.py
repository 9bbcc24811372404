"""What happens to parts of a file that cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tracer.trace.bytes.trace_errors import TraceError

_P = ParamSpec("_P")
_T = TypeVar("_T")


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
