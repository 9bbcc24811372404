"""Patterns for names of ops and of functions, as a user types them."""

from __future__ import annotations

from fnmatch import fnmatchcase


def fits_op(op: str, pattern: str) -> bool:
    """A pattern without a namespace or an overload fits ops of every namespace or overload."""
    names = {op, op.split(".")[0]}
    names |= {name.rpartition("::")[2] for name in names}
    return any(fnmatchcase(name, pattern) for name in names)
