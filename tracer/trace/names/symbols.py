"""The function symbols of an ELF library."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import numpy as np

from tracer.base.boundary import open_regular
from tracer.trace.bytes.damage import DamagedError, whole

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_T = TypeVar("_T")

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
_FUNCTION_TYPES = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
UNDEFINED_SECTION = 0
_LONGEST = 1 << 16


class Symbols:
    """Reads `.symtab` (else `.dynsym`) of a library; raises OSError or ValueError."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        with os.fdopen(open_regular(path), "rb") as stream:
            _elf_part(path, self._read, stream)

    def _read(self, stream: BinaryIO) -> None:
        elf = _elf_file(stream)
        table = elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")
        if elf.elfclass != 64 or not elf.little_endian or table is None:
            raise ValueError("it has no readable symbol table")
        names = elf.get_section(table["sh_link"])
        self.has_lines = elf.get_section_by_name(".debug_line") is not None
        self.stripped = table.name != ".symtab"
        self.build_id = _build_id(elf)
        data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        symbols = np.frombuffer(data, SYMBOL, table["sh_size"] // SYMBOL.itemsize, table["sh_offset"])
        is_function = np.isin(symbols["info"] & 15, _FUNCTION_TYPES)
        symbols = symbols[is_function & (symbols["section"] != UNDEFINED_SECTION)]
        symbols = symbols[np.argsort(symbols["value"], kind="stable")]
        self._values = symbols["value"].astype(np.int64)
        self._sizes = symbols["size"].astype(np.int64)
        self._names = symbols["name"]
        self._data = data
        self._strings = names["sh_offset"]
        self._strings_end = names["sh_offset"] + names["sh_size"]

    def lookup(self, offsets: Iterable[int]) -> list[tuple[str, int]]:
        """For offsets from the load address: (mangled symbol, offset in it).

        Where no function covers an offset: ("", the offset itself).
        """
        wanted = np.array(list(offsets), np.int64)
        last = np.searchsorted(self._values, wanted, "right") - 1
        # If an address has several names, keep the first.
        rows = np.searchsorted(self._values, self._values[np.maximum(last, 0)]) if len(self._values) else last
        found = []
        for offset, row, any_before in zip(wanted.tolist(), rows.tolist(), last >= 0, strict=True):
            inside = offset - int(self._values[row]) if any_before else -1
            if any_before and inside < max(int(self._sizes[row]), 1):
                found.append((self._name(row), inside))
            else:
                found.append(("", offset))
        return found

    def search(self, *texts: bytes) -> list[tuple[str, int]]:
        """(mangled symbol, offset) of the functions whose symbol contains one of the texts."""
        starts = set()
        for text in texts:
            at = self._data.find(text, self._strings, self._strings_end)
            while at >= 0:
                starts.add(self._data.rfind(b"\0", self._strings, at + 1) + 1 - self._strings)
                at = self._data.find(text, at + 1, self._strings_end)
        rows = np.flatnonzero(np.isin(self._names, np.array(sorted(starts), self._names.dtype)))
        return [(self._name(row), int(self._values[row])) for row in rows.tolist()]

    def _name(self, row: int) -> str:
        start = self._strings + int(self._names[row])
        end = self._data.find(b"\0", start, start + _LONGEST)
        return self._data[start : end if end >= 0 else start + _LONGEST].decode("utf-8", "replace")


def build_id(path: str | os.PathLike[str]) -> str:
    """The build-id of a library as hexadecimal digits, "" if it has none.

    Raises OSError, or ValueError if it is no ELF file.
    """
    with os.fdopen(open_regular(path), "rb") as stream:
        return _elf_part(path, lambda: _build_id(_elf_file(stream)))


def _elf_file(stream: BinaryIO) -> ELFFile:
    from elftools.elf.elffile import ELFFile  # it takes a while to load, and most traces need none

    return ELFFile(stream)


def _elf_part(path: str | os.PathLike[str], read: Callable[..., _T], *arguments: object) -> _T:
    try:
        return whole(read, *arguments)
    except DamagedError as error:
        raise ValueError(f"{os.fspath(path)} is not an ELF library: {error}") from None


def _build_id(elf: ELFFile) -> str:
    for section in elf.iter_sections():
        if section["sh_type"] == "SHT_NOTE":
            for note in section.iter_notes():
                if note["n_type"] == "NT_GNU_BUILD_ID":
                    return str(note["n_desc"])
    return ""
