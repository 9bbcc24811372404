"""What a row of a flat table may be, and by what rows are sorted: names that the command line has too."""

from __future__ import annotations

GROUPS: dict[str, tuple[str, ...]] = {
    "hop": ("op", "key", "kernel"),
    "op": ("op",),
    "key": ("key",),
    "source": ("source",),
    "module": ("module",),
    "kernel": ("kernel",),
    "range": ("range",),
}
"""The columns of hops that are equal in a row"""
SORTS = ("self", "total", "calls", "hops", "median")
