"""What a command has written to a terminal, for all tests."""

from __future__ import annotations

import os


def read_terminal(ours: int) -> bytes:
    """All that comes, until the other side of the terminal is closed everywhere. Closes `ours`."""
    text = b""
    try:
        while part := os.read(ours, 1 << 16):
            text += part
    except OSError:  # how a terminal ends on Linux
        pass
    os.close(ours)
    return text
