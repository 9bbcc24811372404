"""What the reader raises."""

from __future__ import annotations


class TraceError(Exception):
    """A file that cannot be read as a trace: one line, what is wrong and what to do."""


class MissingStepError(TraceError):
    """The trace is fine, and has no such step."""
