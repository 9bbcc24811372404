"""A trace without what tells of its user: command lines, environment, texts of source lines, paths.

Definitions are written anew in their places, no longer than they were; all other chunks stay as they are, so
ids, times and tables do too. What is in no whole chunk becomes zeros.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import struct
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tracer.base.paths import short_path
from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.contents import Losses
from tracer.trace.bytes.reader import ChunkFile

_STEP = 1 << 20
_PATH = re.compile(r"(?<![\w./])/(?:[\w.+@~=,-]+/)+[\w.+@~=,-]*")
"""An absolute path within a text"""
_UNREADABLE = (ValueError, TypeError, AttributeError, KeyError, struct.error, zlib.error, RecursionError)
"""What a damaged definition raises"""
_COMPILE_ID = re.compile(r"\d+/\d+:")
_OPS_OF_TORCH = ("aten::", "prim", "profiler::")
_KERNELS_OF_TORCH = ("cpp_fused", "triton_", "extern_kernels.")
LEFT_OUT = "left out"
_FACTS = ("tracer", "python", "torch", "torch_cuda")
_SECRET_OPTIONS = ("ops", "override")


@dataclass
class Redaction:
    """What was taken out, by kind -> how many, and names of the user that are left, by kind."""

    removed: Counter[str] = field(default_factory=Counter)
    left: dict[str, dict[str, None]] = field(default_factory=dict)

    def keep(self, kind: str, name: str) -> None:
        if name:
            self.left.setdefault(kind, {})[name] = None


def redact(path: str | os.PathLike[str], output: str | os.PathLike[str]) -> Redaction:
    """Writes the trace `path`, packed or not, as `output` (not packed). Raises TraceError and OSError."""
    with ChunkFile(os.fspath(path)) as trace:
        flags = trace.header().flags
        places = list(trace.chunks(Losses()))
        redactor = _Redactor()
        for header, place in places:
            if header.stream == fmt.DEFINITIONS:
                redactor.look(trace.payload(header, place))
        with open(output, "wb") as file:
            file.truncate(trace.size)
            _copy(trace, file, 0, trace.first)
            for header, place in places:
                start = place.offset - fmt.CHUNK_HEADER.size
                if header.stream == fmt.DEFINITIONS:
                    payload = redactor.definitions(trace.read(*place))
                    _copy(trace, file, start, place.offset)
                    file.seek(place.offset)
                    file.write(payload.ljust(place.size, b"\0"))
                elif header.stream in (fmt.HOPS, fmt.ACTIVITIES):
                    _copy(trace, file, start, place.offset + place.size)
    if flags & fmt.SCALARS:
        redactor.done.keep("kind of values", "arguments that are no tensors (--values scalars)")
    return redactor.done


def _copy(trace: ChunkFile, file: Any, start: int, end: int) -> None:
    file.seek(start)
    for offset in range(start, end, _STEP):
        file.write(trace.read(offset, min(_STEP, end - offset)))


def _records(payload: bytes) -> list[tuple[int, int, bytes]]:
    """(kind, ticks, body) of each whole record."""
    found, offset = [], 0
    while offset + fmt.DEFINITION_HEAD.size <= len(payload):
        size, kind, magic, ticks = fmt.DEFINITION_HEAD.unpack_from(payload, offset)
        if magic != fmt.DEFINITION_MAGIC or size % 8 or size < 16 or offset + size > len(payload):
            offset += 8
            continue
        found.append((kind, ticks, payload[offset + fmt.DEFINITION_HEAD.size : offset + size]))
        offset += size
    return found


class _Body:
    """Reads the fields of a record, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data, self.offset = data, 0

    def fields(self, layout: str) -> bytes:
        size = struct.calcsize("<" + layout)
        self.offset += size
        return self.data[self.offset - size : self.offset]

    def bytes(self) -> bytes:
        (length,) = struct.unpack("<I", self.fields("I"))
        self.offset += length
        if self.offset > len(self.data):
            raise ValueError("a string ends outside its record")
        return self.data[self.offset - length : self.offset]

    def text(self) -> str:
        return self.bytes().decode("utf-8", "surrogateescape")


class _Redactor:
    def __init__(self) -> None:
        self.done = Redaction()
        self._folder = self._cwd = ""
        self._names: dict[str, str] = {}  # of files: what each is called
        self._taken: dict[str, int] = {}

    def look(self, payload: bytes) -> None:
        """Where the script is, which may be written after the first definitions."""
        for kind, _, data in _records(payload):
            if kind == fmt.JSON and not self._cwd:
                self._look_at(_Body(data))

    def _look_at(self, body: _Body) -> None:
        try:
            known = json.loads(zlib.decompress(body.bytes())) if body.text() == "environment" else {}
        except _UNREADABLE:
            return
        cwd, argv = known.get("cwd"), known.get("argv") or [""]
        if isinstance(cwd, str) and isinstance(argv[0], str):
            self._cwd = cwd
            self._folder = posixpath.dirname(posixpath.normpath(posixpath.join(cwd, argv[0])))

    def definitions(self, payload: bytes) -> bytes:
        made = []
        for kind, ticks, data in _records(payload):
            try:
                body = self._body(kind, _Body(data), data)
            except _UNREADABLE:
                self.done.removed["definitions that cannot be read"] += 1
                continue
            made.append(fmt.pack_definition(kind, ticks, body))
        return b"".join(made)

    def _body(self, kind: int, body: _Body, data: bytes) -> bytes:
        if kind == fmt.PROCESS:
            numbers = body.fields("4I")
            self.done.removed["command lines"] += bool(body.text())
            return numbers + fmt.pack_string("")
        if kind == fmt.SOURCE_LINE:
            numbers = body.fields("2I")
            file, function = body.text(), body.text()
            self.done.keep("Python functions", function)
            return numbers + fmt.pack_string(self._file(file)) + fmt.pack_string(function)
        if kind == fmt.HOP:
            numbers = body.fields("3I2Q")
            texts = [body.text() for _ in range(5)]
            texts[2] = self._scrubbed(texts[2])
            texts[4] = self._scrubbed(texts[4])
            self.done.keep("Python kernels", texts[4])
            if not texts[0].startswith(_OPS_OF_TORCH):
                self.done.keep("operators outside of ATen", texts[0])
            return numbers + b"".join(map(fmt.pack_string, texts))
        if kind == fmt.SYMBOL:
            numbers = body.fields("2Q")
            symbol, library = body.text(), body.text()
            return numbers + fmt.pack_string(symbol) + fmt.pack_string(self._library(library))
        if kind == fmt.SIGNATURE:
            return self._signature(body)
        if kind == fmt.STRING:
            number = body.fields("I")
            return number + fmt.pack_string(self._scrubbed(body.text()))
        if kind == fmt.THREAD_NAME:
            body.fields("IQ")
            self.done.keep("names of threads", body.text())
        elif kind == fmt.MODULE_PATH:
            body.fields("I")
            names, root = body.text(), body.text()
            self.done.keep("modules", ".".join(filter(None, (root, names))))
        elif kind == fmt.JSON:
            return self._document(body.text(), body.bytes())
        return data

    def _signature(self, body: _Body) -> bytes:
        """Texts among the arguments that are no tensors may name files, and process groups ranks."""
        made = [body.fields("I"), count := body.fields("I")]
        for _ in range(int.from_bytes(count, "little")):
            made.append(tensor := body.fields("HBbBbBBQ"))
            dimensions, flags = tensor[2], tensor[7]
            if dimensions != fmt.UNKNOWN_DIMENSIONS:
                made.append(body.fields(f"{dimensions * (2 if flags & fmt.HAS_STRIDES else 1)}q"))
        if body.offset < len(body.data):
            made.append(count := body.fields("I"))
            for _ in range(int.from_bytes(count, "little")):
                made += [body.fields("H"), fmt.pack_string(self._scrubbed(body.text()))]
        return b"".join(made)

    def _document(self, name: str, packed: bytes) -> bytes:
        document = json.loads(zlib.decompress(packed))
        if not isinstance(document, dict):
            document = self._cleaned(document)
        elif name == "environment":
            kept = {fact: document[fact] for fact in _FACTS if fact in document}
            self.done.removed["facts of the environment"] += len(document) - len(kept)
            options = document.get("options")
            if isinstance(options, dict):
                kept["options"] = {key: value for key, value in options.items() if key not in _SECRET_OPTIONS}
            document = kept
        elif name == "source_lines":
            lines = (known.get("lines") or {} for known in document.values() if isinstance(known, dict))
            self.done.removed["texts of source lines"] += sum(map(len, lines))
            document = {}
        elif name == "rank":
            self.done.removed["names of hosts"] += bool(document.pop("host", None))
            if isinstance(boot := document.get("boot"), str):  # equal for the ranks of one host, as it was
                document["boot"] = hashlib.sha256(boot.encode()).hexdigest()[:16]
        elif name == "settings":
            variables = document.pop("variables", None) or {}
            self.done.removed["environment variables"] += len(variables)
        else:
            if name.startswith("compiled:"):
                self._of_compiler(document)
            elif name.startswith("launch:"):
                self._places(document, "defined_at")
                if isinstance(generated := document.get("file"), str):
                    document["file"] = self._library(generated)
            elif name == "certificate":
                self._certificate(document)
            document = self._cleaned(document)
        again = zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 9)
        if len(again) > len(packed):
            raise ValueError("a document that does not fit into its place")
        return fmt.pack_string(name) + struct.pack("<I", len(again)) + again

    def _of_compiler(self, document: dict[str, Any]) -> None:
        """What torch.compile says of a function: guards have its names and values, nodes its variables."""
        self._places(document, "defined_at")
        if isinstance(generated := document.get("generated"), str):
            document["generated"] = self._library(generated)
        if isinstance(function := document.get("function"), str):
            self.done.keep("Python functions", function)
        if isinstance(why := document.get("recompiled"), str):
            known = _COMPILE_ID.match(why)
            document["recompiled"] = f"{known[0]} {LEFT_OUT}" if known else LEFT_OUT
            self.done.removed["reasons of recompilations"] += 1
        for kernel, uses in (document.get("uses") or {}).items():
            if not kernel.startswith(_KERNELS_OF_TORCH):
                self.done.keep("kernels of compiled code", kernel)
            for node in (node for use in uses for node in use.get("nodes") or ()):
                self._places(node, "source")
                self.done.removed["names of variables"] += node.pop("dynamo", None) is not None
                if (op := node.get("op")) and not op.startswith(_OPS_OF_TORCH):
                    self.done.keep("operators outside of ATen", op)

    def _certificate(self, document: dict[str, Any]) -> None:
        """A reason of a graph break may have the program's text, and so may an error."""
        compiled = document.get("compiled") or {}
        for cut in compiled.get("breaks") or ():
            self._places(cut, "source")
            self.done.removed["reasons of graph breaks"] += cut.get("reason") is not None
            cut["reason"] = LEFT_OUT
            if isinstance(function := cut.get("not_compiled"), str):
                self.done.keep("Python functions", function)
        errors = compiled.get("errors") or ()
        if errors:
            compiled["errors"] = [error.partition(":")[0] for error in errors]
            self.done.removed["texts of errors"] += len(errors)

    def _places(self, document: dict[str, Any], *names: str) -> None:
        """Fields that name a file, or a line of one, as `file:line`."""
        for name in names:
            if isinstance(place := document.get(name), str):
                file, colon, number = place.rpartition(":")
                is_line = bool(colon) and number.isdigit()
                document[name] = f"{self._file(file)}:{number}" if is_line else self._file(place)

    def _cleaned(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._scrubbed(value)
        if isinstance(value, list):
            return [self._cleaned(element) for element in value]
        if isinstance(value, dict):
            return {self._scrubbed(key): self._field(key, element) for key, element in value.items()}
        return value

    def _field(self, name: str, value: Any) -> Any:
        # All of it is a path: the pattern would end at a space.
        return self._library(value) if name == "path" and isinstance(value, str) else self._cleaned(value)

    def _scrubbed(self, text: str) -> str:
        return _PATH.sub(lambda match: self._library(match[0]), text)

    def _library(self, path: str) -> str:
        """Beyond the package, as in libraries and places in C++."""
        short = short_path(path, "")
        self.done.removed["paths"] += short != path
        return short

    def _file(self, file: str) -> str:
        """Two files with one short name get different ones."""
        if file not in self._names:
            short = short_path(file, self._folder, self._cwd)
            self._taken[short] = self._taken.get(short, 0) + 1
            if self._taken[short] > 1 and len(short) + 4 < len(file):
                short = f"{self._taken[short]}/{short}"
            self._names[file] = short
            self.done.removed["paths"] += short != file
            self.done.keep("source files", short)
        return self._names[file]
