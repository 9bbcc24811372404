"""Reads ELF files, of 64 bits and little endian, in bounded time and memory.

A trace or a job may name any file, and its owner may change the file meanwhile. So each table has a limit,
names are compared in tables and never collected, and nothing is mapped: a mapping of a file that somebody
cuts ends this process by SIGBUS.
"""

from __future__ import annotations

import os
import struct
import weakref
from typing import NamedTuple

import numpy as np

from tracer.base.boundary import open_regular

SYMBOL = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)
UNDEFINED_SECTION = 0
_SECTION = np.dtype(
    [
        *(("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8"), ("offset", "<u8")),
        *(("size", "<u8"), ("link", "<u4"), ("info", "<u4"), ("alignment", "<u8"), ("entry_size", "<u8")),
    ]
)
_SEGMENT = np.dtype(
    [
        *(("type", "<u4"), ("flags", "<u4"), ("offset", "<u8"), ("address", "<u8"), ("physical", "<u8")),
        *(("file_size", "<u8"), ("size", "<u8"), ("alignment", "<u8")),
    ]
)
_IDENT = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<16s2HI3QI6H")
_NOTE = struct.Struct("<3I")
_NOTES, _LOADED = 7, 1  # SHT_NOTE, PT_LOAD
_BUILD_ID = 3, b"GNU\0"

# libtorch_cpu has 38 sections, 3 KB of notes, 530,000 symbols and 72 MiB of their names.
_MOST_SECTIONS = 1 << 16
_MOST_SECTION_NAMES = 1 << 22
_MOST_NOTES = 1 << 16
MOST_SYMBOLS = 1 << 22
_MOST_NAMES = 1 << 29
_LONGEST_NAME = 8192


class Section(NamedTuple):
    offset: int
    size: int
    link: int
    """The section with the names of a symbol table"""


class Elf:
    """An open file. Raises OSError, or ValueError if it is another file, cut, or larger than any library."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._descriptor = open_regular(path)
        weakref.finalize(self, os.close, self._descriptor)
        ident, *numbers = _HEADER.unpack(self.read(0, _HEADER.size))
        if not ident.startswith(_IDENT):
            raise ValueError(f"{self.path} is not an ELF library of 64 bits")
        (_, _, _, _, segments, sections, _, _, _, segment_count, _, section_count, names) = numbers
        self._segments = self._table(segments, segment_count, _SEGMENT)
        if sections and not section_count:  # a file with many has the numbers in the first one
            first = self._table(sections, 1, _SECTION)[0]
            section_count, names = int(first["size"]), int(first["link"]) if names == 0xFFFF else names
        self._limited("sections", section_count, _MOST_SECTIONS)
        self._sections = self._table(sections, section_count, _SECTION)
        self._names = self._content(self._at(names), _MOST_SECTION_NAMES) if section_count else b""

    def read(self, offset: int, size: int) -> bytes:
        content = os.pread(self._descriptor, size, offset) if offset < 1 << 63 else b""
        if len(content) != size:  # pread gives at most 2 GiB, more than each limit
            raise ValueError(f"{self.path} is not an ELF library: it is cut")
        return content

    def section(self, name: str) -> Section | None:
        """The first of this name."""
        found = np.flatnonzero(named(self._names, self._sections["name"], name))
        return self._at(int(found[0])) if len(found) else None

    @property
    def build_id(self) -> str:
        """As hexadecimal digits; "" if there is none."""
        left = _MOST_NOTES
        for row in np.flatnonzero(self._sections["type"] == _NOTES).tolist():
            notes = self._content(self._at(row), left)
            left -= len(notes) + _NOTE.size  # also empty ones are some work
            at = 0
            while at + _NOTE.size <= len(notes):
                name_size, size, kind = _NOTE.unpack_from(notes, at)
                start = at + _NOTE.size + -(-name_size // 4) * 4
                if (kind, notes[at + _NOTE.size : start]) == _BUILD_ID:
                    return notes[start : start + size].hex()
                at = start + -(-size // 4) * 4
        return ""

    def symbols(self, table: Section, most: int = MOST_SYMBOLS) -> np.ndarray:
        count = table.size // SYMBOL.itemsize
        self._limited("symbols", count, most)
        return self._table(table.offset, count, SYMBOL)

    def names(self, table: Section, most: int = _MOST_NAMES) -> bytes:
        """Those of a symbol table, all of them."""
        return self._content(self._at(table.link), most)

    def name(self, table: Section, offset: int) -> str:
        """One of them, without reading the others."""
        names = self._at(table.link)
        size = min(_LONGEST_NAME, max(names.size - offset, 0))
        return self.read(names.offset + offset, size).partition(b"\0")[0].decode("utf-8", "replace")

    @property
    def first_address(self) -> int:
        """Of what is loaded. Raises ValueError if nothing is."""
        loaded = self._segments["address"][self._segments["type"] == _LOADED]
        if not len(loaded):
            raise ValueError(f"{self.path} is not an ELF library: it has nothing to load")
        return int(loaded[0])

    def bytes_at(self, address: int, size: int) -> bytes:
        """What is loaded from the file to an address of its own; b"" if nothing."""
        for segment in self._segments[self._segments["type"] == _LOADED].tolist():
            _, _, offset, first, _, in_file, *_ = segment
            if address >= first and address - first + size <= in_file:
                return self.read(offset + address - first, size)
        return b""

    def _at(self, row: int) -> Section:
        if row >= len(self._sections):
            raise ValueError(f"{self.path} is not an ELF library: it lacks a section")
        found = self._sections[row]
        return Section(int(found["offset"]), int(found["size"]), int(found["link"]))

    def _content(self, section: Section, most: int) -> bytes:
        self._limited("bytes of names or notes", section.size, most)
        return self.read(section.offset, section.size)

    def _table(self, offset: int, count: int, row: np.dtype) -> np.ndarray:
        return np.frombuffer(self.read(offset, count * row.itemsize), row)

    def _limited(self, what: str, count: int, most: int) -> None:
        if count > most:
            raise ValueError(f"{self.path} is not an ELF library: it has {count:,} {what}")


def named(names: bytes, offsets: np.ndarray, name: str) -> np.ndarray:
    """Whether each offset into a table of names is that of `name`.

    Searching the table once beats reading half a million names, and a name without an end costs nothing.
    """
    text = name.encode() + b"\0"
    starts = []
    at = names.find(text)
    while at >= 0:
        starts.append(at)
        at = names.find(text, at + 1)
    return np.isin(offsets, np.array(starts, offsets.dtype))
