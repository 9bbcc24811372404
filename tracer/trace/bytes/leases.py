"""Who else has a trace file open. Process ids cannot tell, since the recording may run in a container."""

from __future__ import annotations

import errno
import fcntl
import signal


def is_open_for_writing(descriptor: int) -> bool:
    """Whether some process can still write to the file: only then is a read lease refused.

    True if leases are unavailable (the file has another owner, or its file system has no leases).
    """
    return _refused(descriptor, fcntl.F_RDLCK) is not None


def has_writer(descriptor: int) -> bool | None:
    """Whether some process can still write to the file; None if leases are unavailable."""
    why = _refused(descriptor, fcntl.F_RDLCK)
    return why == errno.EAGAIN if why in (None, errno.EAGAIN) else None


def is_open_elsewhere(descriptor: int) -> bool:
    """Whether another process has the file open at all: only then is a write lease refused."""
    return _refused(descriptor, fcntl.F_WRLCK) is not None


def _refused(descriptor: int, lease: int) -> int | None:
    """Why the kernel gives no lease, as an errno; None: it does."""
    try:
        # Somebody who opens the file just now would have the kernel send SIGIO, which kills.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, lease)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno
    return None
