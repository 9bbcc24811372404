"""The error that ends an export."""

from __future__ import annotations


class ExportError(Exception):
    """A trace cannot be written in a format; the message is one line and says what to do."""
