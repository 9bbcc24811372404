"""One breakpoint at all at::_ops::X::call and ::redispatch.

Thousands of breakpoints cost gdb seconds each time they are switched on or off. One with thousands of
places costs a millisecond, and gdb makes such a one for a static probe (SystemTap's) that is at many
places. So the places are written as probes into a file of symbols that holds nothing else.
"""

import os
import struct

import gdb

_PROBE = b"tracer\0hop\0\0"  # provider, name, no arguments
_PROGRAM_DATA, _STRINGS, _NOTE = 1, 3, 7  # kinds of sections
_SHARED, _X86_64, _NOTE_OF_PROBE = 3, 62, 3
_HEADER, _SECTION = 64, 64  # bytes


def of_offsets(debugger, offsets, folder):
    """The Hops at {library: offsets in it}, of the libraries that are loaded."""
    bases = {library: debugger.place.backtraces.base(library) for library in offsets}
    return Hops(
        [bases[library] + at for library in offsets if bases[library] for at in offsets[library]], folder
    )


class Hops(gdb.Breakpoint):
    """Stops the thread that waits for its next hop; disabled while none does."""

    def __init__(self, addresses, folder):
        self.watched = len(addresses)
        path = os.path.join(folder, "hops.probes")
        with open(path, "wb") as file:
            file.write(_symbol_file(addresses))
        gdb.execute("add-symbol-file " + path, to_string=True)
        super().__init__("-probe-stap tracer:hop", internal=True)
        self.silent = True
        self.enabled = False
        self.reached = False
        self._thread = None

    def stop(self):
        self.reached = gdb.selected_thread().ptid == self._thread
        return self.reached

    def __enter__(self):
        """The breakpoint is on, for the selected thread alone."""
        self._thread = gdb.selected_thread().ptid
        self.reached = False
        self.enabled = True
        return self

    def __exit__(self, *_):
        self.enabled = False


def _symbol_file(addresses):
    """An ELF file whose only contents are probes at absolute addresses."""
    names = b"\0.note.stapsdt\0.stapsdt.base\0.shstrtab\0"
    notes = b"".join(map(_note, addresses))
    contents = [
        (b".note.stapsdt", _NOTE, notes),
        (b".stapsdt.base", _PROGRAM_DATA, b"\0"),
        (b".shstrtab", _STRINGS, names),
    ]
    body, sections = b"", bytes(_SECTION)
    for name, kind, data in contents:
        place = names.index(name), kind, 0, 0, _HEADER + len(body), len(data), 0, 0, 4, 0
        sections += struct.pack("<IIQQQQIIQQ", *place)
        body += data + bytes(-len(data) % 8)
    identity = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    numbers = _SHARED, _X86_64, 1, 0, 0, _HEADER + len(body), 0, _HEADER, 56, 0, _SECTION, 4, 3
    return identity + struct.pack("<HHIQQQIHHHHHH", *numbers) + body + sections


def _note(address):
    description = struct.pack("<3Q", address, 0, 0) + _PROBE
    note = struct.pack("<3I", 8, len(description), _NOTE_OF_PROBE) + b"stapsdt\0" + description
    return note + bytes(-len(note) % 4)
