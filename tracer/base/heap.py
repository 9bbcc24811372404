"""Memory that was freed and that the process still holds."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """What was freed goes back to the system: after reading 10 million hops 0.6 GiB."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)
