"""Names the functions of a recording whose process was killed before it could.

Those are the kernel functions of hops, and what the program counters of native stacks are in.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections import defaultdict

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.contents import Contents
from tracer.trace.bytes.definitions import Definitions, SymbolDefinition
from tracer.trace.bytes.leases import is_open_elsewhere
from tracer.trace.names.libraries import Libraries
from tracer.trace.names.symbols import Symbols, build_id

Found = dict[int, dict[int, SymbolDefinition]]
"""process -> address -> symbol"""


def complete_symbols(recording: Contents) -> list[str]:
    """Resolves addresses without a symbol through libraries with the recorded build-ids.

    What is found is added to `recording.definitions.symbols` and, once nothing has the file open
    for writing any more, to the file, unless that is packed. Returns why kernel functions remain
    unresolved, a line each.
    """
    found, why = resolve_symbols(recording.definitions)
    for process, symbols in found.items():
        recording.definitions.symbols[process].update(symbols)
    if found and not recording.packed and not recording.losses.missing_bytes:
        _append(recording, found)
    return why


def resolve_symbols(definitions: Definitions) -> tuple[Found, list[str]]:
    """What the libraries on this machine say of addresses without a symbol, and why some remain."""
    found: Found = {}
    why: dict[str, None] = {}
    cache = _LibraryCache()
    libraries = Libraries(definitions)
    counters = _program_counters(definitions)
    for process in definitions.hops.keys() | counters.keys():
        hops = definitions.hops.get(process, {})
        kernels = {hop.kernel_address for hop in hops.values() if not hop.python_kernel} - {0}
        unknown = {
            address
            for address in kernels | counters.get(process, set())
            if not definitions.symbol(process, address)
        }
        loaded = libraries.of(process)
        by_library: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        for address in sorted(unknown):
            if library := loaded.find(address):
                place = address - library["base"], address
                by_library[library["path"], library["build_id"]].append(place)
            elif address in kernels:
                why[f"process {process} has kernel functions outside its recorded libraries"] = None
        for (path, build), places in by_library.items():
            symbols = cache.symbols(path, build, why)
            if symbols is None:
                continue
            names = symbols.lookup(offset for offset, _ in places)
            found.setdefault(process, {}).update(
                (address, SymbolDefinition(offset, name, path))
                for (_, address), (name, offset) in zip(places, names, strict=True)
            )
    return found, list(why)


def _program_counters(definitions: Definitions) -> dict[int, set[int]]:
    """Those of the stacks of each process."""
    counters: dict[int, set[int]] = {}
    for (process, _), stacks in definitions.stacks.items():
        counters.setdefault(process, set()).update(*stacks.values())
    return counters


class _LibraryCache:
    def __init__(self) -> None:
        self._symbols: dict[tuple[str, str], Symbols | None] = {}

    def symbols(self, path: str, build: str, why: dict[str, None]) -> Symbols | None:
        if (path, build) not in self._symbols:
            self._symbols[path, build] = self._open(path, build, why)
        return self._symbols[path, build]

    def _open(self, path: str, wanted: str, why: dict[str, None]) -> Symbols | None:
        name = os.path.basename(path)
        try:
            if not wanted or build_id(path) != wanted:
                why[f"{name} on this machine is a different build than the recorded one"] = None
                return None
            return Symbols(path)
        except (OSError, ValueError):
            why[f"cannot read {name} on this machine"] = None
            return None


def _append(recording: Contents, found: Found) -> None:
    """Adds the symbols as chunks of definitions; does nothing where the file may not change."""
    try:
        descriptor = os.open(recording.path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        data = os.pread(descriptor, fmt.FILE_HEADER.size, 0)
        header = fmt.unpack_file_header(data)
        if is_open_elsewhere(descriptor) or header != recording.header:
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


def _chunk(recording: Contents, process: int, symbols: dict[int, SymbolDefinition]) -> bytes:
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
