"""Locks that are free in a forked child."""

from __future__ import annotations

import os
import threading


def _fork_safe(lock: threading.Lock | threading.RLock) -> None:
    """Without this, a child that is forked while another thread holds the lock would wait for ever."""
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


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
