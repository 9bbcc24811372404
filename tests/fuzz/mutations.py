"""Damaged and hostile traces, made from good ones. A seed and a number make the same trace everywhere."""

from __future__ import annotations

import copy
import json
import lzma
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tracer.trace.bytes import format as fmt

NUMBERS = (
    *(0, 1, 2, 3, 7, 64, 255, 4096, 1 << 20, 1 << 31, 1 << 40, 1 << 58, 1 << 62, 1 << 63),
    *((1 << 31) - 1, (1 << 32) - 1, (1 << 32) - 2, (1 << 63) - 1, (1 << 64) - 1),
)
NAMES = (
    "",
    "\x1b]0;title\x07\x1b[1A\x1b[2Kcomplete: 0 hops",
    "a\n```\n\n# INJECTED\n\n<img src=x onerror=alert(1)>\n\n[link](javascript:alert(1))\n",
    "``` `` <script>alert(1)</script> \\|<img src=x> | --- | ---",
    "words " * 15 + "# INJECTED " * 4 + "<div onclick=x> " * 4 + "\r\n# INJECTED\r\n",
    "\u202egnp.exe\u2066\u200b\ufeff\x85\u2028\x00\x7f\x9b31m",
    "</summary></details><h1>INJECTED</h1>",
    "_Z1f1AIiiE" + "".join(f"S_IS{c}_S{c}_E" for c in "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    "f<&" * 3000,
    "n" * (1 << 20),
    "Optimizer.step#SGD.step",
    "[red]a[/] {{ 7*7 }} %s {0} \\",
)
JUNK: tuple[Any, ...] = (
    *(None, True, -1, 0, 1 << 70, -(1 << 70), 1e308, float("nan"), float("inf"), 3.5),
    *("", "9" * 5000, "\ud800", *NAMES[1:6]),
    *([], {}, [[]], {"a": {}}, [1, 2], ["x"], {"": None}, [None], {"\x1b[2J": "\n# INJECTED"}),
)
Random = random.Random
Part = tuple[fmt.ChunkHeader, bytes]
Record = tuple[int, int, bytes]
"""Kind, ticks, body"""


@dataclass(frozen=True)
class Base:
    """A good trace: its header page and its chunks."""

    name: str
    data: bytes

    def parts(self) -> list[Part]:
        found, at = [], int.from_bytes(self.data[12:16], "little")
        while at + fmt.CHUNK_HEADER.size <= len(self.data):
            header = fmt.ChunkHeader(*fmt.CHUNK_HEADER.unpack_from(self.data, at))
            if header.magic != fmt.CHUNK_MAGIC or not fmt.CHUNK_HEADER.size <= header.capacity:
                break
            body = self.data[at + fmt.CHUNK_HEADER.size : at + (header.used or header.capacity)]
            found.append((header, body))
            at += header.capacity
        return found


def read_base(name: str, data: bytes) -> Base:
    return Base(name, lzma.decompress(data) if data.startswith(b"\xfd7zXZ") else data)


def mutated(bases: list[Base], seed: int, number: int) -> tuple[str, bytes]:
    """The case of this number: what was done, and the file."""
    rng = Random(f"{seed}/{number}")
    kind = rng.choice(_KINDS)
    return kind, _MUTATIONS[kind](rng.choice(bases), bases, rng)


# ---- the bytes of a file ---------------------------------------------------------------------------


def _flips(base: Base, _: list[Base], rng: Random) -> bytes:
    data = bytearray(base.data)
    for _number in range(rng.choice([1, 3, 20, 200])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _stretches(base: Base, _: list[Base], rng: Random) -> bytes:
    """Zeros, ones or noise in the place of some bytes."""
    data = bytearray(base.data)
    for _number in range(rng.choice([1, 3, 10])):
        size, at = rng.choice([4, 8, 64, 512, 4096]), rng.randrange(len(data)) // 4 * 4
        size = min(size, len(data) - at)
        data[at : at + size] = rng.choice([bytes(size), b"\xff" * size, rng.randbytes(size)])
    return bytes(data)


def _cut(base: Base, _: list[Base], rng: Random) -> bytes:
    return base.data[: rng.randrange(len(base.data))]


def _shuffled(base: Base, _: list[Base], rng: Random) -> bytes:
    size = rng.choice([8, 64, 512, 4096])
    blocks = [base.data[at : at + size] for at in range(fmt.HEADER_BYTES, len(base.data), size)]
    for _number in range(rng.choice([1, 5, 50])):
        one, other = rng.randrange(len(blocks)), rng.randrange(len(blocks))
        blocks[one], blocks[other] = blocks[other], blocks[one]
    return base.data[: fmt.HEADER_BYTES] + b"".join(blocks)


def _concatenated(base: Base, bases: list[Base], rng: Random) -> bytes:
    return base.data + rng.choice(bases).data[rng.choice([0, fmt.HEADER_BYTES]) :]


def _moved(base: Base, _: list[Base], rng: Random) -> bytes:
    """Bytes that were put in or left out."""
    at = rng.randrange(len(base.data))
    if rng.random() < 0.5:
        return base.data[:at] + rng.randbytes(rng.choice([1, 4, 8, 64])) + base.data[at:]
    return base.data[:at] + base.data[at + rng.choice([1, 4, 8, 64, 4096]) :]


def _packed(base: Base, bases: list[Base], rng: Random) -> bytes:
    data = bytearray(lzma.compress(base.data, preset=0))
    how = rng.choice(["flip", "cut", "zeros", "twice", "moved", "whole"])
    at = rng.randrange(6, len(data))
    if how == "flip":
        for _number in range(rng.choice([1, 3, 30])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == "cut":
        del data[at:]
    elif how == "zeros":
        data[at : at + 16] = bytes(len(data[at : at + 16]))
    elif how == "twice":
        data += data[at:]
    elif how == "moved":
        data[at:at] = bytes(8)
    else:
        data = bytearray(lzma.compress(_words(base, bases, rng), preset=0))
    return bytes(data)


# ---- one field ---------------------------------------------------------------------------------------

_FILE_FIELDS = {12: 4, 32: 8, 84: 4, 88: 4, 112: 8, 120: 4, 124: 4, 128: 8}
"""Offset and size: of where chunks are, of processes, and of a ring"""
_CHUNK_FIELDS = {
    "capacity": 4,
    "used": 8,
    "stream": 12,
    "process": 16,
    "lane": 24,
    "sequence": 28,
    "epoch": 36,
    "depth": 40,
}


def changed_field(data: bytes, rng: Random) -> tuple[int, bytes]:
    """Where a field of a header, a head of a definition, a length or an event is, and other bytes for it."""
    chunks = list(chunks_of(data))
    definitions = [chunk for chunk in chunks if chunk[1].stream == fmt.DEFINITIONS]
    hops = [chunk for chunk in chunks if chunk[1].stream == fmt.HOPS]
    kinds = ["file", *["chunk"] * 3 * bool(chunks), *["event"] * bool(hops)]
    kind = rng.choice([*kinds, *["head", "length", "length"] * bool(definitions)])
    if kind == "file":
        at, size = rng.choice(list(_FILE_FIELDS.items()))
        return at, _other(data, at, size, rng)
    if kind == "chunk":
        return _changed_header(data, *rng.choice(chunks), rng)
    if kind == "event":
        return _changed_event(data, *rng.choice(hops), rng)
    return _changed_definition(data, *rng.choice(definitions), kind == "length", rng)


def chunks_of(data: bytes) -> Iterator[tuple[int, fmt.ChunkHeader]]:
    """Where each chunk is, and its header."""
    at = int.from_bytes(data[12:16], "little")
    while at + fmt.CHUNK_HEADER.size <= len(data):
        header = fmt.ChunkHeader(*fmt.CHUNK_HEADER.unpack_from(data, at))
        whole = header.magic == fmt.CHUNK_MAGIC and fmt.CHUNK_HEADER.size <= header.capacity
        if whole:
            yield at, header
        at += header.capacity if whole else 4096


def _changed_header(data: bytes, at: int, header: fmt.ChunkHeader, rng: Random) -> tuple[int, bytes]:
    name = rng.choice(["capacity", "used", "used", *_CHUNK_FIELDS])
    other = _other(data, at + _CHUNK_FIELDS[name], 2 if name == "stream" else 4, rng)
    header = header._replace(**{name: int.from_bytes(other, "little")})
    return at, fmt.CHUNK_HEADER.pack(*header._replace(check=header.computed_check()))


def _changed_event(data: bytes, at: int, header: fmt.ChunkHeader, rng: Random) -> tuple[int, bytes]:
    begin, end = at + fmt.CHUNK_HEADER.size, min(at + (header.used or header.capacity), len(data))
    heads = [place for place in range(begin, end - 7, 8) if data[place + 7] & 0x80]
    place = rng.choice(heads or [begin])
    return place, _other(data, place, 8, rng)


def _changed_definition(
    data: bytes, at: int, header: fmt.ChunkHeader, length: bool, rng: Random
) -> tuple[int, bytes]:
    place = at + fmt.CHUNK_HEADER.size
    records = records_of(data[place : at + (header.used or header.capacity)])
    chosen = rng.randrange(len(records) or 1)
    place += sum(len(fmt.pack_definition(*record)) for record in records[:chosen])
    if length and records:
        place += fmt.DEFINITION_HEAD.size + _TEXT_OFFSETS.get(records[chosen][0], 0)
        return place, _other(data, place, 4, rng)
    offset, size = rng.choice([(0, 4), (0, 4), (4, 2), (6, 2)])
    return place + offset, _other(data, place + offset, size, rng)


def _other(data: bytes, at: int, size: int, rng: Random) -> bytes:
    number = int.from_bytes(data[at : at + size], "little")
    near = [number + step for step in (-64, -8, -1, 1, 8, 64, 1 << 20)] + [number * 2, number // 2]
    bits = 8 * size
    other = rng.choice([rng.choice(NUMBERS), rng.choice(near), number ^ 1 << rng.randrange(bits)])
    return (other & (1 << bits) - 1).to_bytes(size, "little")


def _fields(base: Base, _: list[Base], rng: Random) -> bytes:
    data = bytearray(base.data)
    for _number in range(rng.choice([1, 1, 1, 3, 10])):
        at, other = changed_field(bytes(data), rng)
        data[at : at + len(other)] = other[: len(data) - at]
    return bytes(data)


# ---- the parts of a trace --------------------------------------------------------------------------


def _put_together(head: bytes, parts: list[Part], rng: Random) -> bytes:
    data = bytearray(head + b"".join(fmt.pack_chunk(header, body) for header, body in parts))
    if rng.random() < 0.7:
        at = fmt.NEXT_CHUNK_OFFSET
        data[at : at + 8] = len(data).to_bytes(8, "little")
    return bytes(data)


def _head(base: Base) -> bytes:
    return base.data[: int.from_bytes(base.data[12:16], "little")]


def _header(base: Base, _: list[Base], rng: Random) -> bytes:
    data = bytearray(base.data)
    for _number in range(rng.choice([1, 1, 3])):
        size = rng.choice([4, 8])
        at = rng.randrange(8, 176) // size * size
        data[at : at + size] = (rng.choice(NUMBERS) & (1 << 8 * size) - 1).to_bytes(size, "little")
    return bytes(data)


def _framing(base: Base, _: list[Base], rng: Random) -> bytes:
    """Chunks that say something else of themselves, are missing, twice there, or in another order."""
    parts = base.parts()
    for _number in range(rng.choice([1, 1, 4])):
        how, at = (
            rng.choice(["field", "field", "field", "drop", "twice", "shuffle"]),
            rng.randrange(len(parts)),
        )
        header, body = parts[at]
        if how == "field":
            name = rng.choice(["stream", "process", "pid", "lane", "sequence", "thread", "depth", "ticks"])
            bits = {"stream": 16, "ticks": 64}.get(name, 32)
            parts[at] = header._replace(**{name: rng.choice(NUMBERS) & (1 << bits) - 1}), body
        elif how == "drop" and len(parts) > 1:
            del parts[at]
        elif how == "twice":
            parts.insert(rng.randrange(len(parts) + 1), (header, body))
        else:
            rng.shuffle(parts)
    return _put_together(_head(base), parts, rng)


def _words(base: Base, _: list[Base], rng: Random) -> bytes:
    """Words of hops and activities."""
    parts = base.parts()
    streams = [at for at, (header, body) in enumerate(parts) if header.stream != fmt.DEFINITIONS and body]
    at = rng.choice(streams)
    header, body = parts[at]
    data = bytearray(body[: len(body) // 8 * 8])
    for _number in range(rng.choice([1, 1, 2, 5, 30])):
        place = rng.randrange(len(data) // 8) * 8
        word = int.from_bytes(data[place : place + 8], "little")
        changed = rng.choice(
            [
                rng.choice(NUMBERS),
                word ^ 1 << rng.randrange(64),
                word & ~(15 << 59) | rng.randrange(16) << 59,
                rng.getrandbits(64),
            ]
        )
        data[place : place + 8] = changed.to_bytes(8, "little")
    parts[at] = header, bytes(data)
    return _put_together(_head(base), parts, rng)


def records_of(body: bytes) -> list[Record]:
    found, at = [], 0
    while at + fmt.DEFINITION_HEAD.size <= len(body):
        size, kind, magic, ticks = fmt.DEFINITION_HEAD.unpack_from(body, at)
        if magic != fmt.DEFINITION_MAGIC or size < fmt.DEFINITION_HEAD.size or at + size > len(body):
            break
        found.append((kind, ticks, body[at + fmt.DEFINITION_HEAD.size : at + size]))
        at += size
    return found


Change = Callable[[int, bytes, Random], tuple[int, bytes]]
"""From the kind and body of a record to others"""


def _with_records(base: Base, rng: Random, wanted: Callable[[int], bool], change: Change, most: int) -> bytes:
    """The trace with up to `most` of its wanted records changed."""
    parts = base.parts()
    every = [
        (part, place)
        for part, (header, body) in enumerate(parts)
        if header.stream == fmt.DEFINITIONS
        for place, (kind, _, _) in enumerate(records_of(body))
        if wanted(kind)
    ]
    chosen = rng.sample(every, min(most, len(every)))
    for part in {part for part, _ in chosen}:
        header, body = parts[part]
        records = records_of(body)
        for place in [place for of, place in chosen if of == part]:
            kind, ticks, content = records[place]
            kind, content = change(kind, content, rng)
            records[place] = kind, ticks, content
        parts[part] = header, b"".join(fmt.pack_definition(*record) for record in records)
    return _put_together(_head(base), parts, rng)


def _definitions(base: Base, _: list[Base], rng: Random) -> bytes:
    def change(kind: int, body: bytes, rng: Random) -> tuple[int, bytes]:
        data = bytearray(body)
        for _number in range(rng.choice([1, 1, 2, 4])):
            if data:
                at, size = rng.randrange(len(data)), rng.choice([1, 1, 4, 8])
                number = rng.choice([*NUMBERS, rng.getrandbits(64)]) & (1 << 8 * size) - 1
                data[at : at + size] = number.to_bytes(size, "little")[: len(data) - at]
        return (rng.randrange(20) if rng.random() < 0.1 else kind), bytes(data)

    return _with_records(base, rng, lambda kind: kind != fmt.JSON, change, rng.choice([1, 3, 10]))


_TEXT_OFFSETS = {
    fmt.PROCESS: 16,
    fmt.THREAD_NAME: 12,
    fmt.STRING: 4,
    fmt.HOP: 28,
    fmt.SOURCE_LINE: 8,
    fmt.SYMBOL: 16,
    fmt.FUNCTION: 8,
    fmt.ENUMERATION: 0,
    fmt.GPU: 4,
    fmt.MODULE_PATH: 4,
}
"""Where the texts of a definition begin"""


def _names(base: Base, _: list[Base], rng: Random) -> bytes:
    """Hostile texts in the place of names."""

    def change(kind: int, body: bytes, rng: Random) -> tuple[int, bytes]:
        at = _TEXT_OFFSETS[kind]
        head, texts = body[:at], []
        while at + 4 <= len(body):
            (size,) = struct.unpack_from("<I", body, at)
            texts.append(body[at + 4 : at + 4 + size].decode("utf-8", "replace"))
            at += 4 + size
            if (kind != fmt.HOP and len(texts) == 2) or len(texts) == 5:
                break
        name = rng.choice(NAMES)
        place = rng.randrange(len(texts))
        texts[place] = rng.choice([name, texts[place] + name, name + texts[place]])
        return kind, head + b"".join(map(fmt.pack_string, texts))

    wanted = rng.choice([[kind] for kind in _TEXT_OFFSETS] + [list(_TEXT_OFFSETS)] * 4)
    return _with_records(base, rng, lambda kind: kind in wanted, change, rng.choice([1, 3, 30]))


def _documents(base: Base, _: list[Base], rng: Random) -> bytes:
    def change(kind: int, body: bytes, rng: Random) -> tuple[int, bytes]:
        (size,) = struct.unpack_from("<I", body)
        name, packed = body[4 : 4 + size], body[8 + size :]
        document = json.loads(zlib.decompressobj().decompress(packed))
        for _number in range(rng.choice([1, 1, 1, 2, 4])):
            document = changed_document(document, rng)
        content = zlib.compress(json.dumps(document).encode())
        return kind, struct.pack("<I", size) + name + struct.pack("<I", len(content)) + content

    return _with_records(base, rng, lambda kind: kind == fmt.JSON, change, rng.choice([1, 1, 3]))


def changed_document(document: Any, rng: Random) -> Any:
    """One of its values, keys or elements is another."""
    if not isinstance(document, (dict, list)) or rng.random() < 0.01:
        return copy.deepcopy(rng.choice(JUNK))
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return document
        key = rng.choice(keys)
        if isinstance(place[key], (dict, list)) and place[key] and rng.random() < 0.8:
            place = place[key]
            continue
        how = rng.random()
        if how < 0.1:
            del place[key]
        elif how < 0.2 and isinstance(place, dict):
            place[rng.choice(NAMES)] = place.pop(key)
        else:
            place[key] = copy.deepcopy(rng.choice(JUNK))
        return document


Mutation = Callable[[Base, list[Base], Random], bytes]
_MUTATIONS: dict[str, Mutation] = {
    "flips": _flips,
    "stretches": _stretches,
    "cut": _cut,
    "shuffled": _shuffled,
    "concatenated": _concatenated,
    "moved": _moved,
    "packed": _packed,
    "header": _header,
    "framing": _framing,
    "words": _words,
    "definitions": _definitions,
    "names": _names,
    "documents": _documents,
    "fields": _fields,
}
_OFTEN = ("framing", "words", "words", "words", "definitions", "definitions", "names", "names", "documents")
_KINDS = [*_MUTATIONS, *_OFTEN, "documents", "documents", "fields", "fields"]
