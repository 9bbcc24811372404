"""Names of what the trace holds as numbers of torch's enumerations."""

from __future__ import annotations

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
