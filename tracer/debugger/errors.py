"""What ends a debugger session before its work is done, in one line for the user."""

from __future__ import annotations


class DebuggerError(Exception):
    """One line: what happened and what to do."""
