"""What overrides raise."""

from __future__ import annotations


class OverrideError(Exception):
    """An override cannot be registered or switched on; the message is one line and says what to do."""


class BuiltinError(OverrideError):
    """The built-in overrides cannot run here, whichever of them was asked for."""


class HandOver(Exception):  # noqa: N818 (it is no error)
    """Raised by an override's function: stock shall compute this call, for the reason given.

    The reasons are counted, so they should say what kind of call it is ("K = 0"), and nothing of
    the single call.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
