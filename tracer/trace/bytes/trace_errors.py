"""The error of the reader."""

from __future__ import annotations


class TraceError(Exception):
    """A file cannot be read as a trace; the message is one line and says what to do."""


class MissingStepError(TraceError):
    """The trace is fine, and has no such step."""
