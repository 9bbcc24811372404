"""Names the functions of a recording whose process was killed before it could.

Those are the kernel functions of hops, and what the program counters of native stacks are in.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tracer.base.elf import Elf
from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.contents import Contents
from tracer.trace.bytes.definitions import Definitions, SymbolDefinition
from tracer.trace.bytes.leases import is_open_elsewhere
from tracer.trace.names.libraries import Libraries
from tracer.trace.names.symbols import Symbols

Found = dict[int, dict[int, SymbolDefinition]]
"""process -> address -> symbol"""
_Library = tuple[str, str]
"""Path, build-id"""
_MOST_LIBRARIES = 512
_MOST_SYMBOLS = 1 << 24
"""In all libraries; libtorch_cpu has 530,000"""
_MOST_TEXTS = 64 << 20
"""Characters of names and paths, which are added to the trace"""


class _Place(NamedTuple):
    offset: int
    process: int
    address: int


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
    wanted: defaultdict[_Library, list[_Place]] = defaultdict(list)
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
        for address in sorted(unknown):
            if library := loaded.find(address):
                place = _Place(address - library["base"], process, address)
                wanted[library["path"], library["build_id"]].append(place)
            elif address in kernels:
                why[f"process {process} has kernel functions outside its recorded libraries"] = None
    for place, symbol in _looked_up(wanted, why):
        found.setdefault(place.process, {})[place.address] = symbol
    return found, list(why)


def _program_counters(definitions: Definitions) -> dict[int, set[int]]:
    """Those of the stacks of each process."""
    counters: dict[int, set[int]] = {}
    for (process, _), stacks in definitions.stacks.items():
        counters.setdefault(process, set()).update(*stacks.values())
    return counters


def _looked_up(
    wanted: Mapping[_Library, list[_Place]], why: dict[str, None]
) -> Iterator[tuple[_Place, SymbolDefinition]]:
    """The symbols at the places in each library, as long as their texts are in bounds.

    A trace may name one file in a thousand spellings. Each is read once, and only one is held at a time.
    """
    symbols, texts = _MOST_SYMBOLS, _MOST_TEXTS
    for (path, build), spellings in _by_file(wanted, why).items():
        name = os.path.basename(path)
        try:
            library = Elf(path)
            if not build or library.build_id != build:
                why[f"{name} on this machine is a different build than the recorded one"] = None
                continue
            known = Symbols(library, symbols)
            symbols -= known.count
            places = [(place, spelling) for spelling in spellings for place in wanted[spelling, build]]
            for (place, spelling), found in zip(
                places, known.lookup(place.offset for place, _ in places), strict=True
            ):
                texts -= len(found[0]) + len(spelling)
                if texts < 0:
                    why[f"the names of the functions have more than {_MOST_TEXTS >> 20} MiB"] = None
                    return
                yield place, SymbolDefinition(found[1], found[0], spelling)
        except (OSError, ValueError):
            why[f"cannot read {name} on this machine"] = None


def _by_file(wanted: Iterable[_Library], why: dict[str, None]) -> dict[_Library, list[str]]:
    """(a path, build-id) of each file -> the paths that the trace has for it."""
    known: dict[tuple[int, int, str], list[str]] = {}
    for number, (path, build) in enumerate(wanted):
        try:
            # A relative path named a file of the folder where the script ran, and not of this one.
            if number >= _MOST_LIBRARIES or not os.path.isabs(path):
                raise OSError
            facts = os.stat(path)
            known.setdefault((facts.st_dev, facts.st_ino, build), []).append(path)
        except (OSError, ValueError):
            why[f"cannot read {os.path.basename(path)} on this machine"] = None
    return {(paths[0], build): paths for (*_, build), paths in known.items()}


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
