"""Errors of overrides."""

from __future__ import annotations


class OverrideError(Exception):
    """An override cannot be registered or enabled; the message is one line and says what to do."""


class BuiltinError(OverrideError):
    """No built-in override can run here."""


class HandOver(Exception):  # noqa: N818 (it is no error)
    """Raise this in an override's function to let stock compute the call, for the given reason.

    tracer counts the reasons, so a reason should name a kind of call ("K = 0"), not one call.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
