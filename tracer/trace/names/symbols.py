"""The function symbols of an ELF library."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import numpy as np

from tracer.base.elf import MOST_SYMBOLS, UNDEFINED_SECTION, Elf

_FUNCTION_TYPES = (2, 10)  # STT_FUNC, STT_GNU_IFUNC


class Symbols:
    """Reads `.symtab` (else `.dynsym`) of a library. Raises OSError or ValueError, also for over `most`."""

    def __init__(self, library: Elf | str | os.PathLike[str], most: int = MOST_SYMBOLS) -> None:
        self._elf = library if isinstance(library, Elf) else Elf(library)
        table = self._elf.section(".symtab")
        self.stripped = table is None
        self._table = table or self._elf.section(".dynsym")
        if self._table is None:
            raise ValueError("it has no readable symbol table")
        self.has_lines = self._elf.section(".debug_line") is not None
        symbols = self._elf.symbols(self._table, min(most, MOST_SYMBOLS))
        self.count = len(symbols)
        is_function = np.isin(symbols["info"] & 15, _FUNCTION_TYPES)
        symbols = symbols[is_function & (symbols["section"] != UNDEFINED_SECTION)]
        symbols = symbols[np.argsort(symbols["value"], kind="stable")]
        self._values = symbols["value"]
        self._sizes = symbols["size"]
        self._names = symbols["name"]

    def lookup(self, offsets: Iterable[int]) -> Iterator[tuple[str, int]]:
        """For offsets from the load address: (mangled symbol, offset in it).

        Where no function covers an offset: ("", the offset itself).
        """
        assert self._table is not None
        wanted = np.array(list(offsets), np.uint64)
        last = np.searchsorted(self._values, wanted, "right") - 1
        # If an address has several names, keep the first.
        rows = np.searchsorted(self._values, self._values[np.maximum(last, 0)]) if len(self._values) else last
        texts: dict[int, str] = {}  # of its function, which many offsets may be in
        for offset, row, any_before in zip(wanted.tolist(), rows.tolist(), last >= 0, strict=True):
            inside = offset - int(self._values[row]) if any_before else -1
            if any_before and inside < max(int(self._sizes[row]), 1):
                if row not in texts:
                    texts[row] = self._elf.name(self._table, int(self._names[row]))
                yield texts[row], inside
            else:
                yield "", offset

    def search(self, *texts: bytes) -> list[tuple[str, int]]:
        """(mangled symbol, offset) of the functions whose symbol contains one of the texts."""
        assert self._table is not None
        names = self._elf.names(self._table)
        starts = set()
        for text in texts:
            at = names.find(text)
            while at >= 0:
                starts.add(names.rfind(b"\0", 0, at + 1) + 1)
                at = names.find(text, at + 1)
        rows = np.flatnonzero(np.isin(self._names, np.array(sorted(starts), self._names.dtype)))
        found = []
        for row in rows.tolist():
            start = int(self._names[row])
            end = names.find(b"\0", start)
            name = names[start : end if end >= 0 else len(names)]
            found.append((name.decode("utf-8", "replace"), int(self._values[row])))
        return found
