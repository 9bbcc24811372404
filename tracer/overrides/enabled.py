"""Which overrides are enabled in this process; they are enabled for all threads."""

from __future__ import annotations

names: list[str] = []
"""The name of each enabled override, once for each time that it was enabled"""
