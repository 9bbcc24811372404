"""Numbers in texts that others wrote."""

from __future__ import annotations

_DIGITS = 19  # of the largest number


def number_of(text: str, most: int = (1 << 63) - 1) -> int | None:
    """The number that a text is; None of any other text, as `²` or 5,000 digits."""
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS:
        return None
    number = int(text)
    return number if number <= most else None
