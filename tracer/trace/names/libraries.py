"""Which library of a recorded process holds an address."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tracer.trace.bytes.definitions import Definitions

_TYPES = {"path": str, "base": int, "end": int, "build_id": str}


class LoadedLibraries:
    """The libraries that a process recorded: `path`, `base`, `end` and `build_id` of each."""

    def __init__(self, definitions: Definitions, process: int) -> None:
        self._all = _loaded(definitions, process)
        self._bases = np.array([library["base"] for library in self._all], np.uint64)
        self._ends = np.array([library["end"] for library in self._all], np.uint64)

    def find(self, address: int) -> dict[str, Any] | None:
        """The library whose memory has the address."""
        place = np.uint64(address)
        found = np.flatnonzero((self._bases <= place) & (place < self._ends))
        return self._all[found[0]] if len(found) else None

    def offset(self, address: int) -> str:
        """`libname+0xoffset`, or the bare address where no library was loaded."""
        library = self.find(address)
        if library is None:
            return f"{address:#x}"
        return f"{os.path.basename(library['path'])}+{address - library['base']:#x}"


def _loaded(definitions: Definitions, process: int) -> list[dict[str, Any]]:
    for owner in definitions.lineage(process):
        libraries = definitions.documents.get(owner, {}).get("libraries")
        if isinstance(libraries, list):
            return [library for library in libraries if _is_library(library)]
    return []


def _is_library(library: Any) -> bool:
    return (
        isinstance(library, dict)
        and all(isinstance(library.get(name), kind) for name, kind in _TYPES.items())
        and 0 <= library["base"] <= library["end"] < 1 << 64
    )
