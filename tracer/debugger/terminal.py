"""Who may read from the terminal. gdb runs a script in a process group of its own."""

from __future__ import annotations

import os
import signal


def is_ours(number: int) -> bool:
    """Whether the file descriptor is a terminal and this process group is its foreground."""
    try:
        return os.isatty(number) and os.tcgetpgrp(number) == os.getpgrp()
    except OSError:
        return False


def take_back(number: int) -> None:
    """Makes this process group the terminal's foreground again, as the shell left it."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(number, os.getpgrp())
    except OSError:  # the terminal has gone
        pass
    finally:
        signal.signal(signal.SIGTTOU, before)
