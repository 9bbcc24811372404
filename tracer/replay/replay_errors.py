"""Why an op call cannot be replayed."""

from __future__ import annotations


class CannotReplayError(Exception):
    """The message is one line: what cannot be rebuilt or run, and why."""


class WrongOptionError(CannotReplayError):
    """An option has an unknown name in it, or a value that it does not take."""
