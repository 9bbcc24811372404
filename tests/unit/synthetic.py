"""Writes small trace files as csrc/trace/records.h describes them, without tracer.trace.bytes.format."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BACKENDS = 15
ENUMS = {
    "num_backends": BACKENDS,
    "keys": ["Undefined", ["Undefined", "CPU", "CUDA"], ["Undefined", "AutogradCPU", "AutogradCUDA"]],
    "dtypes": {"6": "torch.float32"},
    "device_types": {"0": "cpu", "1": "cuda"},
    "layouts": {"0": "torch.strided"},
}
CPU = 1 << BACKENDS | 1
AUTOGRAD_CPU = 1 << (BACKENDS + 1) | CPU
CERTIFICATE = {
    **dict.fromkeys(("entries", "hooked"), 10),
    **dict.fromkeys(("rearmed", "lost_hops"), 0),
    "not_hooked": [],
    "lost_entries": [],
    "ns_per_hop": 42.5,
    "call_sites": True,
    "guards": {"updateDispatchTableEntry_": True, "checkInvariants": True},
    "out_of_space": None,
}
NO_SEQUENCE = 0xFFFFFFFF
MAX_DEPTH = (1 << 13) - 1  # that is stored
CALL, REDISPATCH = 1, 2
PROCESS_LANE = 0xFFFFFFFF


def text(value: str) -> bytes:
    return struct.pack("<I", len(value.encode())) + value.encode()


@dataclass
class Lane:
    """The writer of one thread; each event takes one tick of the file's clock."""

    file: TraceWriter
    process: int
    number: int
    thread: int
    hop_chunk_bytes: int
    events: list[tuple[int, list[int]]] = field(default_factory=list)
    """(thread that wrote it, words)"""
    definitions: list[bytes] = field(default_factory=list)
    open_hops: list[int] = field(default_factory=list)
    open_ranges: list[int] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    """of the open hops"""
    open_calls: list[tuple[int, int]] = field(default_factory=list)
    """(kind of the exit, function and domain)"""

    def enter(
        self,
        hop: int,
        key_set: int = CPU,
        source: int = 0,
        sequence: int = NO_SEQUENCE,
        signature: int = 0,
        call_site: int = CALL,
    ) -> int:
        """Returns the tick."""
        depth = min(len(self.open_hops), MAX_DEPTH)
        self.open_hops.append(hop)
        self.sequences.append(sequence)
        return self._event(
            1,
            key_set,
            hop | source << 32,
            sequence | signature << 32,
            depth | call_site << 13 | 0x7F0012345678 << 15,
        )

    def exit(self, raised: bool = False, made: int | None = None) -> int:
        """`made`: autograd nodes; a hop with a sequence number makes one unless it is said otherwise."""
        hop, sequence = self.open_hops.pop(), self.sequences.pop()
        if made is None:
            made = int(sequence != NO_SEQUENCE)
        depth = min(len(self.open_hops), MAX_DEPTH)
        return self._event(2, hop | depth << 32 | raised << 45 | made << 46)

    def node(self, name: int, sequence: int = 0, made_by: int = 0) -> int:
        return self._event(3, sequence, name | made_by << 32)

    def range_enter(self, name: int, source: int = 0) -> int:
        self.open_ranges.append(self.file.ticks + 1)
        return self.range_begin(name, self.open_ranges[-1], source)

    def range_exit(self) -> int:
        return self.range_end(self.open_ranges.pop() if self.open_ranges else 1 << 40)

    def range_begin(self, name: int, number: int, source: int = 0, at: int | None = None) -> int:
        return self._event(4, name | source << 32, number, brief=True, at=at)

    def range_end(self, number: int) -> int:
        return self._event(5, number, brief=True)

    def unnumbered_enter(self, name: int, source: int = 0) -> int:
        return self._event(4, name | source << 32)

    def unnumbered_exit(self) -> int:
        return self._event(5)

    def context(self, context: int, around: int = 0) -> int:
        return self._event(3, context, around, brief=True)

    def adopt(self, thread: int, torch_thread: int) -> int:
        self.thread = thread
        self.open_hops = []
        self.sequences = []
        self.open_calls = []
        return self._event(6, thread | torch_thread << 32)

    def api_enter(
        self,
        function: int,
        *arguments: int,
        correlation: int = 0,
        stack: int = 0,
        kernel: int = 0,
        source: int = 0,
        driver: bool = False,
    ) -> int:
        """`arguments`: words; the last one may have bit 63."""
        ids = correlation | stack << 32, kernel | source << 32
        return self._call_enter(7, function | driver << 16, ids, arguments)

    def library_enter(self, function: int, *arguments: int, source: int = 0) -> int:
        return self._call_enter(9, function, (0, source << 32), arguments)

    def call_exit(self, *results: int, result: int = 0, captured: bool = False) -> int:
        """Leaves the innermost open call."""
        kind, function = self.open_calls.pop()
        return self._call(kind, function, (result & 0xFFFFFFFF | captured << 32,), results)

    def api(
        self, function: int, *arguments: int, result: int = 0, captured: bool = False, **options: int
    ) -> int:
        """A call and its return; returns the tick of the call."""
        tick = self.api_enter(function, *arguments, **options)  # type: ignore[arg-type]
        self.call_exit(result=result, captured=captured)
        return tick

    def query(
        self,
        function: int,
        *arguments: int,
        correlation: int = 0,
        stack: int = 0,
        lasted: int = 1,
        read: int | None = None,
    ) -> int:
        """A call and its return as one event; returns the tick of the call."""
        third = lasted | (0 if read is None else read << 30 | 1 << 62)
        tick = self._call(13, function, (correlation | stack << 32, third), arguments)
        self.file.ticks += lasted
        return tick

    def step(self, ended: int, *time: int) -> int:  # `time`: those of the thread
        if time:
            self._event(6, *time, brief=True)
        return self._event(11, ended)

    def module(self, number: int) -> int:
        return self._event(12, number)

    def memory(self, address: int, size: int, *, freed: bool = False, device: int = 0) -> int:
        block = address | len(self.open_hops) << 48 | freed << 61
        return self._event(14, block, size | device << 48)

    def _call_enter(self, kind: int, function: int, ids: tuple[int, ...], arguments: tuple[int, ...]) -> int:
        tick = self._call(kind, function, ids, arguments)
        self.open_calls.append((kind + 1, function))
        return tick

    def _call(self, kind: int, function: int, ids: tuple[int, ...], arguments: tuple[int, ...]) -> int:
        high = sum((word >> 63) << bit for bit, word in enumerate(arguments))
        call = function | len(arguments) << 17 | high << 22
        call |= len(self.open_hops) << 46 | len(self.open_calls) << 59
        brief = self.file.brief and not ids[-1]
        kept = ids[:-1] if brief else ids
        return self._event(kind, call, *kept, *(word & ~(1 << 63) for word in arguments), brief=brief)

    def _event(self, kind: int, *words: int, brief: bool = False, at: int | None = None) -> int:
        self.file.ticks += 1
        tick = self.file.ticks if at is None else at
        self.events.append((self.thread, [1 << 63 | kind << 59 | brief << 58 | tick, *words]))
        return tick

    def define(self, kind: int, body: bytes) -> None:
        self.definitions.append(definition(kind, body))

    def define_string(self, number: int, value: str) -> None:
        self.define(3, struct.pack("<I", number) + text(value))

    def define_source(self, number: int, file: str, line: int) -> None:
        self.define(5, struct.pack("<2I", number, line) + text(file) + text("function"))

    def define_python_stack(self, number: int, *lines: int) -> None:
        self.define(15, struct.pack(f"<2I{len(lines)}I", number, len(lines), *lines))

    def define_stack(self, number: int, *counters: int) -> None:
        self.define(11, struct.pack(f"<2I{len(counters)}Q", number, len(counters), *counters))

    def define_signature(self, number: int, *tensors: bytes, scalars: bytes = b"", cut: bool = False) -> None:
        """`cut`: `scalars` begins with the lengths of lists."""
        self.define(6, struct.pack("<2I", number, len(tensors) | cut << 31) + b"".join(tensors) + scalars)

    def name_thread(self, torch_thread: int, name: str) -> None:
        self.define(2, struct.pack("<IQ", self.thread, torch_thread) + text(name))


def definition(kind: int, body: bytes) -> bytes:
    size = (16 + len(body) + 7) // 8 * 8
    return (struct.pack("<IHHQ", size, kind, 0xD5F1, 0) + body).ljust(size, b"\0")


def tensor(
    shape: tuple[int, ...] | None,
    stride: tuple[int, ...] | None = None,
    position: int = 0,
    dtype: int = 6,
    device: tuple[int, int] = (0, -1),
    layout: int = 0,
    requires_grad: bool = False,
    undefined: bool = False,
) -> bytes:
    flags = requires_grad | (stride is not None) << 1 | undefined << 2
    head = struct.pack(
        "<HBbBbBBQ", position, 255 if shape is None else len(shape), dtype, *device, layout, flags, CPU
    )
    numbers = (*(shape or ()), *(stride or ()))
    return head + struct.pack(f"<{len(numbers)}q", *numbers)


@dataclass
class TraceWriter:
    """A recording; `hop_chunk_bytes` is small so that a few hops need several chunks."""

    hop_chunk_bytes: int = 1 << 10
    ticks: int = 0
    lanes: list[Lane] = field(default_factory=list)
    process_definitions: dict[int, list[bytes]] = field(default_factory=dict)
    activities: dict[int, list[list[int]]] = field(default_factory=dict)
    """process -> words of its GPU activities"""
    pids: dict[int, int] = field(default_factory=dict)
    header: dict[str, int] = field(default_factory=dict)
    """Fields of the file's header that differ from those of an orderly stop."""
    trailing_zeros: int = 0
    brief: bool = True
    """Whether the last word before a call's arguments is left out where it is 0, as tracer writes it."""

    def process(
        self,
        number: int = 0,
        how: int = 0,
        parent_pid: int = 1,
        certificate: Any = CERTIFICATE,
        command: str | None = None,
        pid: int | None = None,
    ) -> int:
        pid = self.pids[number] = 100 + number if pid is None else pid
        body = struct.pack("<4I", number, pid, parent_pid, how) + text(command or f"python {number}")
        self.process_definitions[number] = [definition(1, body)]
        if how != 1:
            self.json(number, "enums", ENUMS)
        if certificate is not None:
            self.json(number, "certificate", certificate)
        return number

    def json(self, process: int, kind: str, document: Any) -> None:
        compressed = zlib.compress(json.dumps(document).encode())
        body = text(kind) + struct.pack("<I", len(compressed)) + compressed
        self.process_definitions[process].append(definition(7, body))

    def hop(
        self,
        number: int,
        op: str = "aten::mm",
        key: str = "CPU",
        process: int = 0,
        address: int = 0,
        boxed: int = 0,
        registered_at: str = "RegisterCPU.cpp:1",
        rule: str = "kernel",
        python_kernel: str = "",
    ) -> None:
        body = struct.pack("<3I2Q", number, 1, 0, address, boxed)
        body += b"".join(map(text, (op, key, registered_at, rule, python_kernel)))
        self.process_definitions[process].append(definition(4, body))

    def symbol(self, address: int, name: str, library: str, offset: int = 0, process: int = 0) -> None:
        body = struct.pack("<2Q", address, offset) + text(name) + text(library)
        self.process_definitions[process].append(definition(8, body))

    def function(
        self,
        number: int,
        name: str,
        *fields: tuple[str, str, str, int, int],
        domain: int = 0,
        process: int = 0,
    ) -> None:
        """`fields`: when, name, type, offset, size."""
        layout = "".join("\t".join(map(str, line)) + "\n" for line in fields)
        body = struct.pack("<2I", domain, number) + text(name) + text(layout)
        self.process_definitions[process].append(definition(9, body))

    def enumeration(self, name: str, process: int = 0, **values: int) -> None:
        lines = "".join(f"{value}={number}\n" for value, number in values.items())
        self.process_definitions[process].append(definition(10, text(name) + text(lines)))

    def graph_node(self, node: int, original: int = 0, correlation: int = 0, process: int = 0) -> None:
        body = struct.pack("<2QI", node, original, correlation)
        self.process_definitions[process].append(definition(12, body))

    def gpu(self, device: int, name: str, process: int = 0, **facts: int) -> None:
        lines = "".join(f"{fact}={number}\n" for fact, number in facts.items())
        body = struct.pack("<I", device) + text(name) + text(lines)
        self.process_definitions[process].append(definition(13, body))

    def module_path(self, number: int, names: str, root: str, process: int = 0) -> None:
        body = struct.pack("<I", number) + text(names) + text(root)
        self.process_definitions[process].append(definition(14, body))

    def string(self, number: int, value: str, process: int = 0) -> None:
        """A string of the process's own lane."""
        self.process_definitions[process].append(definition(3, struct.pack("<I", number) + text(value)))

    def activity(
        self,
        kind: int,
        correlation: int,
        start: int = 0,
        end: int = 0,
        name: int = 0,
        size: int = 0,
        graph: int = 0,
        node: int = 0,
        details: tuple[tuple[int, int], ...] = (),
        process: int = 0,
        device: int = 0,
        stream: int = 7,
        context: int = 1,
    ) -> None:
        """`details`: the words from the eighth on as pairs of (low, high) 32 bits."""
        words = [
            1 << 63 | kind << 56 | device << 32 | correlation,
            start,
            end,
            stream | context << 32,
            name | graph << 32,
            node,
            size,
            *(low | high << 32 for low, high in details),
        ]
        self.activities.setdefault(process, []).append(words + [0] * (16 - len(words)))

    def kernel(self, correlation: int, start: int = 0, end: int = 0, **options: int) -> None:
        grid_block = ((4, 1), (1, 32), (1, 1))
        memory = ((20, 512), (1024, 16), (0, 0), (0, 2048))
        self.activity(1, correlation, start, end, details=(*grid_block, *memory), **options)  # type: ignore[arg-type]

    def lane(self, process: int = 0, number: int = 0, thread: int = 1000, torch_thread: int = 1) -> Lane:
        lane = Lane(self, process, number, thread, self.hop_chunk_bytes)
        self.lanes.append(lane)
        lane.adopt(thread, torch_thread)
        return lane

    def chunks(self) -> list[bytes]:
        """The chunks, those of different lanes interleaved as threads claim them."""
        streams = [
            [self._chunk(2, process, PROCESS_LANE, 0, 0, b"".join(records))]
            for process, records in self.process_definitions.items()
        ]
        for lane in self.lanes:
            if lane.definitions:
                body = b"".join(lane.definitions)
                streams.append([self._chunk(2, lane.process, lane.number, 0, lane.thread, body)])
        for lane in self.lanes:
            streams.append(self._hop_chunks(lane))
        for process, records in self.activities.items():
            half = -(-len(records) // 2)
            halves = [part for part in (records[:half], records[half:]) if part]
            payloads = [b"".join(struct.pack("<16Q", *record) for record in part) for part in halves]
            streams.append(
                [self._chunk(3, process, PROCESS_LANE, i, 0, payload) for i, payload in enumerate(payloads)]
            )
        longest = max(map(len, streams), default=0)
        return [stream[i] for i in range(longest) for stream in streams if i < len(stream)]

    def data(self) -> bytes:
        chunks = self.chunks()
        end = 4096 + sum(map(len, chunks))
        fields = {
            "version": 7,
            "header_bytes": 4096,
            "state": 1,
            "error_number": 0,
            "session": 7,
            "next_chunk": end,
            "start_ticks": 1000,
            "start_ns": 5000,
            "last_ticks": 1000 + 100,
            "last_ns": 5000 + 1000,
            "wall_ns": 0,
            "clock": 1,
            "attached": 0,
            "next_process": len(self.pids),
            "root_pid": 100,
            "flags": 3,
            "reserved": 0,
            "lost_hops": 0,
            "max_bytes": 0,
            "ring_slots": 0,
            "next_slot": 0,
            "definition_bytes": 0,
            "other_definitions": 0,
            "overwritten_hops": 0,
            "overwritten_calls": 0,
            "overwritten_activities": 0,
        } | self.header
        values = list(fields.values())
        header = b"tracer\n\x1a" + struct.pack("<4I7Q6I2Q2I5Q", *values)
        return header.ljust(4096, b"\0") + b"".join(chunks) + bytes(self.trailing_zeros)

    def write(self, path: Path) -> Path:
        path.write_bytes(self.data())
        return path

    def _hop_chunks(self, lane: Lane) -> list[bytes]:
        room = (lane.hop_chunk_bytes - 64) // 8
        groups: list[tuple[int, int, list[int]]] = []
        depth = 0
        for thread, words in lane.events:
            if not groups or len(groups[-1][2]) + len(words) > room:
                groups.append((thread, depth, []))
            groups[-1][2].extend(words)
            kind = words[0] >> 59 & 15
            depth = 0 if kind == 6 else depth + (kind == 1) - (kind == 2)
        return [
            self._chunk(
                *(1, lane.process, lane.number, i, thread, struct.pack(f"<{len(words)}Q", *words)),
                depth=depth,
                ticks=words[0] & (1 << 58) - 1,
            )
            for i, (thread, depth, words) in enumerate(groups)
        ]

    def _chunk(
        self, stream: int, process: int, lane: int, sequence: int, thread: int, payload: bytes, **fields: int
    ) -> bytes:
        return chunk(stream, process, self.pids.get(process, 0), lane, sequence, thread, payload, **fields)  # type: ignore[arg-type]


def one_hop(times: int = 1, /, **documents: Any) -> TraceWriter:
    """A trace of one process with one hop, or as many after each other, and these documents."""
    writer = TraceWriter()
    writer.process(0)
    writer.hop(0)
    lane = writer.lane(0)
    for _ in range(times):
        lane.enter(0)
        lane.exit()
    for kind, document in documents.items():
        writer.json(0, kind, document)
    return writer


def chunk(
    stream: int,
    process: int,
    pid: int,
    lane: int,
    sequence: int,
    thread: int,
    payload: bytes,
    closed: bool = True,
    capacity: int | None = None,
    depth: int = 0,
    ticks: int = 0,
) -> bytes:
    """`depth`: open hops of the thread, `ticks`: the time, both when the chunk was opened."""
    used = 64 + len(payload)
    capacity = capacity or (used + 63) // 64 * 64

    def head(capacity: int, used: int) -> bytes:
        numbers = (process, pid, lane, sequence, thread, 1, depth, 0)
        return struct.pack("<3I2H8IQ", 0x4B4E4843, capacity, used, stream, 0, *numbers, ticks)

    check = struct.pack("<2I", zlib.crc32(head(0, 0)), 0)
    return (head(capacity, used if closed else 0) + check + payload).ljust(capacity, b"\0")
