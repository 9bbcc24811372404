"""Packed traces: the same bytes, compressed with xz."""

from __future__ import annotations

import lzma
import os
import tempfile
from collections.abc import Iterator

MAGIC = b"\xfd7zXZ\x00"
SUFFIX = ".xz"
_STEP = 1 << 20


def is_packed(descriptor: int) -> bool:
    return os.pread(descriptor, len(MAGIC), 0) == MAGIC


def unpack(descriptor: int) -> int:
    """A descriptor of an unlinked temporary file with the trace that was packed.

    Of a packed file that is cut or damaged that has what stands before the damage, as a cut trace
    does. Raises OSError where there is no room.
    """
    with tempfile.TemporaryFile() as file:
        for piece in _unpacked(descriptor):
            file.write(piece)
        file.flush()
        return os.dup(file.fileno())


def _unpacked(descriptor: int) -> Iterator[bytes]:
    """Pieces of limited size: zeros can be a thousandth when they are packed."""
    decompressor = lzma.LZMADecompressor()
    offset = 0
    while not decompressor.eof:
        piece = b""
        if decompressor.needs_input:
            piece = os.pread(descriptor, _STEP, offset)
            if not piece:
                return
        offset += len(piece)
        try:
            yield decompressor.decompress(piece, _STEP)
        except lzma.LZMAError:
            return


def pack(path: str | os.PathLike[str], output: str | os.PathLike[str]) -> None:
    """Writes the trace `path` compressed as `output`, or nothing if that fails (OSError)."""
    partial = f"{os.fspath(output)}.{os.getpid()}.part"
    try:
        with open(path, "rb") as trace, lzma.open(partial, "wb") as packed:
            while piece := trace.read(_STEP):
                packed.write(piece)
        os.replace(partial, output)
    except BaseException:
        if os.path.exists(partial):
            os.unlink(partial)
        raise
