"""The Python stack of a stopped process, read from its memory.

Needs no debug information and calls nothing in the process: the process itself has measured where its CPython
keeps things (gdb/inferior/python_layout.py), and this reads it. Runs on Python 3.8 and later.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from typing import Any

PAGE = 4096
MOST_THREADS = 4096
MOST_CHARACTERS = 4096
MOST_LINE_TABLE_BYTES = 1 << 20
MOST_CACHED_CODES = 1 << 14
# Frames of C code are passed over; this many to each Python frame, and this many more, at most.
HIDDEN_FRAMES = 2, 64
# Line tables are compared up to here when a code object is met again; their length is always compared.
COMPARED_LINE_TABLE_BYTES = 2048

WORD = struct.Struct("<Q")
INT = struct.Struct("<i")
UNREADABLE_TEXT = "?"
# The offset of a frame that has executed nothing; CPython 3.10 and before count it as running.
NOT_STARTED = -2


class UnreadableError(Exception):
    """Memory that is not mapped, or does not hold what it should."""


class PythonStack:
    """Reads Python stacks; decoded code objects are kept from one stop to the next.

    `layout` is what measure() returned in the stopped process; `memory.read(address, size)` returns bytes, or
    raises any exception where it cannot. ValueError: the layout could not be measured, or does not fit.
    """

    def __init__(self, layout: dict[str, Any], memory: Any) -> None:
        if "error" in layout:
            raise ValueError(f"tracer could not find the layout of this Python: {layout['error']}")
        self.memory = memory
        self.thread = layout["thread"]
        self.frame = FrameReader(layout["frame"])
        self.codes = CodeReader(layout)
        self.cache: dict[int, Code] = {}
        self.check(layout["check"])

    def check(self, known: dict[str, Any]) -> None:
        """Compares a code object with what the process says about it; ValueError: they differ."""
        try:
            code = self.codes.read(Window(self.memory), known["code"])
        except UnreadableError as error:
            raise ValueError(f"the Python layout does not match this process: {error}") from error
        read = [code.file, code.function, [[offset, code.line(offset)] for offset, _line in known["lines"]]]
        if read != [known["file"], known["function"], known["lines"]]:
            raise ValueError(
                f"the Python layout does not match this process: it gives {read[:2]} for {known}"
            )

    def frames(self, thread_pointer: int, limit: int = 64) -> list[tuple[str, str, int]]:
        """(file, function, line) of the running frames, innermost first; line 0: it has none.

        The thread is the one whose pthread_t (its $fs_base on x86-64) is `thread_pointer`. Empty if it runs
        no Python. Where memory is damaged, the stack ends.
        """
        window = Window(self.memory)
        found: list[tuple[str, str, int]] = []
        known: dict[int, Code] = {}
        try:
            address = self.innermost(window, thread_pointer)
            for _ in range(HIDDEN_FRAMES[0] * limit + HIDDEN_FRAMES[1]):
                if not address or len(found) >= limit:
                    break
                code_address, address, instruction = self.frame.read(window, address)
                code = known.get(code_address)
                if code is None:
                    if not self.codes.is_code(window, code_address):
                        continue
                    code = known[code_address] = self.code_at(window, code_address)
                offset = self.frame.offset(instruction, code_address)
                if offset >= code.first_offset:
                    found.append((code.file, code.function, code.line(offset)))
        except UnreadableError:
            pass
        return found

    def innermost(self, window: Window, thread_pointer: int) -> int:
        """The address of the thread's innermost frame; 0 if it has none."""
        state = window.word(self.thread["list"])
        for _ in range(MOST_THREADS):
            if not state:
                break
            if window.word(state + self.thread["id"]) == thread_pointer:
                frame = state
                for offset in self.thread["frame"]:
                    frame = frame and window.word(frame + offset)
                if frame:
                    return frame
            state = window.word(state + self.thread["next"])
        return 0

    def code_at(self, window: Window, address: int) -> Code:
        """The code object, decoded anew if its address was given to another since."""
        code = self.cache.get(address)
        if code is None or not code.is_still_in(window):
            if len(self.cache) >= MOST_CACHED_CODES:
                self.cache.clear()
            code = self.cache[address] = self.codes.read(window, address)
        return code


class Window:
    """The memory during one stop, read in whole pages, each at most once."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.pages: dict[int, bytes] = {}

    def read(self, address: int, size: int) -> bytes:
        first = address & -PAGE
        page = self.pages.get(first)
        if page is None:
            page = self.load(first)
        start = address - first
        if start + size <= PAGE:
            return page[start : start + size]
        parts = [page[start:]]
        for following in range(first + PAGE, address + size, PAGE):
            parts.append(self.pages.get(following) or self.load(following))
        return b"".join(parts)[:size]

    def load(self, first: int) -> bytes:
        if not PAGE <= first < 1 << 63:
            raise UnreadableError(f"no memory at {first:#x}")
        try:
            page = bytes(self.memory.read(first, PAGE))
        except Exception as error:
            raise UnreadableError(f"no memory at {first:#x}: {error}") from error
        if len(page) != PAGE:
            raise UnreadableError(f"no memory at {first:#x}")
        self.pages[first] = page
        return page

    def word(self, address: int) -> int:
        return WORD.unpack(self.read(address, 8))[0]


class FrameReader:
    def __init__(self, layout: dict[str, Any]) -> None:
        self.base, self.scale = layout["base"], layout["scale"]
        fields = [("code", "Q"), ("previous", "Q"), ("instruction", "i" if self.base is None else "Q")]
        fields.sort(key=lambda field: layout[field[0]])
        self.first = layout[fields[0][0]]
        form, end = "<", self.first
        for name, letter in fields:
            form += f"{layout[name] - end}x{letter}"
            end = layout[name] + struct.calcsize(f"<{letter}")
        self.form = struct.Struct(form)
        names = [name for name, _letter in fields]
        self.order = tuple(names.index(name) for name in ("code", "previous", "instruction"))

    def read(self, window: Window, address: int) -> tuple[int, int, int]:
        """(code object, caller's frame, instruction as it is kept); low bits of the first may be a tag."""
        values = self.form.unpack(window.read(address + self.first, self.form.size))
        code, previous, instruction = self.order
        return values[code] & -8, values[previous], values[instruction]

    def offset(self, instruction: int, code: int) -> int:
        """In bytes from the code's first instruction."""
        return instruction * self.scale if self.base is None else instruction - code - self.base


class Code:
    """What is needed of a code object, and its evidence: the memory it was read from, (address, bytes)."""

    def __init__(self, texts: list[str], first_line: int, first_offset: int, evidence: list) -> None:
        self.file, self.function = texts
        self.first_line, self.first_offset = first_line, first_offset
        self.evidence = evidence
        self.starts: list[int] = []
        self.lines: list[int] = []

    def is_still_in(self, window: Window) -> bool:
        try:
            return all(window.read(address, len(data)) == data for address, data in self.evidence)
        except UnreadableError:
            return False

    def line(self, offset: int) -> int:
        index = bisect_right(self.starts, offset) - 1
        return self.lines[index] if index >= 0 else self.first_line


class CodeReader:
    def __init__(self, layout: dict[str, Any]) -> None:
        self.code, self.str, self.bytes = layout["code"], layout["str"], layout["bytes"]
        self.kinds = {value: (width, data) for value, width, data in self.str["kinds"]}
        self.decode = DECODERS[layout["lines"]]
        fields = [self.code[name] for name in ("file", "function", "lines", "first_line")]
        self.first, self.size = min(fields), max(fields) + 8 - min(fields)

    def is_code(self, window: Window, address: int) -> bool:
        return bool(address) and window.word(address + self.code["type"]) == self.code["type_address"]

    def read(self, window: Window, address: int) -> Code:
        if not self.is_code(window, address):
            raise UnreadableError(f"no code object at {address:#x}")
        evidence = [(address + self.first, window.read(address + self.first, self.size))]
        first_line = INT.unpack(window.read(address + self.code["first_line"], 4))[0]
        first_offset = NOT_STARTED
        if "first_traceable" in self.code:
            place = address + self.code["first_traceable"]
            evidence.append((place, window.read(place, 4)))
            first_offset = 2 * INT.unpack(evidence[-1][1])[0]
        pointers = [window.word(address + self.code[name]) for name in ("file", "function")]
        texts = [self.text(window, pointer, evidence) for pointer in pointers]
        code = Code(texts, first_line, first_offset, evidence)
        table = self.table(window, window.word(address + self.code["lines"]), evidence)
        if table is None:
            code.first_line = 0
        else:
            code.starts, code.lines = self.decode(table, first_line)
        return code

    def text(self, window: Window, address: int, evidence: list) -> str:
        """A str, at most MOST_CHARACTERS of it."""
        length = window.word(address + self.str["length"])
        state = window.read(address + self.str["state"], 4)
        evidence.append((address + self.str["state"], state))
        kind = INT.unpack(state)[0] & self.str["mask"]
        if kind not in self.kinds:
            return UNREADABLE_TEXT
        width, offset = self.kinds[kind]
        size = min(length, MOST_CHARACTERS) * width
        first = address + self.str["length"]
        evidence.append((first, window.read(first, address + offset + size - first)))
        data = window.read(address + offset, size)
        if width == 1:
            return data.decode("latin-1")
        try:
            return "".join(map(chr, array("H" if width == 2 else "I", data)))
        except (ValueError, OverflowError):
            return UNREADABLE_TEXT

    def table(self, window: Window, address: int, evidence: list) -> bytes | None:
        """The line table; None: too long to be one."""
        size = window.word(address + self.bytes["size"])
        if size > MOST_LINE_TABLE_BYTES:
            return None
        data = window.read(address + self.bytes["data"], size)
        evidence.append((address + self.bytes["size"], WORD.pack(size)))
        evidence.append((address + self.bytes["data"], data[:COMPARED_LINE_TABLE_BYTES]))
        return data


# Line tables: the offsets at which stretches of instructions start, ascending, and their lines


def decode_lnotab(table: bytes, line: int) -> tuple[list[int], list[int]]:
    """CPython 3.9 and before: pairs of (bytes further, signed lines further)."""
    starts, lines, offset = [], [], 0
    for i in range(0, len(table) - 1, 2):
        offset += table[i]
        line += table[i + 1] - (table[i + 1] >= 128) * 256
        starts.append(offset)
        lines.append(line)
    return starts, lines


def decode_ranges(table: bytes, line: int) -> tuple[list[int], list[int]]:
    """CPython 3.10: pairs of (bytes covered, signed lines further); -128: these have no line."""
    starts, lines, offset = [], [], 0
    for i in range(0, len(table) - 1, 2):
        delta = table[i + 1] - (table[i + 1] >= 128) * 256
        if delta != -128:
            line += delta
        starts.append(offset)
        lines.append(0 if delta == -128 else line)
        offset += table[i]
    return starts, lines


def decode_locations(table: bytes, line: int) -> tuple[list[int], list[int]]:
    """CPython 3.11 and later: entries; the first byte of each, and no other, has its top bit set."""
    starts, lines, offset, i = [], [], 0, 0
    while i < len(table):
        form, units = table[i] >> 3 & 15, (table[i] & 7) + 1
        i += 1
        if form in (13, 14):  # without columns, and in full
            line += signed_number(table, i)
        elif 10 <= form <= 12:  # within one line
            line += form - 10
        starts.append(offset)
        lines.append(0 if form == 15 else line)
        offset += 2 * units
        while i < len(table) and not table[i] & 128:
            i += 1
    return starts, lines


def signed_number(table: bytes, i: int) -> int:
    """Six bits a byte, the lowest first, while bit 6 is set; the lowest of all is the sign."""
    value = shift = 0
    for byte in table[i : i + 6]:
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            break
    return -(value >> 1) if value & 1 else value >> 1


DECODERS = {"lnotab": decode_lnotab, "ranges": decode_ranges, "locations": decode_locations}
