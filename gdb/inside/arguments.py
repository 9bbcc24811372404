"""The arguments of a function at its first instruction, from its C++ signature and the registers.

No debug information is needed: a demangled symbol names the types of all parameters, and the System
V ABI says which registers each takes. What a function returns is not in its symbol, so a hidden
first argument (the result's address, or `this`) is found by trying: the reading in which every
tensor is one is right.
"""

import re
import struct

from tensors import NoTensorError
from values import UNKNOWN, inner, normalised, room

_POINTER = re.compile(r"(.*?)( const)?(&&|&|\*)$")
_NO_READING = dict(UNKNOWN, why="no reading of the registers fits these types")
# Types that travel by value in one integer register
_ONE = {
    "bool", "char", "signed char", "unsigned char", "short", "int", "unsigned int", "long", "unsigned long",
    "c10::ScalarType", "c10::Layout", "c10::MemoryFormat", "c10::DispatchKeySet", "c10::Device",
    "c10::DeviceType", "c10::DispatchKey",
}  # fmt: skip

_BY_ADDRESS = ("c10::SymInt", "c10::Scalar", "at::Generator", "c10::Storage")  # they have destructors


def parameters(demangled):
    """The parameter types of a demangled function, [] where it has none or they are unknown."""
    text = re.sub(r"( \[clone [^\]]*\])+$", "", demangled)
    text = re.sub(r"( const| &|&&)$", "", text)
    if not text.endswith(")"):
        return []
    depth, start = 0, len(text)
    for position in reversed(range(len(text))):
        depth += {")": 1, "(": -1}.get(text[position], 0)
        if depth == 0:
            start = position
            break
    return [kind for kind in split(text[start + 1 : -1]) if kind not in ("", "void")]


def split(text):
    """Splits at the commas outside brackets."""
    parts, depth, begin = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in "<([{") - (character in ">)]}")
        if character == "," and depth == 0:
            parts.append(text[begin:position].strip())
            begin = position + 1
    return parts + [text[begin:].strip()]


class Arguments:
    """Reads arguments. `values`: a Values; `registers` as memory.EntryRegisters."""

    def __init__(self, values):
        self._read = values

    def read(self, types, registers, hidden, leading=0):
        """([(type, value)], skipped): the first reading in which all tensors are tensors.

        `hidden` lists how many integer registers may come before the first parameter, likeliest first;
        `leading` more are passed over. Where no reading fits, every value is unknown and `skipped` None.
        """
        for skip in hidden:
            try:
                return [*zip(types, self._values(types, registers, skip + leading))], skip
            except NoTensorError:
                continue
        return [(kind, _NO_READING) for kind in types], None

    def _values(self, types, registers, skip):
        walk = _Walk(registers, skip)
        values = []
        for kind in types:
            values.append(self._value(normalised(kind), walk) if walk is not None else _AFTER)
            if values[-1] is _HERE:
                walk = None
        return values

    def _value(self, kind, walk):
        reference = _POINTER.match(kind)
        if reference:
            address = walk.integer()
            value = self._read.read(reference[1].strip(), address)
            return {"address": address} if value is UNKNOWN else value
        if kind in ("at::Tensor", "at::TensorBase"):
            return self._read.read(kind, walk.integer())
        if kind in _ONE:
            return self._read.plain(kind, walk.integer())
        if kind == "double":
            return walk.double()
        if kind.startswith("c10::ArrayRef<"):
            return self._read.array(inner(kind), *walk.integers(2))
        if kind in ("STRING", "C10_STRING"):
            first, second = walk.integers(2)
            return self._read.text(first, second) if kind == "C10_STRING" else self._read.text(second, first)
        if kind in _BY_ADDRESS:
            return self._read.read(kind, walk.integer())
        if kind.startswith("std::array<bool, "):
            count = int(re.sub(r"\D", "", kind[len("std::array<bool, ") :]))
            return [bool(byte) for byte in struct.pack("<Q", walk.integer())[:count]] if count <= 8 else _HERE
        if kind.startswith("c10::OptionalArrayRef<"):
            return self._optional("c10::ArrayRef<%s>" % inner(kind), walk)
        if kind.startswith("OPTIONAL<"):
            return self._optional(inner(kind), walk)
        return _HERE

    def _optional(self, kind, walk):
        """An optional that travels in registers, in memory, or, with a destructor, by its address."""
        first = self._read.flag_first
        if kind == "at::Tensor" or kind in _BY_ADDRESS:
            return self._read.read("OPTIONAL<%s>" % kind, walk.integer())
        needed = room(kind)
        if needed is None or first is None:
            return _HERE
        if kind.startswith("c10::ArrayRef<") and first:
            begin, count = walk.integers(2)
            return None if (begin, count) == (0, 1) else self._read.array(inner(kind), begin, count)
        if needed[0] == 16:
            return self._read.read("OPTIONAL<%s>" % kind, walk.memory(24))
        if kind == "double":
            value, engaged = walk.integer_and_double()[::-1] if first else walk.double_and_integer()
            return value if engaged & 1 else None
        if needed[0] == 8:
            words = walk.integers(2)
            word, engaged = words[::-1] if first else words
            return self._read.plain(kind, word) if engaged & 1 else None
        size, alignment = needed
        word = walk.integer()
        flag, value = (word, word >> 8 * alignment) if first else (word >> 8 * size, word)
        return self._read.plain(kind, value & (256**size - 1)) if flag & 1 else None


_HERE = dict(UNKNOWN, why="tracer does not know how this type is passed")
_AFTER = dict(UNKNOWN, why="it follows an argument whose place is unknown")


class _Walk:
    """Hands out registers and stack words in the order of the parameters."""

    def __init__(self, registers, skip):
        self._registers = registers
        self._integers = registers.integers()[skip:]
        self._doubles = None
        self._stack = registers.stack()
        self._read_word = registers.word

    def integer(self):
        return self.integers(1)[0]

    def integers(self, count):
        """`count` words of one argument: all in registers, or all in memory."""
        if len(self._integers) >= count:
            taken, self._integers = self._integers[:count], self._integers[count:]
            return taken
        address = self.memory(8 * count)
        return [self._read_word(address + 8 * index) for index in range(count)]

    def double(self):
        if self._left():
            return self._doubles.pop(0)
        return _as_double(self._read_word(self.memory(8)))

    def double_and_integer(self):
        """The two words of one argument: both in registers, each of its class, or both in memory."""
        if self._left() and self._integers:
            return self._doubles.pop(0), self.integer()
        address = self.memory(16)
        return _as_double(self._read_word(address)), self._read_word(address + 8)

    def integer_and_double(self):
        """As double_and_integer, for {word, double}."""
        if self._left() and self._integers:
            return self.integer(), self._doubles.pop(0)
        address = self.memory(16)
        return self._read_word(address), _as_double(self._read_word(address + 8))

    def _left(self):
        if self._doubles is None:
            self._doubles = self._registers.doubles()
        return bool(self._doubles)

    def memory(self, size):
        address = self._stack
        self._stack += size
        return address


def _as_double(word):
    return struct.unpack("<d", struct.pack("<Q", word))[0]
