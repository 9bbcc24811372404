"""Who else has a trace file open. Process ids would not tell, since the recording may run in a container."""

from __future__ import annotations

import fcntl
import signal


def is_open_for_writing(descriptor: int) -> bool:
    """Whether some process can still write to the file: only then is a read lease refused.

    True where leases are not to be had (the file is somebody else's, or on a file system without them).
    """
    return _is_refused(descriptor, fcntl.F_RDLCK)


def is_open_elsewhere(descriptor: int) -> bool:
    """Whether another process has the file open at all: only then is a write lease refused."""
    return _is_refused(descriptor, fcntl.F_WRLCK)


def _is_refused(descriptor: int, lease: int) -> bool:
    try:
        # Somebody who opens the file just now would have the kernel send SIGIO, which kills.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, lease)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return True
    return False
