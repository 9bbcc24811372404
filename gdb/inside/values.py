"""Values of PyTorch's C++ types in memory, by the name of the type: no debug information is needed.

A value is a Python one, or {"keys"}, {"count"}, {"unknown", "why"}, or what tensors.Tensors tells.
"""

import re
import struct

from tensors import NoTensorError

_MOST_LISTED = 64
_SYMBOLIC = -(2**62)  # a SymInt below it is a pointer
UNKNOWN = {"unknown": True}
# c10/core/Layout.h and MemoryFormat.h, whose numbers are part of torch's ABI
_NAMED = {
    "c10::Layout": "strided sparse_coo sparse_csr mkldnn sparse_csc sparse_bsr sparse_bsc jagged".split(),
    "c10::MemoryFormat": "contiguous_format preserve_format channels_last channels_last_3d".split(),
}
_INTEGERS = {
    "bool": "<B", "char": "<b", "signed char": "<b", "unsigned char": "<B", "short": "<h",
    "unsigned short": "<H", "int": "<i", "unsigned int": "<I", "long": "<q", "unsigned long": "<Q",
    "c10::ScalarType": "<B", "c10::Layout": "<B", "c10::MemoryFormat": "<B", "c10::DispatchKeySet": "<Q",
    "c10::DispatchKey": "<H", "c10::DeviceType": "<B", "c10::Device": "<H",
}  # fmt: skip
SCALARS = ((0, "float"), (1, "int"))  # the tags of a c10::Scalar that all versions share
BOXED = ("None", "Tensor")  # the tags of a c10::IValue that all versions share
_BOXED_PLAIN = {"Int": "long", "Bool": "bool", "Device": "c10::Device"}
_SCALAR_FORMS = {"float": "<d", "int": "<q", "uint64": "<Q", "bool": "<?"}
_HANDLES = {"at::Generator": "generator", "c10::Storage": "storage"}
_BOXED_HANDLES = {"Generator": "generator", "Storage": "storage"}
_TENSORS = ("at::Tensor", "at::TensorBase", "at::OptionalTensorRef")
# (size, alignment) of what an optional or a list may hold, besides integers
_ROOM = {
    **dict.fromkeys(_TENSORS, (8, 8)), "c10::SymInt": (8, 8), "double": (8, 8), "float": (4, 4),
    "c10::Scalar": (32, 16), "STRING": (16, 8), "C10_STRING": (16, 8), "c10::Storage": (8, 8),
    "at::Generator": (8, 8),
}  # fmt: skip


def normalised(kind):
    """One spelling for types that versions, libraries and gdb spell differently."""
    kind = re.sub(r"\b(class|struct|union|enum) ", "", kind)
    kind = re.sub(r"> +>", ">>", kind.replace("std::__cxx11::", "std::"))
    kind = re.sub(r"> +>", ">>", kind)
    kind = re.sub(r"(std|c10)::optional<", "OPTIONAL<", kind)
    kind = re.sub(r"c10::basic_string_view<char>", "C10_STRING", kind)
    kind = re.sub(r"std::basic_string_view<char(, std::char_traits<char>)?>", "STRING", kind)
    kind = re.sub(r"\bc10::string_view\b", "C10_STRING", kind)
    kind = re.sub(r"\bstd::string_view\b", "STRING", kind)
    return re.sub(r"(std::vector<.*), std::allocator<.*>>$", r"\1>", kind)


def inner(kind):
    """The type in the outermost angle brackets."""
    return kind[kind.index("<") + 1 : -1].strip()


def room(kind):
    """(size, alignment) of a type, None where it is unknown."""
    if kind in _INTEGERS:
        size = struct.calcsize(_INTEGERS[kind])
        return (size, 1) if kind == "c10::Device" else (size, size)
    if kind.startswith("c10::ArrayRef<"):
        return 16, 8
    return _ROOM.get(kind)


def _handle(kind, address):
    return "a %s at %#x" % (kind, address)


def _complex(memory):
    """As Python writes it."""
    return str(complex(*struct.unpack("<2d", memory))).strip("()")


class Values:
    """Reads values with the tensors of this process.

    `flag_first`: whether an optional keeps its flag before its value, None where that is unknown.
    `scalars`: [(tag of a c10::Scalar, what it holds)]; `boxed`: what a c10::IValue holds, by its tag.
    """

    def __init__(self, tensors, memory, flag_first=False, scalars=SCALARS, boxed=BOXED):
        self.flag_first = flag_first
        self._scalars = dict(scalars)
        self._tags = boxed
        self._tensors = tensors
        self._memory = memory

    def read(self, kind, address):
        """The value of the (normalised) type at `address`, UNKNOWN for other types. Raises NoTensorError."""
        if kind in _TENSORS:
            return self._tensors.tensor(address)
        if kind.startswith("OPTIONAL<"):
            return self._optional(inner(kind), address)
        if kind.startswith("c10::OptionalArrayRef<"):
            return self._optional("c10::ArrayRef<%s>" % inner(kind), address)
        if kind.startswith("c10::ArrayRef<"):
            return self.array(inner(kind), *self._words(address, 2))
        if kind.startswith("std::vector<"):
            return self._vector(inner(kind), *self._words(address, 2))
        if kind.startswith("c10::IListRef<at::Tensor"):
            return self._list_reference(address)
        if kind.startswith("c10::List<"):
            return self._list(self._words(address, 1)[0])
        if kind.startswith("c10::MaybeOwned<at::Tensor"):
            return self._tensors.tensor(address + 8)
        if kind == "c10::Scalar":
            return self._scalar(address)
        if kind == "c10::SymInt":
            (word,) = struct.unpack("<q", self.bytes(address, 8))
            return "symbolic" if word < _SYMBOLIC else word
        if kind in _HANDLES:
            (word,) = self._words(address, 1)
            return _handle(_HANDLES[kind], word) if word else None
        if kind in ("STRING", "C10_STRING"):
            first, second = self._words(address, 2)
            return self.text(first, second) if kind == "C10_STRING" else self.text(second, first)
        if kind in ("double", "float"):
            form = "<d" if kind == "double" else "<f"
            return struct.unpack(form, self.bytes(address, struct.calcsize(form)))[0]
        if kind in _INTEGERS:
            form = _INTEGERS[kind]
            return self.plain(kind, struct.unpack(form, self.bytes(address, struct.calcsize(form)))[0])
        return UNKNOWN

    def plain(self, kind, word):
        """A value from a word; a small one is in its low part."""
        if kind == "bool":
            return bool(word & 1)
        if kind in ("long", "int", "short", "char", "signed char"):
            size = struct.calcsize(_INTEGERS[kind])
            return int.from_bytes((word & (256**size - 1)).to_bytes(size, "little"), "little", signed=True)
        if kind == "c10::ScalarType":
            return self._tensors.dtype(word & 0xFF)
        if kind == "c10::Device":
            return self._tensors.device(word & 0xFF, word >> 8 & 0xFF)
        if kind in _NAMED:
            number = word & 0xFF
            return _NAMED[kind][number] if number < len(_NAMED[kind]) else number
        if kind == "c10::DispatchKeySet":
            return {"keys": self._tensors.key_sets.names(word)}
        return word & 0xFFFFFFFF if kind != "unsigned long" else word

    def array(self, kind, address, count):
        """`count` values side by side, the first 64 of them; {"count"} for types that are unknown."""
        if count > 1_000_000:
            raise NoTensorError("%d elements" % count)
        if kind in _TENSORS:
            return self._tensors.tensors(address, count)
        shown = min(count, _MOST_LISTED)
        if kind in ("long", "c10::SymInt"):
            words = struct.unpack("<%dq" % shown, self.bytes(address, 8 * shown)) if shown else ()
            return ["symbolic" if kind == "c10::SymInt" and word < _SYMBOLIC else word for word in words]
        size = self._size(kind)
        if size is None:
            return {"count": count}
        return [self.read(kind, address + size * number) for number in range(shown)]

    def boxed(self, stack, count):
        """The last `count` values of a `std::vector<c10::IValue>` at address `stack`."""
        begin, end = self._words(stack, 2)
        size = (end - begin) // 16
        if not 0 <= size < 10_000:
            raise NoTensorError("no stack of values")
        return self._boxed_values(begin + 16 * max(0, size - count), min(size, count))

    def text(self, address, length):
        """A text. Raises NoTensorError."""
        if length > 10_000:
            raise NoTensorError("a text of %d bytes" % length)
        return self.bytes(address, length).decode("utf-8", "replace") if length else ""

    def bytes(self, address, size):
        """Raises NoTensorError where they cannot be read."""
        try:
            return self._memory.read(address, size)
        except OSError as error:
            raise NoTensorError(str(error)) from None

    def _optional(self, kind, address):
        if self.flag_first and kind.startswith("c10::ArrayRef<"):  # no flag: {null, 1} is none
            begin, count = self._words(address, 2)
            return None if (begin, count) == (0, 1) else self.array(inner(kind), begin, count)
        needed = room(kind)
        if needed is None:
            return UNKNOWN
        if self.flag_first is None:
            return dict(UNKNOWN, why="the layout of optionals is unknown")
        size, alignment = needed
        flag, value = (address, address + alignment) if self.flag_first else (address + size, address)
        engaged = self.bytes(flag, 1)[0]
        if engaged > 1:
            raise NoTensorError("a flag of %d" % engaged)
        return self.read(kind, value) if engaged else None

    def _size(self, kind):
        if kind.startswith("OPTIONAL<") and room(inner(kind)):
            size, alignment = room(inner(kind))
            return size + alignment
        return room(kind)[0] if room(kind) else None

    def _vector(self, kind, begin, end):
        size = self._size(kind)
        if size is None or kind == "bool":
            return UNKNOWN
        if end < begin or (end - begin) % size:
            raise NoTensorError("no vector")
        return self.array(kind, begin, (end - begin) // size)

    def _list_reference(self, address):
        first, second, tag = self._words(address, 3)
        if tag & 0xFFFFFFFF == 0:  # unboxed: an ArrayRef
            return self._tensors.tensors(first, second)
        if tag & 0xFFFFFFFF == 1:  # boxed: a pointer to a c10::List
            return self._list(self._words(first, 1)[0])
        begin, end = self._words(first, 2)  # a std::vector of references
        return [self._tensors.tensor(word) for word in self._words(begin, (end - begin) // 8)]

    def _list(self, implementation):
        """c10::ListImpl: vtable and counts, then a std::vector<IValue>."""
        begin, end = self._words(implementation + 16, 2)
        return self._boxed_values(begin, (end - begin) // 16)

    def _boxed_values(self, address, count):
        if not 0 <= count < 100_000:
            raise NoTensorError("%d values" % count)
        words = self._words(address, 2 * count) if count else ()
        return [self._boxed_value(payload, tag & 0xFFFFFFFF) for payload, tag in zip(words[::2], words[1::2])]

    def _boxed_value(self, payload, tag):
        kind = self._tags[tag] if tag < len(self._tags) else "value of tag %d" % tag
        if kind == "Tensor":
            return self._tensors.implementation(payload)
        if kind in _BOXED_PLAIN:
            return self.plain(_BOXED_PLAIN[kind], payload)
        if kind in _BOXED_HANDLES:
            return _handle(_BOXED_HANDLES[kind], payload)
        if kind == "Double":
            return struct.unpack("<d", struct.pack("<Q", payload))[0]
        if kind == "String":  # vtable and counts, then a std::string
            return self.text(*self._words(payload + 16, 2))
        if kind == "ComplexDouble":  # vtable and counts, then the number
            return _complex(self.bytes(payload + 16, 16))
        if kind == "GenericList":
            return self._list(payload)
        return None if kind == "None" else dict(UNKNOWN, why="a boxed " + kind)

    def _scalar(self, address):
        """c10::Scalar: a tag, then a union aligned for a complex number."""
        memory = self.bytes(address, 32)
        tag = struct.unpack_from("<I", memory)[0]
        kind = self._scalars.get(tag)
        if kind == "complex":
            return _complex(memory[16:])
        if kind is None:
            return dict(UNKNOWN, why="a scalar of tag %d" % tag)
        return struct.unpack_from(_SCALAR_FORMS[kind], memory, 16)[0]

    def _words(self, address, count):
        if not 0 <= count < 1_000_000:
            raise NoTensorError("%d words" % count)
        return struct.unpack("<%dQ" % count, self.bytes(address, 8 * count))
