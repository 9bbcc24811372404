"""Which overrides are enabled in this process, in whatever thread."""

from __future__ import annotations

names: list[str] = []
"""The name of each that is enabled, once for each time it was"""
