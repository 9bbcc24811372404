"""Writes small ELF libraries with the sections that name functions."""

from __future__ import annotations

import struct
from pathlib import Path

FUNCTION = 2
OBJECT = 1


def write_library(
    path: Path, symbols: list[tuple[str, int, int, int]], build_id: str = "", table: str = ".symtab"
) -> Path:
    """`symbols`: (name, address, size, type); a section number of 0 (undefined) for address 0."""
    strings = bytearray(b"\0")
    entries = bytearray(24)
    for name, address, size, kind in symbols:
        section = 1 if address else 0
        entries += struct.pack("<IBBHQQ", len(strings), 0x10 | kind, 0, section, address, size)
        strings += name.encode() + b"\0"
    identifier = bytes.fromhex(build_id)
    note = struct.pack("<3I4s", 4, len(identifier), 3, b"GNU\0") + identifier
    names = {"": 0}
    section_names = bytearray(b"\0")
    sections = [
        ("", 0, b"", 0, 0),
        (table, 2 if table == ".symtab" else 11, bytes(entries), 2, 24),
        (".strtab", 3, bytes(strings), 0, 0),
        (".note.gnu.build-id", 7, note if build_id else b"", 0, 0),
    ]
    for name in (*(section[0] for section in sections[1:]), ".shstrtab"):
        names[name] = len(section_names)
        section_names += name.encode() + b"\0"
    sections.append((".shstrtab", 3, bytes(section_names), 0, 0))
    body = bytearray(64)
    headers = bytearray()
    for name, kind, data, link, entry_size in sections:
        body += bytes(-len(body) % 8)
        headers += struct.pack(
            "<IIQQQQIIQQ", names[name], kind, 0, 0, len(body), len(data), link, 0, 8, entry_size
        )
        body += data
    body += bytes(-len(body) % 8)
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    body[:64] = ident + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, len(body), 0, 64, 0, 0, 64, len(sections), len(sections) - 1
    )
    path.write_bytes(bytes(body + headers))
    return path
