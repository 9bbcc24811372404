"""Reads a recording while it is being written: the hops that ended since the last look.

Memory is bounded by the definitions, the open hops and what one look reads; what is not read yet
waits in the file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.arrays import Numbering
from tracer.trace.bytes.clock import ns_per_tick
from tracer.trace.bytes.contents import Losses
from tracer.trace.bytes.definitions import Definitions, Signature
from tracer.trace.bytes.events import parse_events, whole_events
from tracer.trace.bytes.leases import is_open_for_writing
from tracer.trace.bytes.reader import TRIMMED_ZEROS, ChunkFile, Place
from tracer.trace.live.lane import LiveLane, LiveRows
from tracer.trace.names.completion import resolve_symbols
from tracer.trace.names.kernels import node_name
from tracer.trace.names.keys import find_key_names
from tracer.trace.names.modules import module_texts
from tracer.trace.tables.hops import KernelNames, is_redispatch, priorities, signatures_table
from tracer.trace.tables.schema import HOP_KINDS, ID, STRING, THREADS
from tracer.trace.tables.series import categories, nanoseconds

_BUDGET = 8 << 20
"""Bytes of hops that one look reads, about."""
_STRIDE = 1 << 16
"""While a file is written chunks begin at multiples of this after the header."""


Scope = tuple[int, int]
"""(process, lane)"""


@dataclass
class _Chunk:
    """A chunk that is not read to its end yet."""

    at: int
    header: fmt.ChunkHeader
    place: Place
    read: int = 0
    """Bytes of the payload that were read"""

    def is_same(self, header: fmt.ChunkHeader | None) -> bool:
        """Whether this header, read again, is still that of the chunk: a ring overwrites it."""
        return header is not None and header.check == self.header.check


@dataclass
class _Growing:
    """Where chunks are looked for in a file that grows."""

    end: int
    slots: range
    """Where the chunks of a ring begin"""
    gaps: list[int] = field(default_factory=list)
    """Where chunks may begin that were claimed and are not in use yet"""
    in_slots: dict[int, int] = field(default_factory=dict)
    """The check of the chunk that was seen last in each slot"""


class Follower:
    """Follows one recording.

    `wait` says whether the recording has begun. `look` reads on; `ended` is then set once nothing
    can come any more, with `killed` where no process stopped it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises TraceError if the file does not exist or is not a trace."""
        self.path = os.fspath(path)
        self.definitions = Definitions(self.path)
        self.signatures: Numbering[Signature] = Numbering()
        self.more = False
        """Whether the last look left something for the next"""
        self.ended = False
        self.killed = False
        self.missed = 0
        """Chunks of a ring that were overwritten before they were read to their end"""
        self._file: ChunkFile | None = None
        self._chunks: list[_Chunk] = []
        self._growing: _Growing | None = None
        self._lanes: dict[Scope, LiveLane] = {}
        self._next: dict[Scope, int] = {}
        self._key_sets: dict[int, int] = {}
        self._rate = float("inf")
        self._resolved = 0

    def close(self) -> None:
        if self._file:
            self._file.close()
            self._file = None

    def wait(self) -> bool:
        """Opens the file; False while it is empty, as before torch is imported.

        Raises TraceError if it is not a trace.
        """
        if self._file is None:
            file = ChunkFile(self.path)
            # The magic is written last. What is packed is no longer written.
            if not file.packed and not any(file.read(0, len(fmt.MAGIC))):
                file.close()
                return False
            self._file = file
            header = file.header()
            if file.packed or (header.state != fmt.RECORDING and not header.attached):
                self._chunks = [_Chunk(0, chunk, place) for chunk, place in file.chunks(Losses())]
            else:
                end = header.header_bytes + header.ring_slots * fmt.SLOT_BYTES
                self._growing = _Growing(end, range(header.header_bytes, end, fmt.SLOT_BYTES))
        return True

    def look(self, *, kernels: bool = False) -> pl.DataFrame:
        """The hops that ended since the last look, and the open hops around them.

        Columns as in Trace.hops: id (the row), parent, process, thread, kind, op, key, kernel (null
        unless `kernels`), start_ns, end_ns, self_ns, inputs (in `signatures_table`), source,
        called_from (both the line that runs it), module (null of a backward pass), backward_node,
        raised, open; and depth (open hops around it), size (hops in it and itself; right for outermost
        ones). In order of process and thread, each after the one that it is in. A hop that is open
        comes again, until it has ended.
        """
        assert self._file is not None, "wait() was not asked"
        over = self._is_over()
        words = self._hop_words()
        self._read_definitions()  # after the hops: what a hop names was written before it
        if kernels:
            self._resolve()
        rows = []
        for scope, sequence, part in words:
            if (gap := sequence - self._next.get(scope, 0)) > 0:  # a ring has overwritten what came before
                self._lanes.pop(scope, None)
                self.missed += gap
            self._next[scope] = sequence + 1
            if len(part):
                rows.append(self._lane(scope).add(parse_events(part, self._key_sets)))
        table = self._table([part for part in rows if len(part.start)], kernels)
        self.ended = over and not self.more
        return table

    @property
    def threads(self) -> pl.DataFrame:
        rows = [(*thread, name) for thread, name in self.definitions.thread_names.items()]
        return pl.DataFrame(rows, THREADS, orient="row")

    @property
    def folder(self) -> str | None:
        """Where the script runs."""
        environments = (documents.get("environment") for documents in self.definitions.documents.values())
        return next((known.get("cwd") for known in environments if isinstance(known, dict)), None)

    def signatures_table(self, numbers: list[int]) -> pl.DataFrame:
        """The rows of Trace.signatures for these numbers of the column `inputs`."""
        every = list(self.signatures.numbers)
        table = signatures_table([every[number] for number in numbers], find_key_names(self.definitions))
        ids = pl.Series(numbers, dtype=ID)
        return table.with_columns(id=ids.gather(table["id"])) if numbers else table

    # ---- the file --------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        """Whether the file is complete: nothing more will be written."""
        assert self._file is not None
        if self._growing is None:
            return True
        header = self._file.header()
        if header.state != fmt.RECORDING and not header.attached:
            return True
        self.killed = not is_open_for_writing(self._file.descriptor)
        return self.killed

    def _hop_words(self) -> list[tuple[Scope, int, np.ndarray]]:
        """Finished events that were not read yet, in the order in which each lane wrote them.

        Of each piece the lane and the sequence of its chunk.
        """
        self._find_chunks()
        found: list[tuple[Scope, int, np.ndarray]] = []
        budget = _BUDGET
        self.more = False
        for chunk in sorted(self._chunks, key=lambda chunk: (chunk.header.ticks, chunk.header.sequence)):
            if chunk.header.stream != fmt.HOPS:
                continue
            if budget <= 0:
                self.more = True
                break
            data, closed = self._new_bytes(chunk)
            if self._is_overwritten(chunk):
                self._chunks.remove(chunk)
                self.missed += chunk.read > 0  # else the next one of the lane shows that it is missing
                continue
            words = np.frombuffer(data, "<u8", len(data) // 8)
            if not closed:
                words = words[: whole_events(words)]
            chunk.read += words.nbytes
            budget -= words.nbytes
            found.append(((chunk.header.process, chunk.header.lane), chunk.header.sequence, words))
            if closed:
                self._chunks.remove(chunk)
        return found

    def _read_definitions(self) -> None:
        self._find_chunks()
        for chunk in list(self._chunks):
            if chunk.header.stream == fmt.HOPS:
                continue
            if chunk.header.stream == fmt.DEFINITIONS:
                data, closed = self._new_bytes(chunk)
                whole = data if closed else data[: _whole_records(data)]
                self.definitions.parse(chunk.header, whole)
                chunk.read += len(whole)
                if not closed:
                    continue
            self._chunks.remove(chunk)  # to its end, or nothing of hops

    def _new_bytes(self, chunk: _Chunk) -> tuple[bytes, bool]:
        """What was not read yet, and whether nothing will be added to the chunk."""
        assert self._file is not None
        closed = self._growing is None
        if not closed and (header := self._file.chunk_header(chunk.at)) and header.used:
            size = header.used - fmt.CHUNK_HEADER.size
            chunk.place, closed = Place(chunk.place.offset, min(size, chunk.place.size)), True
        begin = chunk.place.offset + chunk.read
        if not closed and not any(self._file.read(begin, 8)):
            return b"", False
        data = self._file.read(begin, chunk.place.size - chunk.read)
        return data + TRIMMED_ZEROS if closed else data, closed

    def _find_chunks(self) -> None:
        """Adds the chunks that were begun since the last time."""
        if self._growing is None:
            return
        assert self._file is not None
        size = os.fstat(self._file.descriptor).st_size
        gaps, covered = [], 0
        for at in self._growing.gaps:
            if at < covered:
                continue
            if chunk := self._chunk_at(at):
                covered = at + chunk.header.capacity
            else:
                gaps.append(at)
        while self._growing.end < size:
            at = self._growing.end
            if chunk := self._chunk_at(at):
                self._growing.end += chunk.header.capacity
            else:
                gaps.append(at)
                self._growing.end += _STRIDE
        self._growing.gaps = gaps
        slots = self._growing.slots
        for at in range(slots.start, min(slots.stop, size), slots.step):
            header = self._file.chunk_header(at)
            if header and self._growing.in_slots.get(at) != header.check:
                self._growing.in_slots[at] = header.check
                self._chunk_at(at)

    def _is_overwritten(self, chunk: _Chunk) -> bool:
        assert self._file is not None
        ring = self._growing is not None and chunk.at in self._growing.slots
        return ring and not chunk.is_same(self._file.chunk_header(chunk.at))

    def _chunk_at(self, at: int) -> _Chunk | None:
        """The chunk that begins there, if one does."""
        assert self._file is not None
        header = self._file.chunk_header(at)
        if header is None or header.capacity < fmt.CHUNK_HEADER.size:
            return None
        place = Place(at + fmt.CHUNK_HEADER.size, header.capacity - fmt.CHUNK_HEADER.size)
        self._chunks.append(_Chunk(at, header, place))
        return self._chunks[-1]

    # ---- rows ------------------------------------------------------------------------------------

    def _lane(self, scope: Scope) -> LiveLane:
        return self._lanes.setdefault(scope, LiveLane(*scope))

    def _resolve(self) -> None:
        """Names kernel functions: a process writes their names when it stops."""
        count = sum(map(len, self.definitions.hops.values()))
        if count != self._resolved:
            self._resolved = count
            for process, symbols in resolve_symbols(self.definitions)[0].items():
                self.definitions.symbols[process].update(symbols)

    def _to_ns(self, latest: int) -> float:
        """Nanoseconds of a tick; until the recorder has said it, by this machine's own clock."""
        assert self._file is not None
        header = self._file.header()
        rate, known = ns_per_tick(header)
        if known or self._growing is None or self.killed or latest <= 0:
            return rate
        self._rate = min(self._rate, (time.monotonic_ns() - header.start_ns) / latest)
        return self._rate if 1e-3 < self._rate < 1e3 else rate

    def _table(self, parts: list[LiveRows], kernels: bool) -> pl.DataFrame:
        parts.sort(key=lambda part: (part.process, part.lane))
        latest = max((int(part.end.max()) for part in parts), default=0)
        to_ns = self._to_ns(latest)
        names = _Names(self.definitions, self.signatures, list(self._key_sets), kernels)
        tables, first = [names.table(None, 0, to_ns)], 0
        for part in parts:
            tables.append(names.table(part, first, to_ns))
            first += len(part.start)
        return pl.concat(tables)


class _Names:
    """Writes out what the ids in rows mean."""

    def __init__(
        self,
        definitions: Definitions,
        signatures: Numbering[Signature],
        key_sets: list[int],
        kernels: bool,
    ) -> None:
        self._definitions, self._signatures, self._key_sets = definitions, signatures, key_sets
        self._keys = find_key_names(definitions)
        self._kernels = KernelNames(definitions) if kernels else None

    def table(self, rows: LiveRows | None, first: int, to_ns: float) -> pl.DataFrame:
        """`first`: the rows before these. Without rows an empty table."""
        if rows is None:
            rows = LiveRows.nothing()
        scope, process = (rows.process, rows.lane), rows.process
        definitions = self._definitions
        hops, sources = definitions.hops.get(process, {}), definitions.sources.get(scope, {})
        strings, signatures = definitions.strings.get(scope, {}), definitions.signatures.get(scope, {})
        keys = self._keys.get(process)
        count = len(rows.start)

        def kernel(hop: int) -> str | None:
            return self._kernels.name(process, hops[hop]) if self._kernels and hop in hops else None

        def key(code: int) -> str | None:
            return keys.highest(self._key_sets[code]) if keys else None

        def number(signature: int) -> int | None:
            return self._signatures(signatures[signature]) if signature in signatures else None

        op = _mapped(rows.hop, lambda hop: hops[hop].op if hop in hops else None)
        entry = _mapped(rows.hop, lambda hop: hops[hop].key or None if hop in hops else None)
        start, end = nanoseconds(rows.start, to_ns), nanoseconds(rows.end, to_ns)
        self_ns = np.maximum(end - start - nanoseconds(rows.nested, to_ns), 0)
        codes = op.to_physical()
        parent = pl.Series(np.where(rows.parent >= 0, rows.parent, 0), dtype=ID)
        same = (codes == codes.gather(parent)).fill_null(False).to_numpy() & (rows.parent >= 0)
        level = priorities(self._key_sets)[rows.key_set]
        redispatch = is_redispatch(rows.call_site, same_op=same, below=level < level[rows.parent])
        source = _mapped(rows.source, sources.get)
        node = _mapped(rows.node, lambda name: node_name(strings[name]) if strings.get(name) else None)
        paths = definitions.modules.get(process, {})
        module_of = dict(zip(paths, module_texts(list(paths.values())), strict=True))
        inputs = _mapped(rows.signature, number, ID)
        return pl.DataFrame(
            {
                "id": pl.Series(np.arange(first, first + count), dtype=ID),
                "parent": pl.select(
                    pl.when(pl.Series(rows.parent) >= 0).then(pl.Series(rows.parent + first)).cast(ID)
                ).to_series(),
                "process": pl.Series(np.full(count, process), dtype=pl.UInt32),
                "thread": pl.Series(rows.thread, dtype=pl.UInt32),
                "kind": categories(list(HOP_KINDS)).gather(pl.Series(redispatch).cast(ID)),
                "op": op,
                "key": pl.select(pl.coalesce(_mapped(rows.key_set, key), entry)).to_series(),
                "kernel": _mapped(rows.hop, kernel),
                "start_ns": start,
                "end_ns": end,
                "self_ns": self_ns,
                "inputs": inputs,
                "source": source,
                "called_from": source,
                "module": _mapped(rows.module, module_of.get),
                "backward_node": node,
                "raised": rows.raised,
                "open": rows.open,
                "depth": rows.depth.astype(np.uint16),
                "size": rows.size,
            }
        )


def _mapped(
    values: np.ndarray,
    name: Callable[[int], str | int | None],
    dtype: pl.DataType | type[pl.DataType] = STRING,
) -> pl.Series:
    """name(value) of each value; it is asked once for each distinct one."""
    distinct, inverse = np.unique(values, return_inverse=True)
    found = pl.Series([name(value) for value in distinct.tolist()] or [None], dtype=dtype)
    return found.gather(pl.Series(inverse.reshape(-1), dtype=ID))


def _whole_records(data: bytes) -> int:
    """Bytes of the definitions that are finished."""
    offset = 0
    while offset + fmt.DEFINITION_HEAD.size <= len(data):
        size, _, magic, _ = fmt.DEFINITION_HEAD.unpack_from(data, offset)
        if magic != fmt.DEFINITION_MAGIC or size < fmt.DEFINITION_HEAD.size or offset + size > len(data):
            break
        offset += size
    return offset
