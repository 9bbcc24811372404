"""The trace file, byte by byte: the mirror of csrc/trace/records.h."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

MAGIC = b"tracer\n\x1a"
FORMAT_VERSION = 7
"""The newest version that this reader reads"""
OLDEST_VERSION = 6
"""The oldest one: its ranges have no numbers, and its threads no contexts"""
HEADER_BYTES = 4096
SLOT_BYTES = 1 << 20  # of a ring
SLOT_IN_USE = 2 << 30  # in a slot's owner

# FileState
RECORDING = 0
CLOSED = 1
OUT_OF_SPACE = 2

# ClockKind
TSC = 1
MONOTONIC = 2

# HeaderFlags
SHAPES = 1
SOURCE = 2
FULL = 4
DUMP = 64
"""csrc/trace/dump.h: a copy that was made while the recording went on"""
WHY = 8
VALUES = 16
SCALARS = 32


class FileHeader(NamedTuple):
    magic: bytes
    version: int
    header_bytes: int
    state: int
    error_number: int
    session: int
    next_chunk: int
    start_ticks: int
    start_ns: int
    last_ticks: int
    last_ns: int
    wall_ns: int
    clock: int
    attached: int
    next_process: int
    root_pid: int
    flags: int
    executed: int
    lost_hops: int
    max_bytes: int = 0
    ring_slots: int = 0
    next_slot: int = 0
    definition_bytes: int = 0
    other_definitions: int = 0
    overwritten_hops: int = 0
    overwritten_calls: int = 0
    overwritten_activities: int = 0

    @property
    def is_ring(self) -> bool:
        return self.ring_slots > 0


FILE_HEADER = struct.Struct("<8s4I7Q6I2Q2I5Q")
NEXT_CHUNK_OFFSET = 32
WALL_NS_OFFSET = 72
_END_IS_FINAL = 1 << 62  # in `next_chunk`: the file is closed

CHUNK_MAGIC = 0x4B4E4843
HOP_CHUNK_BYTES = 1 << 20
CHUNK_ALIGNMENT = 64
PROCESS_LANE = 0xFFFFFFFF  # of what belongs to a process and not to a thread

# Stream
HOPS = 1
DEFINITIONS = 2
ACTIVITIES = 3


class ChunkHeader(NamedTuple):
    magic: int
    capacity: int
    used: int
    stream: int
    flags: int
    process: int
    pid: int
    lane: int
    sequence: int
    thread: int
    epoch: int
    depth: int
    reserved: int
    ticks: int
    check: int
    reserved2: int

    def computed_check(self) -> int:
        """CRC-32 of the 56 bytes before `check`, taken with `used` and `capacity` as zero."""
        return zlib.crc32(CHUNK_HEADER.pack(*self._replace(used=0, capacity=0))[:56])


CHUNK_HEADER = struct.Struct("<3I2H8IQ2I")

# The stream of hops: words of 8 bytes, the first word of an event has bit 63 set.
EVENT_BIT = 1 << 63
EVENT_KIND_SHIFT = 59
EVENT_KIND_MASK = 15
BRIEF_SHIFT = 58
TICKS_MASK = (1 << BRIEF_SHIFT) - 1

# HopEvent
ENTER = 1
EXIT = 2
NODE = 3
RANGE_ENTER = 4
RANGE_EXIT = 5
THREAD = 6
API_ENTER = 7
API_EXIT = 8
LIBRARY_ENTER = 9
LIBRARY_EXIT = 10
STEP = 11
MODULE = 12
API_QUERY = 13
MEMORY = 14
THREAD_KEYS = 15
BRIEF_KIND = 16  # added to the kind of an event that is no call's and has the bit `brief`
CONTEXT = 19
RANGE_BEGIN = 20
RANGE_END = 21
THREAD_TIME = 22
TENSOR = 27
RESULTS = 28
MEMORY_LINE = 30
VALUE = 31
# Words of each kind of event, of calls without those of their arguments; 0: there is no such kind.
EVENT_WORDS = (0, 5, 2, 3, 2, 1, 2, 4, 3, 4, 3, 2, 2, 4, 3, 2, 0, 0, 0, 3, 3, 2, 3, *(0,) * 4, 2, 2, 0, 2, 3)

LOW_32 = 0xFFFFFFFF
HIGH_31 = 0x7FFFFFFF  # of a word shifted right by 32
NO_SEQUENCE = 0xFFFFFFFF
OWN_RANGE = 0x1F  # the character that begins the names of tracer's own ranges
OTHER = 0x7FFFFFFF  # an id of what a ring had no space to define
MAX_DEPTH = (1 << 13) - 1
CALL_SITE_SHIFT = 13
CALL_SITE_MASK = 3
RETURN_ADDRESS_SHIFT = 15
EXIT_DEPTH_SHIFT = 32
EXIT_RAISED_SHIFT = 45
EXIT_NODES_SHIFT = 46  # autograd nodes that the thread made meanwhile
ACCUMULATE_GRAD = (1 << 63) - 1  # the sequence number of nodes that no forward hop made

# The call word of the events of API and library calls.
CALL_FUNCTION_MASK = 0xFFFF
CALL_DRIVER_SHIFT = 16
CALL_WORDS_SHIFT = 17
CALL_WORDS_MASK = 31
CALL_HIGH_BITS_SHIFT = 22
CALL_DEPTH_SHIFT = 46
CALL_CALLS_SHIFT = 59
MAX_CALL_WORDS = 24
CALL_ALL_ARGUMENTS = CALL_WORDS_MASK << CALL_WORDS_SHIFT | ((1 << MAX_CALL_WORDS) - 1) << CALL_HIGH_BITS_SHIFT
MAX_CALL_DEPTH = 15
CALL_CAPTURED_SHIFT = 32  # of the second word of an exit; the bits above it are 0

NO_CORRELATION = 0xFFFFFFFF  # of a call that CUPTI does not tell of

# The third word of a query: how long it took, and what was read when it returned.
QUERY_TICKS_MASK = (1 << 30) - 1
QUERY_READ_SHIFT = 30
QUERY_READS_BIT = 1 << 62

# A block of memory that an allocator gave out or took back.
MEMORY_ADDRESS_MASK = (1 << 48) - 1
MEMORY_DEPTH_SHIFT = 48
MEMORY_FREED_SHIFT = 61
MEMORY_SIZE_MASK = (1 << 48) - 1
MEMORY_DEVICE_TYPE_SHIFT = 48
MEMORY_DEVICE_TYPE_MASK = 127
MEMORY_DEVICE_INDEX_SHIFT = 55
MEMORY_DEVICE_INDEX_MASK = 255

# What a thread had of the processor.
UNKNOWN_TIME = EVENT_BIT - 1

# What an op call returned.
VALUE_DEPTH_SHIFT = 48
VALUE_NAN = 1
VALUE_INFINITE = 2
VALUE_UNREAD = 4

# Which tensor one of a call is.
VERSION_SHIFT = 38
STORAGE_MASK = (1 << VERSION_SHIFT) - 1
TENSOR_BIT = 1 << 62
MOST_VERSIONS = (1 << 24) - 1

# CallSite
BY_PARENT = 0
CALL = 1
REDISPATCH = 2
UNASKED = 3

# The stream of definitions: records of multiples of 8 bytes.
DEFINITION_MAGIC = 0xD5F1
DEFINITION_HEAD = struct.Struct("<IHHQ")

# Definition
PROCESS = 1
THREAD_NAME = 2
STRING = 3
HOP = 4
SOURCE_LINE = 5
SIGNATURE = 6
JSON = 7
SYMBOL = 8
FUNCTION = 9
ENUMERATION = 10
STACK = 11
GRAPH_NODE = 12
GPU = 13
MODULE_PATH = 14
PYTHON_STACK = 15
WITH_TORCH_LINES = 1 << 31
CUT_LISTS = 1 << 31
KEYS_OF_THREAD = 16

# FunctionDomain
RUNTIME = 0
DRIVER = 1
LIBRARY = 2

# HopFlags
TYPED_HOP = 1
STATEFUL_HOP = 2
PYTHON_HOP = 4
VIEW_HOP = 8

# One tensor of a signature, before its sizes and strides.
TENSOR_HEAD = struct.Struct("<HBbBbBBQ")
REQUIRES_GRAD = 1
HAS_STRIDES = 2
UNDEFINED = 4
UNKNOWN_DIMENSIONS = 255
UNKNOWN_LAYOUT = 255
UNKNOWN_DEVICE = 255

# The stream of activities: records of 16 words.
ACTIVITY_WORDS = 16
ACTIVITY_KIND_SHIFT = 56

# ActivityKind
GPU_KERNEL = 1
GPU_MEMCPY = 2
GPU_MEMSET = 3

PROCESS_ORIGINS = ("root", "forked", "joined")  # `how` of a Process definition


def unpack_file_header(data: bytes) -> FileHeader:
    """The header at the begin of a file."""
    header = FileHeader(*FILE_HEADER.unpack_from(data))
    return header._replace(next_chunk=header.next_chunk & ~_END_IS_FINAL)


def pack_definition(kind: int, ticks: int, body: bytes) -> bytes:
    """One definition record, padded to 8 bytes."""
    size = -(-(DEFINITION_HEAD.size + len(body)) // 8) * 8
    return (DEFINITION_HEAD.pack(size, kind, DEFINITION_MAGIC, ticks) + body).ljust(size, b"\0")


def pack_string(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return struct.pack("<I", len(data)) + data


def pack_chunk(header: ChunkHeader, payload: bytes) -> bytes:
    """A closed chunk as short as it can be: `used`, `capacity` and `check` are filled in."""
    used = CHUNK_HEADER.size + len(payload)
    capacity = -(-used // CHUNK_ALIGNMENT) * CHUNK_ALIGNMENT
    header = header._replace(magic=CHUNK_MAGIC, used=used, capacity=capacity)
    header = header._replace(check=header.computed_check())
    return (CHUNK_HEADER.pack(*header) + payload).ljust(capacity, b"\0")
