"""Locks that are free in a forked child."""

from __future__ import annotations

import os
import threading


def _fork_safe(lock: threading.Lock | threading.RLock) -> None:
    """Without this, a child that is forked while another thread holds the lock would wait for ever."""
    forking: list[int] = []  # the thread that has the lock for its fork

    def before() -> None:
        lock.acquire()
        forking.append(threading.get_ident())

    def after() -> None:
        # Not of a fork that began before this was registered, by another thread: it has no lock to give back.
        if threading.get_ident() in forking:
            forking.remove(threading.get_ident())
            lock.release()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=after)


recording = threading.RLock()
"""Held while a recording begins or ends"""
switching = threading.RLock()
"""Held while overrides are enabled or disabled, and while the set of enabled ones is read"""
counting = threading.Lock()
"""Held for one addition"""

# The last that is registered is taken first: a thread that begins a recording may switch, one that switches
# may count, and not the other way.
_fork_safe(counting)
_fork_safe(switching)
_fork_safe(recording)
