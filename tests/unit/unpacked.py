"""The bytes of a trace with its documents unpacked, to look for what must not be in it."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

_BEGINS = re.compile(rb"\x78[\x01\x5e\x9c\xda]")


def unpacked(path: Path) -> bytes:
    """The file, and behind it all that zlib has packed in it."""
    data = path.read_bytes()
    parts = [data]
    for match in _BEGINS.finditer(data):
        try:
            parts.append(zlib.decompressobj().decompress(data[match.start() :]))
        except zlib.error:
            continue
    return b"\n".join(parts)
