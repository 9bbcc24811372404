"""How far long work is, for whoever shows it: a part from 0 to 1. Without a listener nothing happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_listener: Callable[[float], None] | None = None
_range = 0.0, 1.0


@contextmanager
def listening(listener: Callable[[float], None]) -> Iterator[None]:
    """Calls `listener` with the part that is done, whenever the work in the block says so."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before


@contextmanager
def portion(begin: float, end: float) -> Iterator[None]:
    """What the work in the block says counts from `begin` to `end` of the work around it."""
    global _range
    before = _range
    first, last = before
    _range = first + (last - first) * begin, first + (last - first) * end
    try:
        yield
    finally:
        _range = before


def done(count: int, of: int) -> None:
    """`count` of `of` equal pieces are done."""
    if _listener is not None:
        first, last = _range
        _listener(first + (last - first) * (count / of if of else 1.0))
