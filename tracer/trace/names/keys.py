"""Names of what the trace holds as numbers of torch's enumerations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.definitions import Definitions


@dataclass(frozen=True)
class KeyNames:
    """Dispatch keys, dtypes, device types and layouts of the torch that was recorded."""

    backends: int
    keys: tuple[str | tuple[str, ...], ...]
    dtypes: dict[str, str]
    device_types: dict[str, str]
    layouts: dict[str, str]
    included: int | None = None
    """The key set that a thread adds before anybody asked it to; None: an older recording did not say"""
    excluded: int | None = None

    @classmethod
    def nothing(cls) -> KeyNames:
        return cls(0, (), {}, {}, {})

    @classmethod
    def from_document(cls, document: Any) -> KeyNames | None:
        """From the document "enums"; None where it is not whole."""
        names = ("num_backends", "keys", "dtypes", "device_types", "layouts")
        if document is None or any(document.get(name) is None for name in names):
            return None
        return cls(
            backends=document["num_backends"],
            keys=tuple(key if isinstance(key, str) else tuple(key) for key in document["keys"]),
            dtypes=document["dtypes"],
            device_types=document["device_types"],
            layouts=document["layouts"],
            included=document.get("included_by_default"),
            excluded=document.get("excluded_by_default"),
        )

    def highest(self, key_set: int) -> str | None:
        """The name of the key of highest priority in a key set; None where it has no name."""
        functionality = (key_set >> self.backends).bit_length()
        backend = (key_set & ((1 << self.backends) - 1)).bit_length()
        if functionality >= len(self.keys):
            return None
        key = self.keys[functionality]
        if isinstance(key, str):
            return key
        return key[backend] if backend < len(key) else None

    def names(self, key_set: int) -> list[str]:
        """The keys of a key set, highest first; a functionality of several backends is several keys."""
        backends = [bit for bit in range(self.backends) if key_set >> bit & 1]
        found = []
        for functionality in range(1, len(self.keys)):
            if key_set >> (self.backends + functionality - 1) & 1:
                key = self.keys[functionality]
                known = [key] if isinstance(key, str) else [key[b + 1] for b in backends if b + 1 < len(key)]
                found += known or ([key[0]] if isinstance(key, tuple) and key else [])
        return found[::-1]

    def by_priority(self) -> Iterator[tuple[str, str]]:
        """Every key, lowest first, with its functionality: that of a key for all backends is itself."""
        for key in self.keys[1:]:
            if isinstance(key, str):
                yield key, key
            else:
                yield from ((name, key[0]) for name in key[1:])
                yield key[0], key[0]

    def dtype(self, number: int) -> str | None:
        if number < 0:
            return None
        return str(self.dtypes.get(str(number), f"ScalarType {number}"))

    def device(self, kind: int, index: int) -> str | None:
        if kind == fmt.UNKNOWN_DEVICE:
            return None
        name = str(self.device_types.get(str(kind), f"device type {kind}"))
        return name if index < 0 else f"{name}:{index}"

    def layout(self, number: int) -> str | None:
        if number == fmt.UNKNOWN_LAYOUT:
            return None
        return str(self.layouts.get(str(number), f"Layout {number}"))


def find_key_names(definitions: Definitions) -> dict[int, KeyNames]:
    """The names that each process wrote; a process that wrote none has those of the first."""
    named = {
        process: names
        for process, documents in sorted(definitions.documents.items())
        if (names := KeyNames.from_document(documents.get("enums")))
    }
    first = next(iter(named.values()), None)
    if first:
        for process in (*definitions.hops, *definitions.processes):
            named.setdefault(process, first)
    return named
