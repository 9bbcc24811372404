"""Counts in certificates: read from what a process stated, written as words."""

from __future__ import annotations

from typing import Any


def count_in(document: dict[str, Any], name: str) -> int:
    """The count of this name; 0 if it is missing or not a count."""
    return int(document[name]) if isinstance(document.get(name), int) else 0


def in_words(count: int, singular: str, plural: str = "") -> str:
    """`1 hop`, `1,234 hops`; `plural` if it is not formed with an s."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"
