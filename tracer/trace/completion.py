"""Names the kernel functions of a recording whose process was killed before it could."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
from collections import defaultdict
from typing import Any

from tracer.trace import format as fmt
from tracer.trace.definitions import Definitions, SymbolDefinition
from tracer.trace.reader import Recording
from tracer.trace.symbols import Symbols, build_id

Found = dict[int, dict[int, SymbolDefinition]]
"""process -> address -> symbol"""


def complete_symbols(recording: Recording) -> list[str]:
    """Resolves kernel addresses without a symbol through libraries with the recorded build-ids.

    What is found is added to `recording.definitions.symbols` and, once nothing has the file open
    for writing any more, to the file. Returns why addresses remain unresolved, a line each.
    """
    found, why = _resolve(recording)
    for process, symbols in found.items():
        recording.definitions.symbols[process].update(symbols)
    if found and not recording.losses.missing_bytes:
        _append(recording, found)
    return why


def _resolve(recording: Recording) -> tuple[Found, list[str]]:
    definitions = recording.definitions
    found: Found = {}
    why: dict[str, None] = {}
    libraries = _LibraryCache()
    for process, hops in definitions.hops.items():
        wanted = {hop.kernel_address for hop in hops.values() if not hop.python_kernel} - {0}
        for owner in definitions.lineage(process):
            wanted -= definitions.symbols.get(owner, {}).keys()
        by_library: defaultdict[int, list[int]] = defaultdict(list)
        loaded = _loaded_libraries(definitions, process)
        for address in sorted(wanted):
            for number, library in enumerate(loaded):
                if library["base"] <= address < library["end"]:
                    by_library[number].append(address)
                    break
            else:
                why[f"process {process} has kernel functions outside its recorded libraries"] = None
        for number, addresses in by_library.items():
            library = loaded[number]
            symbols = libraries.symbols(library, why)
            if symbols is None:
                continue
            base = library["base"]
            names = symbols.lookup(address - base for address in addresses)
            found.setdefault(process, {}).update(
                (address, SymbolDefinition(offset, name, library["path"]))
                for address, (name, offset) in zip(addresses, names, strict=True)
            )
    return found, list(why)


def _loaded_libraries(definitions: Definitions, process: int) -> list[dict[str, Any]]:
    types = {"path": str, "base": int, "end": int, "build_id": str}
    for owner in definitions.lineage(process):
        libraries = definitions.documents.get(owner, {}).get("libraries")
        if isinstance(libraries, list):
            return [
                library
                for library in libraries
                if isinstance(library, dict)
                and all(isinstance(library.get(name), kind) for name, kind in types.items())
            ]
    return []


def library_offset(definitions: Definitions, process: int, address: int) -> str:
    """`libname+0xoffset`, or the bare address where no library was loaded."""
    for library in _loaded_libraries(definitions, process):
        if library["base"] <= address < library["end"]:
            return f"{os.path.basename(library['path'])}+{address - library['base']:#x}"
    return f"{address:#x}"


class _LibraryCache:
    def __init__(self) -> None:
        self._symbols: dict[tuple[str, str], Symbols | None] = {}

    def symbols(self, library: dict[str, Any], why: dict[str, None]) -> Symbols | None:
        key = library["path"], library["build_id"]
        if key not in self._symbols:
            self._symbols[key] = self._open(*key, why)
        return self._symbols[key]

    def _open(self, path: str, wanted: str, why: dict[str, None]) -> Symbols | None:
        name = os.path.basename(path)
        try:
            if not wanted or build_id(path) != wanted:
                why[f"{name} on this machine is another build than the recorded one"] = None
                return None
            return Symbols(path)
        except (OSError, ValueError):
            why[f"{name} cannot be read on this machine"] = None
            return None


def _append(recording: Recording, found: Found) -> None:
    """Adds the symbols as chunks of definitions; does nothing where the file may not change."""
    try:
        descriptor = os.open(recording.path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        data = os.pread(descriptor, fmt.FILE_HEADER.size, 0)
        header = fmt.FileHeader(*fmt.FILE_HEADER.unpack(data))
        if _is_being_written(descriptor) or header != recording.header:
            return
        offset = max(os.fstat(descriptor).st_size, recording.end)
        offset = -(-offset // fmt.CHUNK_ALIGNMENT) * fmt.CHUNK_ALIGNMENT
        for process, symbols in found.items():
            chunk = _chunk(recording, process, symbols)
            if os.pwrite(descriptor, chunk, offset) != len(chunk):
                return
            offset += len(chunk)
        os.pwrite(descriptor, struct.pack("<Q", offset), fmt.NEXT_CHUNK_OFFSET)
    except OSError:
        return
    finally:
        os.close(descriptor)


def _is_being_written(descriptor: int) -> bool:
    """Whether another process has the file open: only then is a write lease refused.

    Process ids would not tell, since the recording may run in a container.
    """
    try:
        # Somebody who opens the file just now would have the kernel send SIGIO, which kills.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return True
    return False


def _chunk(recording: Recording, process: int, symbols: dict[int, SymbolDefinition]) -> bytes:
    records = [
        fmt.pack_definition(
            fmt.SYMBOL,
            0,
            struct.pack("<2Q", address, definition.offset)
            + fmt.pack_string(definition.symbol)
            + fmt.pack_string(definition.library),
        )
        for address, definition in symbols.items()
    ]
    header = fmt.ChunkHeader(
        magic=fmt.CHUNK_MAGIC,
        capacity=0,
        used=0,
        stream=fmt.DEFINITIONS,
        flags=0,
        process=process,
        pid=recording.pids.get(process, 0),
        lane=fmt.PROCESS_LANE,
        sequence=0,
        thread=0,
        epoch=0,
        depth=0,
        reserved=0,
        ticks=0,
        check=0,
        reserved2=0,
    )
    return fmt.pack_chunk(header, b"".join(records))
