"""The error that ends a debugger session early."""

from __future__ import annotations


class DebuggerError(Exception):
    """The message is one line and says what happened and what to do."""
