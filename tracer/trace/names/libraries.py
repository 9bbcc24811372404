"""Which library of a recorded process holds an address."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tracer.trace.bytes.definitions import Definitions

_LONGEST_FILE_NAME = 255
"""Bytes. Linux has no longer ones, and each address in the library gets a text of its own"""
_TYPES = {"path": str, "base": int, "end": int, "build_id": str}


class LoadedLibraries:
    """The libraries that a process recorded: `path`, `base`, `end` and `build_id` of each.

    No two have an address in common; of a damaged trace the one with the last base before an address counts.
    """

    def __init__(self, libraries: list[Any]) -> None:
        whole = [library for library in libraries if _is_library(library)]
        self._bases, first = np.unique(
            np.array([library["base"] for library in whole], np.uint64), return_index=True
        )
        self._all = [whole[place] for place in first.tolist()]

    def find(self, address: int) -> dict[str, Any] | None:
        """The library whose memory has the address."""
        place = int(np.searchsorted(self._bases, np.uint64(address), "right")) - 1
        found = self._all[place] if place >= 0 else None
        return found if found is not None and address < found["end"] else None

    def offset(self, address: int) -> str:
        """`libname+0xoffset`, or the bare address where no library was loaded."""
        library = self.find(address)
        if library is None:
            return f"{address:#x}"
        name = os.path.basename(library["path"])[:_LONGEST_FILE_NAME]
        return f"{name}+{address - library['base']:#x}"


class Libraries:
    """The libraries of each process. A forked one shares its parent's, which are checked once for all."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._by_owner: dict[int | None, LoadedLibraries] = {}
        self._by_process: dict[int, LoadedLibraries] = {}

    def of(self, process: int) -> LoadedLibraries:
        if process not in self._by_process:
            self._by_process[process] = self._inherited(process)
        return self._by_process[process]

    def _inherited(self, process: int) -> LoadedLibraries:
        lineage = self._definitions.lineage(process)
        owner = next((one for one in lineage if isinstance(self._recorded(one), list)), None)
        if owner not in self._by_owner:
            self._by_owner[owner] = LoadedLibraries([] if owner is None else self._recorded(owner))
        return self._by_owner[owner]

    def _recorded(self, process: int) -> Any:
        return self._definitions.documents.get(process, {}).get("libraries")


def _is_library(library: Any) -> bool:
    return (
        isinstance(library, dict)
        and all(isinstance(library.get(name), kind) for name, kind in _TYPES.items())
        and 0 <= library["base"] < library["end"] < 1 << 64
    )
