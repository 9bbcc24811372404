"""Finds where this CPython keeps its Python stack, for a debugger that reads it without debug information.

Runs inside the process that will be debugged. CPython 3.13 and later publish most offsets. The others, and
all of older versions, are searched for in the process's own memory, over several samples whose values Python
itself states, and must be the only ones that fit them all. Offsets and sizes are in bytes; absolute addresses
hold for this process alone.
"""

from __future__ import annotations

import _thread
import ctypes
import os
import struct
import sys
import time
import types

TRY_FOR_S = 0.5
THREAD_STATE_BYTES = 512
INTERPRETER_BYTES = 1 << 16
FRAME_BYTES = 80
CODE_BYTES = 256
SECOND_THREAD_S = 2.0

# _PyRuntime begins with words that say where things are: Include/internal/pycore_debug_offsets.h.
# Each version of CPython has its own order: here are the numbers of the words that are parts of the layout.
PUBLISHED = (
    "thread.list thread.next thread.frame thread.id frame.previous frame.code frame.instruction"
    " code.file code.function code.lines code.first_line frame.base code.type bytes.size bytes.data"
).split()
PUBLISHED_AT = {
    (3, 13): (9, 21, 23, 24, 29, 30, 31, 35, 37, 38, 39, 43, 45, 65, 66),
    (3, 14): (9, 24, 26, 27, 32, 33, 34, 40, 42, 43, 44, 48, 51, 75, 76),
}

# A letter, its encoding in memory, and its width; the first is stored in another structure than the second.
STR_KINDS = [
    ("a", "latin-1", 1),
    ("\xe9", "latin-1", 1),
    ("\u0436", "utf-16-le", 2),
    ("\U0001f40d", "utf-32-le", 4),
]

# Their code objects differ in the first traceable instruction, and in cells and free variables otherwise.
SHAPES = """
def plain(a):
    return a
def cells(a, b, c):
    return lambda: (a, b, c)
def generator():
    yield 1
def generator_with_cells(a, b):
    yield lambda: (a, b)
"""


def measure() -> dict:
    """The layout, ready for JSON, or {"error": why it could not be found}. Raises nothing.

    Other threads that start and end meanwhile spoil a measurement.
    """
    deadline = time.monotonic() + TRY_FOR_S
    while True:
        try:
            refuse_other_builds()
            return measure_once()
        except Exception as error:
            if time.monotonic() > deadline:
                return {"error": str(error) or type(error).__name__}


class NotFoundError(Exception):
    """An offset that no place, or more than one, fits."""


class Memory:
    """The process's own memory; an address that is not mapped raises OSError and does no harm."""

    def __init__(self) -> None:
        self.file = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)

    def read(self, address: int, size: int) -> bytes:
        return os.pread(self.file, size, address)

    def word(self, address: int) -> int:
        return struct.unpack("<Q", self.read(address, 8))[0]

    def close(self) -> None:
        os.close(self.file)


def refuse_other_builds() -> None:
    if sys.implementation.name != "cpython":
        raise NotFoundError(f"the Python is {sys.implementation.name}, not CPython")
    if "t" in getattr(sys, "abiflags", ""):
        raise NotFoundError("the Python is a free-threaded build")
    if struct.calcsize("P") != 8 or sys.byteorder != "little":
        raise NotFoundError("the Python is not a 64-bit little-endian build")


def measure_once() -> dict:
    memory = Memory()
    try:
        codes = sample_codes()
        offsets = published_offsets(memory)
        return {
            "python": sys.version.split()[0],
            **(published_layout(memory, codes, offsets) if offsets else searched_layout(memory, codes)),
            "lines": lines_format(codes[0]),
            "str": measure_str(memory),
            "check": known_code(),
        }
    finally:
        memory.close()


# What CPython publishes


def published_offsets(memory: Memory) -> dict:
    """{name: offset}; empty if this version publishes none, or in an order that is not known here."""
    numbers = PUBLISHED_AT.get(sys.version_info[:2], ())
    if not numbers or sys.version_info.releaselevel != "final":
        return {}
    runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
    words = memory.read(runtime, 8 * (max(numbers) + 1))
    if words[:16] != struct.pack("<8sQ", b"xdebugpy", sys.hexversion):
        raise NotFoundError("_PyRuntime does not begin with the offsets of this version")
    return {name: struct.unpack_from("<Q", words, 8 * at)[0] for name, at in zip(PUBLISHED, numbers)}


def published_layout(memory: Memory, codes: list, offsets: dict) -> dict:
    layout = {"thread": {}, "frame": {"scale": 1}, "code": {"type_address": id(types.CodeType)}, "bytes": {}}
    for name, offset in offsets.items():
        part, field = name.split(".")
        layout[part][field] = offset
    layout["code"].update(measure_first_traceable(memory, codes))
    layout["thread"]["list"] += own_interpreter()
    layout["thread"]["frame"] = [layout["thread"]["frame"]]
    return layout


def searched_layout(memory: Memory, codes: list) -> dict:
    frame, object_to_frame = descend(memory, 6)
    thread = measure_threads(memory)
    thread["frame"] = measure_current_frame(memory, object_to_frame)
    code = {**measure_code(memory, codes), **measure_first_traceable(memory, codes)}
    return {"thread": thread, "frame": frame, "code": code, "bytes": measure_bytes(memory)}


# Searching


def places(data: bytes, value: int, form: str = "<Q") -> set:
    """The aligned offsets of `value` in `data`."""
    step = struct.calcsize(form)
    sought = struct.pack(form, value)
    return {i for i in range(0, len(data) - step + 1, step) if data[i : i + step] == sought}


def only(candidates: list, what: str):
    """The one candidate that every sample has; `candidates` holds a set for each sample."""
    found = set.intersection(*candidates)
    if len(found) != 1:
        raise NotFoundError(f"{what}: {sorted(found) or 'no place'} of {len(candidates)} samples")
    return found.pop()


# Strings and bytes


def measure_str(memory: Memory) -> dict:
    """Where a str has its length, its kind and, for each kind, its characters.

    The kind is in the bits of a 32-bit word that differ between the kinds and never within one.
    """
    head = object.__basicsize__
    lengths, states, data_offsets = [], [], []
    for letter, encoding, _width in STR_KINDS:
        # Built while running, so that they differ in nothing else but being interned or not.
        samples = ["".join([letter, "x" * i, letter]) for i in (1, 2, 5, 8, 19, 36)]
        samples += [sys.intern("".join([letter, "y" * i])) for i in (1, 2, 4, 9, 33)]
        raw = [memory.read(id(text), sys.getsizeof(text)) for text in samples]
        lengths += [places(raw[i], len(samples[i])) for i in range(len(samples))]
        header = min(len(data) for data in raw) // 4
        states.append([struct.unpack_from(f"<{header}I", data) for data in raw])
        encoded = [text.encode(encoding) for text in samples]
        # The last of them: the header holds a random hash, which can look like a short text.
        found = [{raw[i].rfind(encoded[i])} for i in range(len(samples))]
        data_offsets.append(only(found, "characters of a str"))
    found = []
    for index in range(head // 4, min(data_offsets) // 4):
        mask, values = telling_bits([[words[index] for words in kind] for kind in states])
        if len(set(values)) == len(STR_KINDS):
            found.append((index * 4, mask, values))
    if len(found) != 1:
        raise NotFoundError(f"kind of a str: {len(found)} places")
    state, mask, values = found[0]
    described = [[values[i], STR_KINDS[i][2], data_offsets[i]] for i in range(len(STR_KINDS))]
    return {"length": only(lengths, "length of a str"), "state": state, "mask": mask, "kinds": described}


def telling_bits(kinds: list) -> tuple:
    """The bits that are the same within each kind but not in all kinds, and what each kind has there."""
    steady = 0xFFFFFFFF
    for words in kinds:
        for word in words:
            steady &= ~(word ^ words[0])
    differing = 0
    for words in kinds:
        differing |= words[0] ^ kinds[0][0]
    mask = steady & differing
    return mask, [words[0] & mask for words in kinds]


def measure_bytes(memory: Memory) -> dict:
    samples = [bytes(range(1, size)) for size in (12, 60, 200)]
    raw = [memory.read(id(sample), sys.getsizeof(sample)) for sample in samples]
    count = range(len(samples))
    return {
        "size": only([places(raw[i], len(samples[i])) for i in count], "size of a bytes"),
        "data": only([{raw[i].find(samples[i])} for i in count], "data of a bytes"),
    }


# Code objects


def sample_codes() -> list:
    """Code objects that never ran, of known shapes and unusual first lines."""
    found, waiting = [], []
    for line in (1234, 5678):
        waiting.append(compile("\n" * line + SHAPES, f"<layout {line}>", "exec"))
    while waiting:
        inner = [const for const in waiting.pop().co_consts if isinstance(const, types.CodeType)]
        found += inner
        waiting += inner
    return found


def measure_code(memory: Memory, codes: list) -> dict:
    raw = [code_memory(memory, code) for code in codes]
    count = range(len(codes))

    def pointer_to(name: str) -> int:
        return only([places(raw[i], id(getattr(codes[i], name))) for i in count], name)

    heads = [data[: object.__basicsize__] for data in raw]
    return {
        "type": only([places(head, id(types.CodeType)) for head in heads], "type of a code object"),
        "type_address": id(types.CodeType),
        "file": pointer_to("co_filename"),
        "function": pointer_to("co_qualname" if hasattr(codes[0], "co_qualname") else "co_name"),
        "lines": pointer_to("co_linetable" if hasattr(codes[0], "co_linetable") else "co_lnotab"),
        "first_line": only([places(raw[i], codes[i].co_firstlineno, "<i") for i in count], "co_firstlineno"),
    }


def measure_first_traceable(memory: Memory, codes: list) -> dict:
    """Where a code object has the index of the instruction before which its frame does not count as running.

    No version publishes it; before 3.11 there is none.
    """
    import opcode

    resume = opcode.opmap.get("RESUME")
    if resume is None:
        return {}
    found = [places(code_memory(memory, code), code.co_code[::2].index(resume), "<i") for code in codes]
    return {"first_traceable": only(found, "first traceable")}


def code_memory(memory: Memory, code: types.CodeType) -> bytes:
    return memory.read(id(code), min(CODE_BYTES, sys.getsizeof(code)))


def lines_format(code: types.CodeType) -> str:
    if hasattr(code, "co_positions"):
        return "locations"
    return "ranges" if hasattr(code, "co_linetable") else "lnotab"


def known_code() -> dict:
    """What Python says about a code object that lives as long as the process, for the reader to compare."""
    code = os._Environ.__getitem__.__code__
    if hasattr(code, "co_lines"):
        lines = [[start, line] for start, end, line in code.co_lines() if line is not None and end > start]
    else:
        import dis

        lines = [list(pair) for pair in dis.findlinestarts(code)]
    function = getattr(code, "co_qualname", code.co_name)
    return {"code": id(code), "file": code.co_filename, "function": function, "lines": lines}


# Frames


def descend(memory: Memory, depth: int) -> tuple:
    """Puts frames of one function, held at different instructions, below each other, and measures them."""
    if depth == 0:
        return layout_of_frames(memory)
    if depth % 2:
        return descend(memory, depth - 1)
    found = descend(memory, depth - 1)
    return found[0], found[1]


def layout_of_frames(memory: Memory) -> tuple:
    """The layout of what links the running frames, and where a frame object points to it.

    That is the frame object itself (None), or the interpreter's own structure, which the object points to.
    """
    frames, frame = [], sys._getframe(1)
    while frame is not None and frame.f_globals is globals():  # all of these wait for a call to return
        frames.append(frame)
        frame = frame.f_back
    addresses = [id(frame) for frame in frames]
    codes = [id(frame.f_code) for frame in frames]
    raw = [memory.read(id(frame), type(frame).__basicsize__) for frame in frames]
    count, to_frame = range(len(frames)), None
    if not set.intersection(*[places(raw[i], codes[i]) for i in count]):
        to_frame, _code = only([indirect_codes(memory, raw[i], codes[i]) for i in count], "f_frame")
        addresses = [struct.unpack_from("<Q", data, to_frame)[0] for data in raw]
        raw = [memory.read(address, FRAME_BYTES) for address in addresses]
    links = [
        {at for at in range(0, len(raw[i]) - 7, 8) if leads_to(memory, addresses[i], at, addresses[i + 1])}
        for i in count[:-1]
    ]
    layout = {
        "code": only([tagged_places(raw[i], codes[i]) for i in count], "code of a frame"),
        "previous": only(links, "previous frame"),
    }
    layout.update(measure_instruction([(codes[i], frames[i].f_lasti, raw[i]) for i in count]))
    return layout, to_frame


def tagged_places(data: bytes, code: int) -> set:
    """As places(), for a pointer whose low three bits may say something else."""
    return set.union(*[places(data, code | tag) for tag in range(8)])


def indirect_codes(memory: Memory, data: bytes, code: int) -> set:
    """(offset of a pointer in `data`, offset of the code in what it points to)."""
    found = set()
    for at in range(0, len(data) - 7, 8):
        try:
            pointee = memory.read(struct.unpack_from("<Q", data, at)[0], FRAME_BYTES)
        except (OSError, OverflowError):
            continue
        found |= {(at, inner) for inner in tagged_places(pointee, code)}
    return found


def leads_to(memory: Memory, start: int, offset: int, target: int) -> bool:
    """Whether the link at `offset` reaches `target`; frames of C code may lie between."""
    address = start
    for _ in range(3):
        try:
            address = memory.word(address + offset)
        except (OSError, OverflowError, struct.error):
            return False
        if address == target:
            return True
    return False


def measure_instruction(samples: list) -> dict:
    """How f_lasti is kept: an int times `scale`, or a pointer that is `base` further than the code object."""
    candidates = []
    for code, lasti, data in samples:
        found = {(at, scale, None) for scale in (1, 2) for at in places(data, lasti // scale, "<i")}
        for at in range(0, len(data) - 7, 8):
            base = struct.unpack_from("<Q", data, at)[0] - code - lasti
            if 0 < base < 2 * CODE_BYTES:
                found.add((at, 1, base))
        candidates.append(found)
    at, scale, base = only(candidates, "instruction of a frame")
    return {"instruction": at, "scale": scale, "base": base}


# Threads


def api(name: str, result, *arguments):
    """A function of the C API, as an object of our own: the shared one of ctypes.pythonapi stays as it is."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


def thread_state() -> int:
    return api("PyThreadState_Get", ctypes.c_void_p)()


def thread_states(interpreter: int) -> list:
    """The addresses of an interpreter's thread states, in the order of its list."""
    following = api("PyThreadState_Next", ctypes.c_void_p, ctypes.c_void_p)
    state = api("PyInterpreterState_ThreadHead", ctypes.c_void_p, ctypes.c_void_p)(interpreter)
    found = []
    while state:
        found.append(state)
        state = following(state)
    return found


def own_interpreter() -> int:
    name = "PyInterpreterState_Get" if sys.version_info >= (3, 9) else "_PyInterpreterState_Get"
    return api(name, ctypes.c_void_p)()


class SecondThread:
    """A thread that waits, within a `with`; it is gone after it. Not of `threading`, which would count it."""

    def __init__(self, interpreter: int) -> None:
        self.interpreter, self.ident, self.state = interpreter, 0, 0
        self.ready, self.done = _thread.allocate_lock(), _thread.allocate_lock()
        self.ready.acquire()
        self.done.acquire()

    def __enter__(self) -> SecondThread:
        _thread.start_new_thread(self.wait, ())
        if not self.ready.acquire(True, SECOND_THREAD_S):
            self.done.release()
            raise NotFoundError("a second thread did not start")
        return self

    def wait(self) -> None:
        self.ident, self.state = _thread.get_ident(), thread_state()
        self.ready.release()
        self.done.acquire()

    def __exit__(self, *_error) -> None:
        self.done.release()
        deadline = time.monotonic() + SECOND_THREAD_S
        while self.state in thread_states(self.interpreter) and time.monotonic() < deadline:
            time.sleep(0.0002)


def measure_threads(memory: Memory) -> dict:
    interpreter = own_interpreter()
    heads, links, idents = [], [], []

    def sample(known: dict) -> None:
        states = thread_states(interpreter)
        heads.append(places(memory.read(interpreter, INTERPRETER_BYTES), states[0]))
        for i in range(len(states)):
            data = memory.read(states[i], THREAD_STATE_BYTES)
            links.append(places(data, states[i + 1] if i + 1 < len(states) else 0))
            if states[i] in known:
                idents.append(places(data, known[states[i]]))

    own = {thread_state(): _thread.get_ident()}
    sample(own)
    for _ in range(2):
        with SecondThread(interpreter) as second:
            sample({**own, second.state: second.ident})
    return {
        "list": interpreter + only(heads, "list of thread states"),
        "next": only(links, "next thread state"),
        "id": only(idents, "id of a thread"),
    }


def measure_current_frame(memory: Memory, to_frame) -> list:
    """The offsets to follow from a thread state to its innermost frame: one, or two through another."""
    state = thread_state()
    samples = [current_frame(memory.file, os.pread, state, to_frame), deeper(memory, state, to_frame, 1)]
    samples.append(deeper(memory, state, to_frame, 3))
    direct = [places(data, frame) for frame, data, _pointees in samples]
    if set.intersection(*direct):
        return [only(direct, "current frame")]
    indirect = []
    for frame, _data, pointees in samples:
        indirect.append({(at, inner) for at in pointees for inner in places(pointees[at], frame)})
    return list(only(indirect, "current frame"))


def deeper(memory: Memory, state: int, to_frame, depth: int) -> tuple:
    if depth:
        return deeper(memory, state, to_frame, depth - 1)
    return current_frame(memory.file, os.pread, state, to_frame)


def current_frame(file: int, pread, state: int, to_frame) -> tuple:
    """This call's own frame, the thread state and what that points to: {offset: memory}.

    Calls no Python function, which would be the current frame in its turn and leave its links behind.
    """
    frame = id(sys._getframe())
    if to_frame is not None:
        frame = struct.unpack("<Q", pread(file, 8, frame + to_frame))[0]
    data = pread(file, THREAD_STATE_BYTES, state)
    pointees = {}
    for at in range(0, len(data) - 7, 8):
        try:
            pointees[at] = pread(file, 32, struct.unpack_from("<Q", data, at)[0])
        except (OSError, OverflowError):
            pass
    return frame, data, pointees
