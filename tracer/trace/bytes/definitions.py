"""The meaning of the ids in the stream of hops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.damage import DamagedError, whole
from tracer.trace.bytes.documents import Budget, read_document
from tracer.trace.bytes.records import LONGEST_MEMBER, Body

_LONGEST_LIST = 1 << 20
_LONGEST_LINEAGE = 1000
_LONGEST_STACK = 128
"""Frames. Each may have a name of 8,192 characters; the recorder writes up to 64"""
FORK_SERVER = "multiprocessing.forkserver"
"""In the command of a fork server and of its children: the only command that readers look for"""


class ProcessDefinition(NamedTuple):
    process: int
    pid: int
    parent_pid: int
    how: str
    command: str


class HopDefinition(NamedTuple):
    flags: int
    table_index: int
    unboxed: int
    boxed: int
    op: str
    key: str
    registered_at: str
    rule: str
    python_kernel: str

    @property
    def kernel_address(self) -> int:
        return self.unboxed or self.boxed


class SymbolDefinition(NamedTuple):
    offset: int
    symbol: str
    library: str


class TensorDefinition(NamedTuple):
    position: int
    dtype: int
    device_type: int
    device_index: int
    layout: int
    flags: int
    key_set: int
    shape: tuple[int, ...] | None
    stride: tuple[int, ...] | None
    list_length: int | None = None
    """Of a list that has more tensors than are recorded"""


class ThreadKeys(NamedTuple):
    """The dispatch keys that a thread adds to those of its arguments, and those that it hides."""

    included: int
    excluded: int
    modes: tuple[str, ...]
    """Classes of the TorchDispatchModes, outermost first"""


class FunctionDefinition(NamedTuple):
    name: str
    layout: str


class GraphNode(NamedTuple):
    original: int
    """The node that it is a copy of; 0: it was captured."""
    correlation: int


class GpuDefinition(NamedTuple):
    name: str
    facts: dict[str, int]


class ModulePath(NamedTuple):
    """The place of an nn.Module in its model."""

    names: str
    """From the outermost module inwards, apart by dots; empty: it is the outermost one"""
    root: str
    """Class of the outermost module"""


class ScalarDefinition(NamedTuple):
    """An argument that is no tensor."""

    position: int
    value: str
    """As JSON"""


Signature = tuple[TensorDefinition | ScalarDefinition, ...]
ProgramCounters = tuple[int, ...]
"""Innermost first"""
PythonStack = tuple[str, ...]
"""`file:line function` of each frame, innermost first"""
Scope = tuple[int, int]
"""(process, lane)"""


_MOST_WASTED = 8
"""Times the length of a chunk: of its records that cannot be read, together"""


@dataclass
class Definitions:
    """All definitions of a file; ids are scoped as csrc/trace/records.h says."""

    path: str = ""
    processes: dict[int, ProcessDefinition] = field(default_factory=dict)
    thread_names: dict[tuple[int, int], str] = field(default_factory=dict)
    """(process, OS thread id) -> name"""
    hops: defaultdict[int, dict[int, HopDefinition]] = field(default_factory=lambda: defaultdict(dict))
    documents: defaultdict[int, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    """process -> kind -> decoded JSON"""
    symbols: defaultdict[int, dict[int, SymbolDefinition]] = field(default_factory=lambda: defaultdict(dict))
    """process -> address -> symbol"""
    strings: defaultdict[Scope, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    sources: defaultdict[Scope, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    """(process, lane) -> id -> `file:line`, of a stack that of its first frame"""
    functions_of_sources: defaultdict[Scope, dict[int, str]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    python_stacks: defaultdict[Scope, dict[int, PythonStack]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """(process, lane) -> id of the source -> the frames"""
    thread_keys: defaultdict[Scope, dict[int, ThreadKeys]] = field(default_factory=lambda: defaultdict(dict))
    modules: defaultdict[int, dict[int, ModulePath]] = field(default_factory=lambda: defaultdict(dict))
    """process -> id -> place of the module"""
    signatures: defaultdict[Scope, dict[int, Signature]] = field(default_factory=lambda: defaultdict(dict))
    functions: defaultdict[int, dict[tuple[int, int], FunctionDefinition]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """process -> (domain, function) -> what is called"""
    enumerations: defaultdict[int, dict[str, dict[int, str]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """process -> C type -> number -> name"""
    stacks: defaultdict[Scope, dict[int, ProgramCounters]] = field(default_factory=lambda: defaultdict(dict))
    graph_nodes: defaultdict[int, dict[int, GraphNode]] = field(default_factory=lambda: defaultdict(dict))
    """process -> id of the node -> where it comes from"""
    gpus: defaultdict[int, dict[int, GpuDefinition]] = field(default_factory=lambda: defaultdict(dict))
    """process -> device -> what it is"""
    _frames: defaultdict[Scope, dict[int, str]] = field(default_factory=lambda: defaultdict(dict), repr=False)
    """(process, lane) -> id of the source -> its line in Python stacks"""
    left_out: int = 0
    """How often fmt.OTHER replaces a string, source line, signature or stack"""
    budget: Budget = field(default_factory=Budget, repr=False)
    damaged_documents: int = 0
    """Documents that something was taken out of, since it was of another type"""
    _decoded: dict[bytes, Signature] = field(default_factory=dict, repr=False)
    _by_pid: dict[int, int] = field(default_factory=dict, repr=False)
    _lineage: dict[int, list[int]] = field(default_factory=dict, repr=False)
    """That of the process that was asked for last"""

    def lineage(self, process: int) -> list[int]:
        """The process, and those whose memory it has a copy of because it was forked.

        Readers ask for one process after the other, and for each many times.
        """
        if process not in self._lineage:
            self._lineage = {process: self._walked(process)}
        return self._lineage[process]

    def _walked(self, process: int) -> list[int]:
        line = {process: None}
        last = process
        while (known := self.processes.get(last)) and known.how == "forked":
            parent = self._by_pid.get(known.parent_pid)
            if parent is None or parent in line or len(line) == _LONGEST_LINEAGE:
                break
            line[parent] = None
            last = parent
        return list(line)

    def symbol(self, process: int, address: int) -> SymbolDefinition | None:
        """What a process, or one that it was forked from, wrote of an address."""
        for owner in self.lineage(process):
            if found := self.symbols.get(owner, {}).get(address):
                return found
        return None

    def symbol_names(self) -> Iterator[str]:
        """All symbols, and all strings: some are symbols of device kernels."""
        for symbols in self.symbols.values():
            yield from (known.symbol for known in symbols.values())
        for strings in self.strings.values():
            yield from strings.values()

    def parse(self, header: fmt.ChunkHeader, payload: bytes) -> tuple[int, bool]:
        """Adds the records of a chunk.

        Returns how many are not whole, and whether one of them is not the last, so that it was
        not a kill that tore it. What follows many that seem to be in each other is not read: each
        may be as long as all that follows it.
        """
        payload = payload[: len(payload) // 8 * 8]
        words = np.frombuffer(payload, "<u8")
        starts = np.flatnonzero(words >> np.uint64(48) == fmt.DEFINITION_MAGIC) * 8
        torn, damaged, offset = 0, False, 0
        wasted = 0
        while offset < len(payload):
            if offset + fmt.DEFINITION_HEAD.size <= len(payload):
                size, kind, magic, _ = fmt.DEFINITION_HEAD.unpack_from(payload, offset)
                end = offset + size
                if magic == fmt.DEFINITION_MAGIC and size % 8 == 0 and end <= len(payload):
                    try:
                        body = Body(payload[offset + fmt.DEFINITION_HEAD.size : end])
                        whole(self._add, kind, body, (header.process, header.lane))
                    except DamagedError:
                        wasted += size
                        if wasted > _MOST_WASTED * len(payload):
                            return torn + 1, True
                    else:
                        offset = end
                        continue
            following = starts[np.searchsorted(starts, offset, "right") :]
            end = int(following[0]) if len(following) else len(payload)
            if words[offset // 8 : end // 8].any():
                torn += 1
                damaged |= len(following) > 0
            offset = end
        return torn, damaged

    def _add(self, kind: int, body: Body, scope: Scope) -> None:
        process = scope[0]
        if kind == fmt.PROCESS:
            number, pid, parent, how = body.fields("4I")
            command = body.text()
            origin = fmt.PROCESS_ORIGINS[how] if how < len(fmt.PROCESS_ORIGINS) else "unknown"
            body.check_end()
            self.processes[number] = ProcessDefinition(number, pid, parent, origin, command)
            self._by_pid[pid] = number
            self._lineage.clear()
        elif kind == fmt.THREAD_NAME:
            thread, _ = body.fields("IQ")
            name = body.text()
            body.check_end()
            self.thread_names[process, thread] = name
        elif kind == fmt.HOP:
            hop, flags, table_index, unboxed, boxed = body.fields("3I2Q")
            texts = [body.text() for _ in range(5)]
            body.check_end()
            self.hops[process][hop] = HopDefinition(flags, table_index, unboxed, boxed, *texts)
        elif kind == fmt.JSON:
            name, packed = body.text(), body.bytes()
            body.check_end()
            self._add_document(process, name, packed)
        elif kind == fmt.SYMBOL:
            address, offset = body.fields("2Q")
            symbol, library = body.text(), body.text()
            body.check_end()
            self.symbols[process][address] = SymbolDefinition(offset, symbol, library)
        elif kind == fmt.STRING:
            (number,) = body.fields("I")
            text = body.text()
            body.check_end()
            self.strings[scope][number] = text
        elif kind == fmt.SOURCE_LINE:
            number, line = body.fields("2I")
            file, function = body.text(), body.text()
            body.check_end()
            self.sources[scope][number] = f"{file}:{line}"
            self.functions_of_sources[scope][number] = function
        elif kind == fmt.PYTHON_STACK:
            number, count = body.fields("2I")
            lines = body.fields(f"{count & ~fmt.WITH_TORCH_LINES}I")
            self._add_stack(scope, number, lines, bool(count & fmt.WITH_TORCH_LINES))
            body.check_end()
        elif kind == fmt.KEYS_OF_THREAD:
            (number,) = body.fields("I")
            included, excluded = body.fields("2Q")
            modes = tuple(body.text().splitlines())
            body.check_end()
            self.thread_keys[scope][number] = ThreadKeys(included, excluded, modes)
        elif kind == fmt.MODULE_PATH:
            (number,) = body.fields("I")
            path = ModulePath(names=body.text(), root=body.text())
            body.check_end()
            self.modules[process][number] = path
        elif kind == fmt.SIGNATURE:
            (number,) = body.fields("I")
            content = body.data[body.offset :]
            signature = self._decoded.get(content)
            if signature is None:
                signature = self._decoded[content] = _signature(body)
            self.signatures[scope][number] = signature
        else:
            self._add_cuda(kind, body, scope)

    def _add_document(self, process: int, name: str, packed: bytes) -> None:
        document, damaged = read_document(name, self.budget.unpacked(packed, self.path))
        self.damaged_documents += damaged
        if document is not None:
            self.documents[process][name] = document

    def _add_stack(self, scope: Scope, number: int, lines: tuple[int, ...], source_first: bool) -> None:
        sources, functions = self.sources[scope], self.functions_of_sources[scope]
        if not 0 < len(lines) <= _LONGEST_STACK or any(line not in functions for line in lines):
            raise ValueError("a stack of lines that are not known, or of too many")
        self.sources[scope][number] = sources[lines[0]]
        frames = self._frames[scope]
        for line in lines:  # frames that stacks share are one text
            if line not in frames:
                frames[line] = f"{sources[line]} {functions[line]}".rstrip()
        self.python_stacks[scope][number] = tuple(frames[line] for line in lines[source_first:])

    def _add_cuda(self, kind: int, body: Body, scope: Scope) -> None:
        process = scope[0]
        if kind == fmt.FUNCTION:
            domain, function = body.fields("2I")
            name, layout = body.text(), body.text(_LONGEST_LIST)
            body.check_end()
            self.functions[process][domain, function] = FunctionDefinition(name, layout)
        elif kind == fmt.ENUMERATION:
            name, values = body.text(), _numbers_by_name(body.text(_LONGEST_LIST))
            body.check_end()
            # If a number has several names, keep the first.
            self.enumerations[process][name] = {
                number: value for value, number in reversed(list(values.items()))
            }
        elif kind == fmt.STACK:
            number, count = body.fields("2I")
            counters = body.fields(f"{count}Q")
            body.check_end()
            if count > _LONGEST_STACK:
                raise ValueError("a stack of too many frames")
            self.stacks[scope][number] = counters
        elif kind == fmt.GRAPH_NODE:
            node, original, correlation = body.fields("2QI")
            body.check_end()
            self.graph_nodes[process][node] = GraphNode(original, correlation)
        elif kind == fmt.GPU:
            (device,) = body.fields("I")
            name, facts = body.text(), _numbers_by_name(body.text(_LONGEST_LIST))
            body.check_end()
            self.gpus[process][device] = GpuDefinition(name, facts)
        else:
            raise ValueError("no such kind of definition")


def _numbers_by_name(text: str) -> dict[str, int]:
    """From a line `name=number` for each; raises ValueError where one is not of that form."""
    pairs = (line.rpartition("=") for line in text.splitlines())
    values = {name[:LONGEST_MEMBER]: int(number) for name, _, number in pairs}
    if any(not -(1 << 63) <= value < 1 << 63 for value in values.values()):
        raise ValueError("a number that is larger than any of C's")
    return values


def _signature(body: Body) -> Signature:
    (cut,) = body.fields("I")
    tensors: list[TensorDefinition] = []
    for _ in range(cut & ~fmt.CUT_LISTS):
        position, dimensions, dtype, device, index, layout, flags, key_set = body.fields("HBbBbBBQ")
        shape = stride = None
        if dimensions != fmt.UNKNOWN_DIMENSIONS:
            shape = body.numbers(dimensions)
            stride = body.numbers(dimensions) if flags & fmt.HAS_STRIDES else None
        tensors.append(
            TensorDefinition(position, dtype, device, index, layout, flags, key_set, shape, stride)
        )
    if cut & fmt.CUT_LISTS:
        (count,) = body.fields("I")
        lengths: dict[int, int] = dict([body.fields("HI") for _ in range(count)])  # type: ignore[misc]
        tensors = [one._replace(list_length=lengths.get(one.position)) for one in tensors]
    scalars: list[ScalarDefinition] = []
    if len(body.data) - body.offset >= 4:  # less than that fills the record up to 8 bytes
        (count,) = body.fields("I")
        for _ in range(count):
            (position,) = body.fields("H")
            scalars.append(ScalarDefinition(position, body.text()))
    body.check_end()
    return (*tensors, *scalars)
