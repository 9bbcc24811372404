"""Names of this machine."""

from __future__ import annotations

import os


def boot() -> str:
    """The kernel's name of the time since it was started; containers of one host share it. "" if unknown."""
    try:
        # utf-8 is there already: a process of another user may be unable to load a codec.
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""


def this_machine() -> str:
    """A name of this host, or container, until it is started again: nobody can guess it. "" if unknown."""
    import hashlib

    started = boot()
    return hashlib.sha256(f"{os.uname().nodename} {started}".encode()).hexdigest()[:32] if started else ""
