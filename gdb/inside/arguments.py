"""The arguments of a function at its first instruction, from its C++ signature and the registers.

No debug information is needed: a demangled symbol names the types of all parameters, and the System
V ABI says which registers each takes. What a function returns is not in its symbol, so a hidden
first argument (the result's address, or `this`) is found by trying: the reading in which every
tensor is one is right.
"""

import re
import struct

from tensors import NoTensorError

_WORD = 8
_MOST_LISTED = 64
_POINTER = re.compile(r"(.*?)( const)?(&&|&|\*)$")
_UNKNOWN = {"unknown": True}
# Types that travel by value in one integer register
_ONE = {
    "bool", "char", "signed char", "unsigned char", "short", "int", "unsigned int", "long", "unsigned long",
    "c10::ScalarType", "c10::Layout", "c10::MemoryFormat", "c10::DispatchKeySet", "c10::Device",
    "c10::DeviceType", "c10::DispatchKey",
}  # fmt: skip
# c10/core/Layout.h and MemoryFormat.h, whose numbers are part of torch's ABI
_NAMED = {
    "c10::Layout": "strided sparse_coo sparse_csr mkldnn sparse_csc sparse_bsr sparse_bsc jagged".split(),
    "c10::MemoryFormat": "contiguous_format preserve_format channels_last channels_last_3d".split(),
}
_SCALAR_BYTES = 32  # a tag, and a union that is aligned for a complex number
_IN_MEMORY = ("c10::OptionalArrayRef<", "OPTIONAL<c10::ArrayRef<", "OPTIONAL<STRING>")


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
    """Reads arguments with the tensors of this process. `registers` as memory.EntryRegisters."""

    def __init__(self, tensors, memory):
        self._tensors = tensors
        self._memory = memory

    def read(self, types, registers, hidden, leading=0):
        """([(type, value)], skipped): the first reading in which all tensors are tensors.

        `hidden` lists how many integer registers may come before the first parameter, likeliest first;
        `leading` more are passed over. Where no reading fits, every value is {"unknown": True} and
        `skipped` None.
        """
        for skip in hidden:
            try:
                return [*zip(types, self._values(types, registers, skip + leading))], skip
            except NoTensorError:
                continue
        return [(kind, _UNKNOWN) for kind in types], None

    def boxed(self, stack, count):
        """The last `count` values of a `std::vector<c10::IValue>` at address `stack`."""
        begin, end = struct.unpack("<2Q", self._memory.read(stack, 16))
        size = (end - begin) // 16
        if not 0 <= size < 10_000:
            raise NoTensorError("no stack of values")
        start = begin + 16 * max(0, size - count)
        return self._boxed_values(start, min(size, count))

    def _values(self, types, registers, skip):
        walk = _Walk(registers, skip)
        values = []
        for kind in types:
            values.append(self._value(_normalised(kind), walk) if walk is not None else _UNKNOWN)
            if values[-1] is _UNKNOWN:
                walk = None  # where the rest travels is unknown
        return values

    def _value(self, kind, walk):
        reference = _POINTER.match(kind)
        if reference:
            return self._referenced(reference[1], walk.integer())
        if kind == "at::Tensor":
            return self._tensors.tensor(walk.integer())
        if kind in _ONE:
            return self._plain(kind, walk.integer())
        if kind in ("double", "float"):
            return walk.double() if kind == "double" else _UNKNOWN
        if kind.startswith("c10::ArrayRef<"):
            return self._array(kind[len("c10::ArrayRef<") : -1].strip(), *walk.integers(2))
        if kind == "STRING":
            length, address = walk.integers(2)
            return self._text(address, length)
        if kind == "c10::SymInt":
            return self._sym_int(walk.integer())
        if kind.startswith("std::array<bool, "):
            count = int(re.sub(r"\D", "", kind[len("std::array<bool, ") :]))
            return (
                [bool(byte) for byte in struct.pack("<Q", walk.integer())[:count]] if count <= 8 else _UNKNOWN
            )
        if kind.startswith(_IN_MEMORY):
            return self._optional_in_memory(kind, walk.memory(24))
        if kind.startswith("OPTIONAL<"):
            return self._optional(kind[len("OPTIONAL<") : -1].strip(), walk)
        if kind in ("c10::Storage", "at::Generator"):
            walk.integer()
            return None
        return _UNKNOWN

    def _referenced(self, kind, address):
        kind = kind.strip()
        if kind == "at::Tensor":
            return self._tensors.tensor(address)
        if kind == "OPTIONAL<at::Tensor>":
            return self._tensors.tensor(address) if self._byte(address + _WORD) else None
        if kind.startswith("c10::ArrayRef<"):
            begin, count = struct.unpack("<2Q", self._read(address, 16))
            return self._array(kind[len("c10::ArrayRef<") : -1].strip(), begin, count)
        if kind.startswith("c10::IListRef<at::Tensor"):
            return self._list_reference(address)
        if kind.startswith("c10::List<") and "at::Tensor" in kind:
            return self._list(struct.unpack("<Q", self._read(address, 8))[0])
        if kind == "c10::Scalar":
            return self._scalar(address)
        if kind == "OPTIONAL<c10::Scalar>":
            return self._scalar(address) if self._byte(address + _SCALAR_BYTES) & 1 else None
        return {"address": address}

    def _array(self, kind, address, count):
        if count > 1_000_000:
            raise NoTensorError("%d elements" % count)
        shown = min(count, _MOST_LISTED)
        if kind == "at::Tensor":
            return self._tensors.tensors(address, count)
        if kind in ("long", "c10::SymInt"):
            words = struct.unpack("<%dq" % shown, self._read(address, 8 * shown)) if shown else ()
            return ["symbolic" if kind == "c10::SymInt" and word < -(2**62) else word for word in words]
        if kind == "double":
            return list(struct.unpack("<%dd" % shown, self._read(address, 8 * shown))) if shown else []
        return {"count": count}

    def _list_reference(self, address):
        first, second, tag = struct.unpack("<3Q", self._read(address, 24))
        if tag & 0xFFFFFFFF == 0:  # unboxed: an ArrayRef
            return self._tensors.tensors(first, second)
        if tag & 0xFFFFFFFF == 1:  # boxed: a pointer to a c10::List
            return self._list(struct.unpack("<Q", self._read(first, 8))[0])
        begin, end = struct.unpack("<2Q", self._read(first, 16))  # a std::vector of references
        return [
            self._tensors.tensor(word)
            for word in struct.unpack("<%dQ" % ((end - begin) // 8), self._read(begin, end - begin))
        ]

    def _list(self, implementation):
        """c10::ListImpl: vtable and counts, then a std::vector<IValue>."""
        begin, end = struct.unpack("<2Q", self._read(implementation + 16, 16))
        return self._boxed_values(begin, (end - begin) // 16)

    def _boxed_values(self, address, count):
        if not 0 <= count < 100_000:
            raise NoTensorError("%d values" % count)
        words = struct.unpack("<" + "QQ" * count, self._read(address, 16 * count)) if count else ()
        return [self._boxed_value(payload, tag & 0xFFFFFFFF) for payload, tag in zip(words[::2], words[1::2])]

    def _boxed_value(self, payload, tag):
        if tag == 0:
            return None
        if tag == 1:
            return self._tensors.implementation(payload)
        return _UNKNOWN

    def _scalar(self, address):
        """c10::Scalar: a tag, then a union aligned for a complex number."""
        memory = self._read(address, _SCALAR_BYTES)
        tag = struct.unpack_from("<I", memory)[0]
        if tag == 0:
            return struct.unpack_from("<d", memory, 16)[0]
        if tag == 1:
            return struct.unpack_from("<q", memory, 16)[0]
        return _UNKNOWN  # the numbers of the other tags differ between versions

    def _optional(self, kind, walk):
        """An optional that travels in registers, or, where its type has a destructor, by its address."""
        if kind == "long":
            word, engaged = walk.integers(2)
            return self._plain(kind, word) if engaged & 1 else None
        if kind == "double":
            value, engaged = walk.double_and_integer()
            return value if engaged & 1 else None
        if kind in ("bool", "c10::ScalarType", "c10::Layout", "c10::MemoryFormat"):
            word = walk.integer()
            return self._plain(kind, word & 0xFF) if word >> 8 & 1 else None
        if kind == "c10::Device":
            word = walk.integer()
            return self._plain(kind, word & 0xFFFF) if word >> 16 & 1 else None
        if kind == "c10::SymInt":
            address = walk.integer()
            return self._sym_int(address) if self._byte(address + _WORD) else None
        if kind == "at::Generator":
            walk.integer()
            return None
        return _UNKNOWN

    def _optional_in_memory(self, kind, address):
        first, second, engaged = struct.unpack("<3Q", self._read(address, 24))
        if not engaged & 1:
            return None
        if "STRING" in kind:
            return self._text(second, first)
        return self._array("double" if "double" in kind else "long", first, second)

    def _plain(self, kind, word):
        if kind == "bool":
            return bool(word & 1)
        if kind == "long":
            return struct.unpack("<q", struct.pack("<Q", word))[0]
        if kind == "c10::ScalarType":
            return self._tensors.dtype(word & 0xFF)
        if kind == "c10::Device":
            return self._tensors.device(word & 0xFF, word >> 8 & 0xFF)
        if kind in _NAMED:
            number = word & 0xFF
            return _NAMED[kind][number] if number < len(_NAMED[kind]) else number
        if kind == "c10::DispatchKeySet":
            return {"keys": self._tensors.key_sets.names(word)}
        return word & 0xFFFFFFFF

    def _sym_int(self, address):
        (word,) = struct.unpack("<q", self._read(address, 8))
        return "symbolic" if word < -(2**62) else word

    def _text(self, address, length):
        if length > 10_000:
            raise NoTensorError("a text of %d bytes" % length)
        return self._read(address, length).decode("utf-8", "replace") if length else ""

    def _byte(self, address):
        return self._read(address, 1)[0]

    def _read(self, address, size):
        try:
            return self._memory.read(address, size)
        except OSError as error:
            raise NoTensorError(str(error)) from None


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


def _normalised(kind):
    """One spelling for types that versions and libraries spell differently."""
    kind = kind.replace("> >", ">>").replace("std::__cxx11::", "std::").replace(" >", ">")
    kind = re.sub(r"(std|c10)::optional<", "OPTIONAL<", kind)
    kind = re.sub(r"(std|c10)::basic_string_view<char(, std::char_traits<char>)?>", "STRING", kind)
    return re.sub(r"\b(std::)?string_view\b", "STRING", kind)
