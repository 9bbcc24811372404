"""Which recording a trace is of, out of the first bytes of its file."""

from __future__ import annotations

import lzma
import os
from datetime import datetime, timezone
from typing import NamedTuple

from tracer.base.boundary import open_regular
from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.packed import MAGIC

START_BYTES = 1 << 16
"""Enough of a file, packed or not, to know its recording"""


class Start(NamedTuple):
    """A recording: a random number, its process, and when it began; a dump has those of its recording."""

    session: int
    pid: int
    start_ns: int
    wall_ns: int

    def in_words(self) -> str:
        """`process 4711, begun 2026-11-25 18:32:44 UTC`; redacted traces have no time of day."""
        if not self.wall_ns:
            return f"process {self.pid}"
        try:
            began = datetime.fromtimestamp(self.wall_ns // 1_000_000_000, tz=timezone.utc)
        except (OverflowError, ValueError, OSError):
            return f"process {self.pid}"
        return f"process {self.pid}, begun {began:%Y-%m-%d %H:%M:%S} UTC"


def start_of(data: bytes) -> Start | None:
    """The recording of a file that begins with `data`; None if that is no header of a trace."""
    if data.startswith(MAGIC):
        try:
            data = lzma.LZMADecompressor(memlimit=256 << 20).decompress(data, fmt.HEADER_BYTES)
        except lzma.LZMAError:
            return None
    if not data.startswith(fmt.MAGIC) or len(data) < fmt.FILE_HEADER.size:
        return None
    header = fmt.unpack_file_header(data)
    return Start(header.session, header.root_pid, header.start_ns, header.wall_ns)


def start_of_file(path: str) -> Start | None:
    """The same of a file here; None also if it cannot be read."""
    try:
        descriptor = open_regular(path)
    except OSError:
        return None
    try:
        return start_of(os.pread(descriptor, START_BYTES, 0))
    except OSError:
        return None
    finally:
        os.close(descriptor)
