"""The error of a fleet."""

from __future__ import annotations


class FleetError(Exception):
    """Nothing can be gathered; the message is one line and says what to do."""
