"""The fields of a definition record."""

from __future__ import annotations

import struct

LONGEST_NAME = 1 << 13
"""Characters: a name may be in many rows, and in the text of many lines"""
LONGEST_MEMBER = 64
"""Of a member of an enumeration, which is in the text of each call. CUDA's longest has 54, torch's 38"""


class Body:
    """The fields of a record; raises struct.error or ValueError where they do not fit."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.offset = 0

    def fields(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from("<" + layout, self.data, self.offset)
        self.offset += struct.calcsize("<" + layout)
        return values

    def bytes(self) -> bytes:
        (length,) = self.fields("I")
        end = self.offset + length
        if end > len(self.data):
            raise ValueError("a string ends outside its record")
        content = self.data[self.offset : end]
        self.offset = end
        return content

    def text(self, most: int = LONGEST_NAME) -> str:
        """What is longer is cut, with `...` at its end."""
        content = self.bytes()
        text = content[: 4 * most].decode("utf-8", "replace")
        return text if len(text) <= most and len(content) <= 4 * most else f"{text[: most - 3]}..."

    def numbers(self, count: int) -> tuple[int, ...]:
        return self.fields(f"{count}q")

    def check_end(self) -> None:
        if len(self.data) - self.offset >= 8 or any(self.data[self.offset :]):
            raise ValueError("a record has bytes left")
