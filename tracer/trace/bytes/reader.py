"""Reads the chunks of a trace file; skips damaged ones and counts them.

Chunks are read with pread and not through a mapping: a recording that ends meanwhile trims its
file, and a mapping would then kill the reader (SIGBUS).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tracer.base import progress
from tracer.base.boundary import open_regular
from tracer.base.quoting import quoted
from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.activities import parse_activities
from tracer.trace.bytes.contents import Contents, Losses
from tracer.trace.bytes.documents import Budget
from tracer.trace.bytes.endings import DUMPED, KILLED, WRITTEN
from tracer.trace.bytes.events import EventBlock, parse_events
from tracer.trace.bytes.leases import has_writer
from tracer.trace.bytes.packed import PackedError, is_packed, unpack
from tracer.trace.bytes.trace_errors import TraceError


class Place(NamedTuple):
    """The payload of a chunk in a file: its offset, and how many bytes may be read."""

    offset: int
    size: int


# The root trims the chunks of killed processes at their last word that is not zero, and a record
# may end with zeros.
TRIMMED_ZEROS = bytes(2048)


class ChunkFile:
    """The bytes of a trace file, packed or not, and the chunks in them."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.descriptor = open_regular(path)
        except FileNotFoundError:
            raise TraceError(f"no such file: {path}") from None
        except OSError as error:
            raise TraceError(f"cannot read {path}: {error.strerror}") from None
        facts = os.fstat(self.descriptor)
        self.owner = facts.st_uid
        self.packed = self._unpack()
        self.packed_size = facts.st_size if self.packed else None

    def _unpack(self) -> bool:
        """Reads on from the unpacked file; returns whether it was packed."""
        packed = self.descriptor
        try:
            if not is_packed(packed):
                return False
            self.descriptor = unpack(packed)
        except (OSError, PackedError) as error:
            os.close(packed)
            raise TraceError(f"cannot read {self.path}: {getattr(error, 'strerror', '') or error}") from None
        os.close(packed)
        return True

    def __enter__(self) -> ChunkFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self.descriptor)

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end of the file."""
        pieces = []
        while size > 0:
            piece = os.pread(self.descriptor, size, offset)
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def header(self) -> fmt.FileHeader:
        try:
            self.size = os.fstat(self.descriptor).st_size
            data = self.read(0, fmt.HEADER_BYTES)
        except OSError as error:
            raise TraceError(f"cannot read {self.path}: {error.strerror}") from None
        if not data and self.packed:
            raise TraceError(f"{self.path} is a damaged packed file; tracer cannot read anything from it")
        if not data:
            raise TraceError(f"{self.path} is empty: nothing was recorded to it")
        if not data.startswith(fmt.MAGIC[: len(data)]):
            raise TraceError(_not_a_trace(str(self.path)))
        if len(data) < fmt.HEADER_BYTES:
            raise TraceError(
                f"{self.path} ends inside its header "
                f"({len(data)} of {fmt.HEADER_BYTES} bytes); tracer cannot read anything from it"
            )
        header = fmt.unpack_file_header(data)
        self.slots = header.ring_slots
        aligned = header.header_bytes % fmt.HEADER_BYTES == 0
        self.first = header.header_bytes if aligned and header.header_bytes <= self.size else fmt.HEADER_BYTES
        if header.version < fmt.OLDEST_VERSION:
            raise TraceError(
                f"{self.path} has trace format {header.version}, which was never released; this tracer reads "
                f"{fmt.OLDEST_VERSION} and {fmt.FORMAT_VERSION}: record it again"
            )
        if header.version > fmt.FORMAT_VERSION:
            raise TraceError(
                f"{self.path} has trace format {header.version}, but this tracer reads "
                f"{fmt.OLDEST_VERSION} and {fmt.FORMAT_VERSION}: upgrade tracer to read it"
            )
        return header

    def chunk_header(self, offset: int) -> fmt.ChunkHeader | None:
        data = self.read(offset, fmt.CHUNK_HEADER.size)
        if len(data) < fmt.CHUNK_HEADER.size:
            return None
        header = fmt.ChunkHeader(*fmt.CHUNK_HEADER.unpack(data))
        whole = header.magic == fmt.CHUNK_MAGIC and header.check == header.computed_check()
        return header if whole else None

    def next_chunk(self, offset: int, limit: int) -> int:
        """Where the first chunk header at or after `offset` is; `limit` if there is none before."""
        step = 1 << 20
        for start in range(offset, limit, step):
            words = np.frombuffer(self.read(start, min(step, limit - start) // 64 * 64), "<u4")
            for index in np.flatnonzero(words[::16] == fmt.CHUNK_MAGIC):
                found = start + int(index) * fmt.CHUNK_ALIGNMENT
                if self.chunk_header(found):
                    return found
        return limit

    def is_blank(self, start: int, end: int) -> bool:
        step = 1 << 20
        return not any(
            self.read(offset, min(step, end - offset)).strip(b"\0") for offset in range(start, end, step)
        )

    def is_being_taken(self, offset: int) -> bool:
        """Whether a slot of a ring was being erased: what was in it counts as overwritten."""
        slot, rest = divmod(offset - self.first, fmt.SLOT_BYTES)
        if rest or slot >= self.slots:
            return False
        owner = int.from_bytes(self.read(fmt.HEADER_BYTES + 4 * slot, 4), "little")
        return bool(owner & fmt.SLOT_IN_USE) and self.is_blank(offset, offset + fmt.CHUNK_HEADER.size)

    def end_of_slot(self, offset: int) -> int:
        """Where the ring's slot at this offset ends; behind the slots, the end of the file."""
        slot = (offset - self.first) // fmt.SLOT_BYTES
        return min(self.first + (slot + 1) * fmt.SLOT_BYTES, self.size) if slot < self.slots else self.size

    def payload(self, header: fmt.ChunkHeader, place: Place) -> bytes:
        payload = self.read(*place)
        return payload + TRIMMED_ZEROS if header.used else payload

    def chunks(self, losses: Losses) -> Iterator[tuple[fmt.ChunkHeader, Place]]:
        """Each chunk with a whole header, and where its payload is."""
        offset = self.first
        while offset < self.size:
            header = self.chunk_header(offset)
            if header is None:
                end = self.next_chunk(offset + fmt.CHUNK_ALIGNMENT, self.end_of_slot(offset))
                # A thread that was killed between claiming a chunk and opening it left zeros.
                unused = self.is_being_taken(offset) or self.is_blank(offset, end)
                losses.damaged_chunks += not unused
                offset = end
                continue
            body = offset + fmt.CHUNK_HEADER.size
            claimed = offset + header.capacity
            # `capacity` is not covered by the check, so it is not trusted over what follows.
            fits = body <= claimed <= self.size and (
                claimed == self.size
                or self.chunk_header(claimed) is not None
                or self.is_blank(claimed, min(claimed + fmt.CHUNK_ALIGNMENT, self.size))
            )
            end = self.next_chunk(body, claimed if fits else self.size)
            used_fits = header.used == 0 or fmt.CHUNK_HEADER.size <= header.used <= end - offset
            if end != claimed or not used_fits:
                losses.damaged_chunks += 1
            stop = offset + header.used if header.used and used_fits else end
            if not used_fits:
                header = header._replace(used=0)
            yield header, Place(body, stop - body)
            offset = end
        self.end = offset


def _not_a_trace(path: str) -> str:
    if path.endswith(".py"):
        return f"{path} is not a trace; to record it: tracer record {quoted(path)}"
    return f"{path} is not a trace; give a file that tracer recorded"


def read_recording(path: str | os.PathLike[str]) -> Contents:
    """Reads a trace file.

    Raises TraceError if the file is not a trace, is empty, ends inside its header or has another
    format. All other damage is counted in `Contents.losses`.
    """
    with ChunkFile(os.fspath(path)) as file:
        return read_chunks(file, lambda words, key_sets, _header, _place: parse_events(words, key_sets))


ParseHops = Callable[[NDArray[np.uint64], dict[int, int], fmt.ChunkHeader, Place], EventBlock]
"""Makes the events of a chunk of hops from its words; adds to the key sets seen."""


def read_chunks(file: ChunkFile, parse_hops: ParseHops) -> Contents:
    recording = _read(file, parse_hops)
    # A recording that ended meanwhile has moved its chunks.
    while file.header().state != recording.header.state:
        recording = _read(file, parse_hops)
    return recording


def _read(file: ChunkFile, parse_hops: ParseHops) -> Contents:
    recording = Contents(file.path, file.header(), file.packed, file.owner, file.first)
    recording.definitions.path = file.path
    recording.definitions.budget = Budget(file.packed_size)
    recording.definitions.left_out = recording.header.other_definitions
    losses = recording.losses
    for header, place in file.chunks(losses):
        recording.chunks += 1
        progress.done(place.offset, file.size)
        recording.pids.setdefault(header.process, header.pid)
        payload = file.payload(header, place)
        words = np.frombuffer(payload, "<u8", len(payload) // 8)
        if header.stream == fmt.HOPS:
            block = parse_hops(words, recording.key_sets, header, place)
            sequences = recording.lanes.setdefault((header.process, header.lane), {})
            if header.sequence in sequences:
                losses.damaged_chunks += 1
                continue
            sequences[header.sequence] = header, block
            losses.torn_events += block.torn
            losses.damaged_chunks += block.damaged
        elif header.stream == fmt.DEFINITIONS:
            torn, damaged = recording.definitions.parse(header, payload)
            losses.torn_events += torn
            losses.damaged_chunks += damaged
        elif header.stream == fmt.ACTIVITIES:
            records, torn, damaged = parse_activities(words)
            activities = recording.activities.setdefault((header.process, header.lane), {})
            if header.sequence in activities:
                losses.damaged_chunks += 1
                continue
            activities[header.sequence] = records
            losses.torn_events += torn
            losses.damaged_chunks += damaged
        else:
            losses.damaged_chunks += 1
    losses.torn_events += recording.definitions.damaged_documents
    recording.end = max(file.end, file.first)
    recording.written = _is_written(file, recording.header)
    if recording.header.flags & fmt.DUMP:
        recording.ended = DUMPED
    elif recording.header.state == fmt.RECORDING:
        recording.ended = WRITTEN if recording.written else KILLED
    losses.missing_bytes = _missing_bytes(recording, file.size)
    chunks: list[Collection[int]] = [*recording.lanes.values(), *recording.activities.values()]
    if not recording.header.is_ring:  # there they were overwritten
        losses.missing_chunks += sum(max(numbers) + 1 - len(numbers) for numbers in chunks)
    return recording


def _is_written(file: ChunkFile, header: fmt.FileHeader) -> bool:
    if file.packed:
        return False
    written = has_writer(file.descriptor)
    return os.path.exists(f"/proc/{header.root_pid}") if written is None else written


def _missing_bytes(recording: Contents, size: int) -> int:
    """How many bytes were missing at the end of the file, as far as its header tells."""
    header = recording.header
    missing = max(0, header.next_chunk - size)
    if header.state == fmt.CLOSED and not header.executed:
        return missing
    if recording.ended == KILLED or header.executed:
        # Each thread may have died between asking for a chunk and getting it.
        possible = fmt.HOP_CHUNK_BYTES * (len(recording.lanes) + 2 * len(recording.pids))
        return missing if missing > possible else 0
    return 0
