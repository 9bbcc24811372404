"""Errors of a recording."""

from __future__ import annotations


class RecordingError(Exception):
    """A recording cannot begin or end; the message is one line and says what to do."""


class FileLostError(RecordingError):
    """Another process cut the trace or wrote over it; stderr says so already."""
