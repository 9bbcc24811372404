"""Packed traces: the same bytes, compressed with xz."""

from __future__ import annotations

import lzma
import os
import tempfile
from collections.abc import Iterator
from typing import IO

MAGIC = b"\xfd7zXZ\x00"
SUFFIX = ".xz"
_STEP = 1 << 20
_SPARE = 256 << 20
_RATIO = 100
"""A trace is 5 to 15 times as large as its packed file, unless it consists of zeros."""
_DECODER_BYTES = 256 << 20
"""Memory that unpacking may take: `xz -9` asks for 65 MiB of it"""


class PackedError(Exception):
    """A packed file cannot be unpacked; the message says why and what to do."""


def is_packed(descriptor: int) -> bool:
    return os.pread(descriptor, len(MAGIC), 0) == MAGIC


def unpack(descriptor: int) -> int:
    """A descriptor of an unlinked temporary file with the unpacked trace.

    If the packed file is cut or damaged, the result ends before the damage, like a cut trace.
    Raises OSError if there is no room, and PackedError if unpacking would take too much.
    """
    most = _SPARE + _RATIO * os.fstat(descriptor).st_size
    with tempfile.TemporaryFile() as file:
        size = 0
        for piece in _unpacked(descriptor):
            size += len(piece)
            if size > most:
                raise PackedError(
                    f"it unpacks to more than 256 MiB and {_RATIO} times its size; "
                    "if you trust it, unpack it with xz -d and read the result"
                )
            if piece.count(0) == len(piece):
                file.seek(len(piece), os.SEEK_CUR)  # zeros take no room
            else:
                file.write(piece)
        file.truncate(size)
        file.flush()
        return os.dup(file.fileno())


def _unpacked(descriptor: int) -> Iterator[bytes]:
    """Pieces of limited size: zeros can be a thousandth when they are packed."""
    decompressor = lzma.LZMADecompressor(memlimit=_DECODER_BYTES)
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
        except lzma.LZMAError as error:
            if "limit" in str(error):
                raise PackedError(
                    "unpacking it takes more than 256 MiB of memory; "
                    "if you trust it, unpack it with xz -d and read the result"
                ) from None
            return


def pack(trace: IO[bytes], output: str | os.PathLike[str], mode: int) -> None:
    """Writes `trace`, compressed, as `output` with the permissions `mode`; nothing if that fails (OSError).

    Until it is whole, the file has a name that nobody can guess: a link could be there.
    """
    folder, name = os.path.split(os.fspath(output))
    descriptor, partial = tempfile.mkstemp(".part", f".{name}.", folder or ".")
    try:
        with open(descriptor, "wb") as file:
            with lzma.open(file, "wb") as packed:
                while piece := trace.read(_STEP):
                    packed.write(piece)
            os.fchmod(descriptor, mode & 0o666)
        os.replace(partial, output)
    except BaseException:
        os.unlink(partial)
        raise
