"""Each text of a trace: those of its definitions, and the values and keys of its documents."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from typing import Any

from tracer.trace.bytes import format as fmt

FIELDS: dict[int, tuple[str, tuple[str, ...]]] = {
    fmt.PROCESS: ("4I", ("command",)),
    fmt.THREAD_NAME: ("IQ", ("thread",)),
    fmt.STRING: ("I", ("string",)),
    fmt.HOP: ("3I2Q", ("op", "key", "registered_at", "rule", "python_kernel")),
    fmt.SOURCE_LINE: ("2I", ("file", "function")),
    fmt.SYMBOL: ("2Q", ("symbol", "library")),
    fmt.FUNCTION: ("2I", ("function", "layout")),
    fmt.ENUMERATION: ("", ("type", "values")),
    fmt.GPU: ("I", ("gpu", "facts")),
    fmt.MODULE_PATH: ("I", ("names", "root")),
    fmt.KEYS_OF_THREAD: ("I2Q", ("modes",)),
}
"""The numbers before the texts of each kind of definition, and the names of the texts"""
WITHOUT = {fmt.STACK, fmt.GRAPH_NODE, fmt.PYTHON_STACK}
Record = tuple[int, int, bytes]
"""Kind, ticks, body"""
Change = Callable[[str, str], str]
"""From the place of a text, as `hop.op` or `environment.argv[]`, and the text to another text"""


def changed(data: bytes, change: Change) -> bytes:
    """The trace with other texts."""
    return _with_records(data, lambda record: _definition(record, change))


def with_documents(data: bytes, change: Callable[[Any], Any]) -> bytes:
    """The trace with other documents."""

    def other(record: Record) -> bytes:
        kind, ticks, body = record
        if kind == fmt.JSON:
            name, at = _text(body, 0)
            document = json.loads(zlib.decompressobj().decompress(body[at + 4 :]))
            body = _packed(name, change(document))
        return fmt.pack_definition(kind, ticks, body)

    return _with_records(data, other)


def _with_records(data: bytes, other: Callable[[Record], bytes]) -> bytes:
    head = int.from_bytes(data[12:16], "little")
    made, at = [data[:head]], head
    while at + fmt.CHUNK_HEADER.size <= len(data):
        header = fmt.ChunkHeader(*fmt.CHUNK_HEADER.unpack_from(data, at))
        body = data[at + fmt.CHUNK_HEADER.size : at + (header.used or header.capacity)]
        if header.stream == fmt.DEFINITIONS:
            body = b"".join(map(other, _records(body)))
            made.append(fmt.pack_chunk(header, body))
        else:
            made.append(data[at : at + header.capacity])
        at += header.capacity
    whole = bytearray(b"".join(made))
    struct.pack_into("<Q", whole, fmt.NEXT_CHUNK_OFFSET, len(whole))
    return bytes(whole)


def places(data: bytes) -> list[str]:
    """Of all texts, without repetition."""
    found: dict[str, None] = {}

    def note(place: str, text: str) -> str:
        found[place] = None
        return text

    changed(data, note)
    return list(found)


def _records(body: bytes) -> list[Record]:
    found, at = [], 0
    while at + fmt.DEFINITION_HEAD.size <= len(body):
        size, kind, _, ticks = fmt.DEFINITION_HEAD.unpack_from(body, at)
        if size < fmt.DEFINITION_HEAD.size:
            break
        found.append((kind, ticks, body[at + fmt.DEFINITION_HEAD.size : at + size]))
        at += size
    return found


def _definition(record: Record, change: Change) -> bytes:
    kind, ticks, body = record
    if kind == fmt.JSON:
        body = _document(body, change)
    elif kind == fmt.SIGNATURE:
        body = _signature(body, change)
    elif kind not in WITHOUT:
        layout, names = FIELDS[kind]
        at = struct.calcsize("<" + layout)
        made = [body[:at]]
        for name in names:
            text, at = _text(body, at)
            made.append(fmt.pack_string(change(f"{kind}.{name}", text)))
        body = b"".join(made)
    return fmt.pack_definition(kind, ticks, body)


def _text(body: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from("<I", body, at)
    return body[at + 4 : at + 4 + size].decode("utf-8", "replace"), at + 4 + size


def _signature(body: bytes, change: Change) -> bytes:
    (count,) = struct.unpack_from("<I", body, 4)
    at = 8
    for _ in range(count & ~fmt.CUT_LISTS):
        _, dimensions, _, _, _, _, flags, _ = fmt.TENSOR_HEAD.unpack_from(body, at)
        numbers = dimensions * (2 if flags & fmt.HAS_STRIDES else 1) if dimensions != 255 else 0
        at += fmt.TENSOR_HEAD.size + 8 * numbers
    if count & fmt.CUT_LISTS:
        at += 4 + 6 * struct.unpack_from("<I", body, at)[0]
    made = [body[:at]]
    if len(body) - at >= 4:
        (count,) = struct.unpack_from("<I", body, at)
        made.append(body[at : at + 4])
        at += 4
        for _ in range(count):
            made.append(body[at : at + 2])
            text, at = _text(body, at + 2)
            made.append(fmt.pack_string(json.dumps(_json(json.loads(text), "scalar", change))))
    return b"".join(made)


def _document(body: bytes, change: Change) -> bytes:
    name, at = _text(body, 0)
    document = json.loads(zlib.decompressobj().decompress(body[at + 4 :]))
    return _packed(change("document", name), _json(document, name, change))


def _packed(name: str, document: Any) -> bytes:
    content = zlib.compress(json.dumps(document).encode())
    return fmt.pack_string(name) + struct.pack("<I", len(content)) + content


def _json(value: Any, place: str, change: Change) -> Any:
    if isinstance(value, str):
        return change(place, value)
    if isinstance(value, list):
        return [_json(each, f"{place}[]", change) for each in value]
    if isinstance(value, dict):
        return {
            change(f"{place}{{{name}}}", name): _json(each, f"{place}.{name}", change)
            for name, each in value.items()
        }
    return value
