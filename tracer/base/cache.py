"""The folder in which tracer keeps files between runs."""

from __future__ import annotations

import os


def cache_folder() -> str:
    """`$XDG_CACHE_HOME/tracer`, else `~/.cache/tracer`; for a user without a home, one that cannot exist."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):  # as the XDG specification has it
        cache = os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(cache):  # a user without a home folder
        cache = os.devnull
    return os.path.join(cache, "tracer")
