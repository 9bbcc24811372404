"""What ends an export."""

from __future__ import annotations


class ExportError(Exception):
    """A trace that cannot be written in a format: one line, what is wrong and what to do."""
