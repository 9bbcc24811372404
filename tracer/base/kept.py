"""Small texts kept from one command to the next, in the user's cache folder.

If the cache folder cannot be read or written, nothing is kept; that is not an error.
"""

from __future__ import annotations

import os
import zlib

from tracer.base.cache import cache_folder


def read(kind: str, key: str) -> str | None:
    """The text of `kind` kept under exactly this key; None if there is none."""
    try:
        with open(_path(kind, key), encoding="utf-8") as file:
            known, _, text = file.read().partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return text if known == _line(key) else None


def write(kind: str, key: str, text: str) -> None:
    path = _path(kind, key)
    temporary = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(f"{_line(key)}\n{text}")
    except (OSError, UnicodeEncodeError):
        return
    try:
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)


def _line(key: str) -> str:
    return " ".join(key.split())


def _path(kind: str, key: str) -> str:
    return os.path.join(cache_folder(), f"{kind}-{zlib.crc32(_line(key).encode(errors='replace')):08x}")
