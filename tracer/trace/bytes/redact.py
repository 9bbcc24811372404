"""A trace without what is private: what stays is the list of `kept.py`.

Definitions are written anew in their places, no longer than they were; events stay as they are but for hashes
of results, so ids, times and tables do too. What is in no whole chunk becomes zeros.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import IO

import numpy as np

from tracer.base.known_names import KnownNames
from tracer.trace.bytes import format as fmt
from tracer.trace.bytes import kept
from tracer.trace.bytes.activities import parse_activities
from tracer.trace.bytes.contents import Losses
from tracer.trace.bytes.damage import DamagedError, whole
from tracer.trace.bytes.definitions import FORK_SERVER
from tracer.trace.bytes.documents import Budget
from tracer.trace.bytes.events import EventBlock, hashes, parse_events
from tracer.trace.bytes.kept_names import RULES, Names, Redaction
from tracer.trace.bytes.reader import ChunkFile
from tracer.trace.bytes.records import Body

_STEP = 1 << 20
_FUNCTION = r"\w+", r"(?:\w+\t\*?[\w.>\[\]-]+\t[\w *:&<>,()\[\]]+\t\d+\t\d+\n)*"
_ENUMERATION = r"[\w ]+", r"(?:\w+=-?\d+\n)*"
_GPU = r"[\w .()/-]+", r"(?:\w+=-?\d+\n)*"
"""Names of CUDA's functions, types and devices have these forms: they are of its headers"""
Record = tuple[int, int, bytes]
"""Kind, ticks, body"""


def redact(path: str | os.PathLike[str], output: IO[bytes], known: KnownNames) -> Redaction:
    """Writes the trace `path`, packed or not, to `output` (not packed). Raises TraceError and OSError.

    Names that are not in `known` are noted.
    """
    with ChunkFile(os.fspath(path)) as trace:
        header = trace.header()
        places = list(trace.chunks(Losses()))
        redactor = _Redactor(known, trace)
        for chunk, place in places:
            redactor.look(chunk, trace.payload(chunk, place))
        output.truncate(trace.size)
        _copy(trace, output, 0, min(fmt.HEADER_BYTES + 4 * header.ring_slots, trace.first))
        output.seek(fmt.WALL_NS_OFFSET)
        output.write(bytes(8))
        for chunk, place in places:
            start = place.offset - fmt.CHUNK_HEADER.size
            if chunk.stream == fmt.DEFINITIONS:
                payload = redactor.definitions(chunk, trace.payload(chunk, place))
                _copy(trace, output, start, place.offset)
                output.seek(place.offset)
                output.write(
                    payload[: place.size].ljust(place.size, b"\0")
                )  # the rest: zeros that were trimmed
            elif chunk.stream == fmt.HOPS:
                _copy(trace, output, start, place.offset)
                output.seek(place.offset)
                output.write(redactor.events(trace.read(*place)))
            elif chunk.stream == fmt.ACTIVITIES:
                _copy(trace, output, start, place.offset + place.size)
    return redactor.names.done


def _copy(trace: ChunkFile, file: IO[bytes], start: int, end: int) -> None:
    file.seek(start)
    for offset in range(start, end, _STEP):
        file.write(trace.read(offset, min(_STEP, end - offset)))


def _records(payload: bytes) -> Iterator[Record]:
    """Each whole record."""
    offset = 0
    while offset + fmt.DEFINITION_HEAD.size <= len(payload):
        size, kind, magic, ticks = fmt.DEFINITION_HEAD.unpack_from(payload, offset)
        if magic != fmt.DEFINITION_MAGIC or size % 8 or size < 16 or offset + size > len(payload):
            offset += 8
            continue
        yield kind, ticks, payload[offset + fmt.DEFINITION_HEAD.size : offset + size]
        offset += size


def _texts(*texts: str) -> bytes:
    return b"".join(map(fmt.pack_string, texts))


class _Fields(Body):
    """Also gives the bytes of numbers, which stay."""

    def raw(self, layout: str) -> bytes:
        start = self.offset
        self.fields(layout)
        return self.data[start : self.offset]

    def every(self) -> bytes:
        return self.raw(f"{len(self.data) - self.offset}s")


class _Redactor:
    def __init__(self, known: KnownNames, trace: ChunkFile) -> None:
        self.names = Names(known)
        self._path = trace.path
        self._looked_at, self._written = Budget(trace.packed_size), Budget(trace.packed_size)
        self._used: defaultdict[tuple[int, int], dict[int, str]] = defaultdict(dict)
        """(process, lane) -> string -> what an event uses it for"""
        self._bodies: dict[int, Callable[[_Fields], bytes]] = {
            fmt.PROCESS: self._process,
            fmt.THREAD_NAME: lambda body: body.raw("IQ") + _texts(self.names.thread(body.text())),
            fmt.HOP: self._hop,
            fmt.SOURCE_LINE: self._source_line,
            fmt.SIGNATURE: self._signature,
            fmt.JSON: self._document,
            fmt.SYMBOL: lambda body: body.raw("2Q") + _texts(*self.names.symbol(body.text(), body.text())),
            fmt.FUNCTION: lambda body: body.raw("2I") + _of_cuda(body, _FUNCTION),
            fmt.ENUMERATION: lambda body: _of_cuda(body, _ENUMERATION),
            fmt.STACK: lambda body: body.every(),
            fmt.GRAPH_NODE: lambda body: body.every(),
            fmt.GPU: lambda body: body.raw("I") + _of_cuda(body, _GPU),
            fmt.MODULE_PATH: lambda body: (
                body.raw("I") + _texts(*self.names.modules(body.text(), body.text()))
            ),
            fmt.PYTHON_STACK: lambda body: body.every(),
            fmt.KEYS_OF_THREAD: self._keys_of_thread,
        }
        """The kinds of records that stay, and what of each; STRING is in _string"""

    def look(self, chunk: fmt.ChunkHeader, payload: bytes) -> None:
        """What strings are used for, and where the script is: a chunk before may need it."""
        words = np.frombuffer(payload, "<u8", len(payload) // 8)
        used = self._used[chunk.process, chunk.lane]
        if chunk.stream == fmt.HOPS:
            _uses(parse_events(words, {}), used)
        elif chunk.stream == fmt.ACTIVITIES:
            names = parse_activities(words)[0][:, 4] & np.uint64(fmt.LOW_32)
            self._used[chunk.process, fmt.PROCESS_LANE].update(
                dict.fromkeys(np.unique(names).tolist(), "kernel")
            )
        elif chunk.stream == fmt.DEFINITIONS and not self.names.cwd:
            for kind, _, data in _records(payload):
                if kind == fmt.JSON:
                    try:
                        whole(self._look_at, Body(data))
                    except DamagedError:
                        continue

    def _look_at(self, body: Body) -> None:
        if body.text() != "environment":
            return
        known = json.loads(self._looked_at.unpacked(body.bytes(), self._path))
        cwd, argv = known["cwd"], known["argv"] or [""]
        if isinstance(cwd, str) and isinstance(argv[0], str):
            self.names.cwd = cwd
            self.names.folder = posixpath.dirname(posixpath.normpath(posixpath.join(cwd, argv[0])))

    def events(self, payload: bytes) -> bytes:
        """A hash of few values, as of a label, tells them to whoever tries those that there may be."""
        words = np.frombuffer(payload, "<u8", len(payload) // 8).copy()
        at = hashes(words)
        words[at] = 0
        self.names.done.removed["hashes of results"] += len(at)
        return words.tobytes() + payload[words.nbytes :]

    def definitions(self, chunk: fmt.ChunkHeader, payload: bytes) -> bytes:
        made = []
        for kind, ticks, data in _records(payload):
            try:
                body = whole(self._body, chunk, kind, _Fields(data))
            except DamagedError:
                self.names.done.removed["definitions that cannot be read"] += 1
                continue
            record = fmt.pack_definition(kind, ticks, body)
            if len(record) > fmt.DEFINITION_HEAD.size + len(data):
                self.names.done.removed["definitions that do not fit into their places"] += 1
            elif body:
                made.append(record)
        return b"".join(made)

    def _body(self, chunk: fmt.ChunkHeader, kind: int, body: _Fields) -> bytes:
        if kind == fmt.STRING:
            return self._string(self._used[chunk.process, chunk.lane], body)
        if kind not in self._bodies:
            self.names.done.removed["definitions that are not known"] += 1
            return b""
        return self._bodies[kind](body)

    def _process(self, body: _Fields) -> bytes:
        numbers, command = body.raw("4I"), body.text()
        self.names.done.removed["command lines"] += bool(command)
        return numbers + _texts(FORK_SERVER if FORK_SERVER in command else "")

    def _source_line(self, body: _Fields) -> bytes:
        numbers, file, function = body.raw("2I"), body.text(), body.text()
        return numbers + _texts(self.names.file(file), self.names.function(function, file))

    def _hop(self, body: _Fields) -> bytes:
        numbers = body.raw("3I2Q")
        op, key, registered_at, rule, python_kernel = (body.text() for _ in range(5))
        return numbers + _texts(
            self.names.op(op),
            self.names.key(key),
            self.names.registered_at(registered_at),
            rule if rule in RULES else "",
            self.names.python_kernel(python_kernel),
        )

    def _string(self, used: dict[int, str], body: _Fields) -> bytes:
        number = body.raw("I")
        use, text = used.get(int.from_bytes(number, "little")), body.text()
        if use == "range":
            text = self.names.range(text)
        elif use == "kernel":
            text = self.names.device_kernel(text)
        elif use == "node":
            text = self.names.node(text)
        else:
            self.names.done.removed["texts that nothing uses"] += 1
            text = ""
        return number + _texts(text)

    def _keys_of_thread(self, body: _Fields) -> bytes:
        numbers, modes = body.raw("I2Q"), body.text().splitlines()
        return numbers + _texts("\n".join(self.names.chosen("dispatch modes", mode) for mode in modes))

    def _signature(self, body: _Fields) -> bytes:
        """Texts among the arguments that are no tensors may be anything, and process groups name ranks."""
        made = [body.raw("I"), count := body.raw("I")]
        for _ in range(int.from_bytes(count, "little") & ~fmt.CUT_LISTS):
            made.append(body.raw("HBbBbBBQ"))
            dimensions, flags = made[-1][2], made[-1][7]
            if dimensions != fmt.UNKNOWN_DIMENSIONS:
                made.append(body.raw(f"{dimensions * (2 if flags & fmt.HAS_STRIDES else 1)}q"))
        if int.from_bytes(count, "little") & fmt.CUT_LISTS:
            made.append(lists := body.raw("I"))
            made += [body.raw("HI") for _ in range(int.from_bytes(lists, "little"))]
        if len(body.data) - body.offset >= 4:
            made.append(count := body.raw("I"))
            for _ in range(int.from_bytes(count, "little")):
                made += [body.raw("H"), _texts(self.names.scalar(body.text()))]
        return b"".join(made)

    def _document(self, body: _Fields) -> bytes:
        kind, packed = body.text(), body.bytes()
        document = kept.document(self.names, kind, json.loads(self._written.unpacked(packed, self._path)))
        if document is kept.GONE:
            return b""
        again = zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 9)
        return _texts(kind) + struct.pack("<I", len(again)) + again


def _uses(events: EventBlock, used: dict[int, str]) -> None:
    """Adds what each string is used for. A name of a kernel or node stays, even if a range has it too."""
    low = np.uint64(fmt.LOW_32)
    kernels = events.third[events.kind[events.call] == fmt.API_ENTER] & low
    nodes = events.second[events.kind == fmt.NODE] & low
    ranges = events.first[events.kind == fmt.RANGE_BEGIN] & low
    for number in np.unique(ranges).tolist():
        used.setdefault(number, "range")
    for names, use in ((nodes, "node"), (kernels, "kernel")):
        used.update(dict.fromkeys(np.unique(names).tolist(), use))


def _of_cuda(body: Body, forms: tuple[str, str]) -> bytes:
    texts = body.text(), body.text(1 << 20)
    if not all(map(re.fullmatch, forms, texts)):
        raise DamagedError("a name that is not of CUDA")
    return _texts(*texts)
