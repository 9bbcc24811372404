"""Values of PyTorch's types in memory, with either layout of optionals."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "gdb/inside"))

from arguments import Arguments
from tensors import NoTensorError, Tensors
from values import UNKNOWN, Values, normalised

NONE, BEGIN = 0x1000, 0x2000
LAYOUT = {
    "offsets": {},
    "dtypes": {"7": "float64"},
    "device_types": ["cpu", "cuda"],
    "undefined": 0,
    "keys": {"backends": 0, "names": []},
}


class Memory:
    def __init__(self, contents: dict[int, bytes]) -> None:
        self._contents = contents

    def read(self, address: int, size: int) -> bytes:
        for begin, data in self._contents.items():
            if begin <= address and address + size <= begin + len(data):
                return data[address - begin : address - begin + size]
        raise OSError(f"no memory at {address:#x}")


class Registers:
    def __init__(self, integers: list[int], doubles: list[float]) -> None:
        self._integers, self._doubles = integers, doubles

    def integers(self) -> list[int]:
        return list(self._integers)

    def doubles(self) -> list[float]:
        return list(self._doubles)

    def stack(self) -> int:
        return BEGIN

    def word(self, address: int) -> int:
        raise OSError


def values(memory: dict[int, bytes], flag_first: bool | None) -> Values:
    found = Memory(memory)
    return Values(Tensors(LAYOUT, found), found, flag_first)


@pytest.mark.parametrize(
    ("kind", "first", "last", "value"),
    [
        ("c10::optional<long>", struct.pack("<Qq", 1, -5), struct.pack("<qQ", -5, 1), -5),
        ("std::optional<double>", struct.pack("<Qd", 1, 2.5), struct.pack("<dQ", 2.5, 1), 2.5),
        ("c10::optional<c10::ScalarType>", b"\1\7", b"\7\1", "float64"),
        ("c10::optional<c10::Device>", b"\1\1\2", b"\1\2\1", "cuda:2"),
        ("c10::optional<bool>", b"\1\0", b"\0\1", False),
        ("std::optional<c10::Scalar>", bytes([1]) + bytes(15) + struct.pack("<QQqQ", 1, 0, 3, 0),
         struct.pack("<QQqQ", 1, 0, 3, 0) + b"\1", 3),
        ("c10::OptionalArrayRef<long>", struct.pack("<2Q", NONE, 2), struct.pack("<3Q", NONE, 2, 1), [4, 3]),
    ],
)  # fmt: skip
def test_optionals_of_both_layouts(kind: str, first: bytes, last: bytes, value: Any) -> None:
    for flag_first, memory in ((True, first), (False, last)):
        read = values({NONE: struct.pack("<2q", 4, 3), BEGIN: memory}, flag_first)
        assert read.read(normalised(kind), BEGIN) == value


@pytest.mark.parametrize("flag_first", [True, False])
def test_optionals_without_a_value(flag_first: bool) -> None:
    read = values({BEGIN: bytes(40)}, flag_first)
    assert read.read(normalised("c10::optional<long>"), BEGIN) is None
    assert read.read(normalised("std::optional<c10::Scalar>"), BEGIN) is None
    empty = struct.pack("<3Q", 0, 1, 0) if flag_first else bytes(24)
    assert values({BEGIN: empty}, flag_first).read("c10::OptionalArrayRef<long>", BEGIN) is None


def test_a_layout_that_could_not_be_measured_is_said() -> None:
    assert "unknown" in values({BEGIN: bytes(40)}, None).read("OPTIONAL<long>", BEGIN)["why"]


def test_a_flag_that_is_none() -> None:
    with pytest.raises(NoTensorError, match="a flag of 8"):
        values({BEGIN: struct.pack("<2Q", 5, 8)}, False).read("OPTIONAL<long>", BEGIN)


def test_types_that_are_unknown() -> None:
    assert values({BEGIN: bytes(40)}, False).read("own::Kind", BEGIN) is UNKNOWN


@pytest.mark.parametrize("flag_first", [True, False])
def test_optionals_in_registers(flag_first: bool) -> None:
    """x[1:3] was once read with another version's layout: start 139938946766849."""
    number = [0x7F4600000001, 5] if flag_first else [5, 0x7F4600000001]
    dtype = [0xFF0701] if flag_first else [0xFF0107]
    rest = [1] if flag_first else [0x7F4600000001]
    arguments = Arguments(values({}, flag_first))
    types = ["c10::optional<long>", "c10::optional<c10::ScalarType>", "c10::optional<double>"]
    read, skipped = arguments.read(types, Registers([0, *number, *dtype, *rest], [2.5]), [1])
    assert ([value for _, value in read], skipped) == ([5, "float64", 2.5], 1)


@pytest.mark.parametrize(
    ("spelled", "one"),
    [
        ("c10::optional<c10::ArrayRef<long> >", "OPTIONAL<c10::ArrayRef<long>>"),
        ("std::vector<at::Tensor, std::allocator<at::Tensor> >", "std::vector<at::Tensor>"),
        ("std::vector<class at::Tensor, class std::allocator<class at::Tensor>>", "std::vector<at::Tensor>"),
        ("std::basic_string_view<char, std::char_traits<char> >", "STRING"),
        ("c10::basic_string_view<char>", "C10_STRING"),
    ],
)
def test_spellings(spelled: str, one: str) -> None:
    assert normalised(spelled) == one


TAGS = ["None", "Tensor", "Double", "Int", "Bool", "Device", "String", "GenericList", "Blob", "ComplexDouble"]
TEXT, LIST, ELEMENTS, COMPLEX = 0x3000, 0x4000, 0x5000, 0x6000
BOXED = [
    ("None", 0, None),
    ("Double", struct.unpack("<Q", struct.pack("<d", -2.5))[0], -2.5),
    ("Int", 2**64 - 7, -7),
    ("Bool", 0xFF01, True),
    ("Device", 0x0101, "cuda:1"),
    ("String", TEXT, "two words"),
    ("GenericList", LIST, [3, False]),
    ("Blob", 5, {"unknown": True, "why": "a boxed Blob"}),
    ("ComplexDouble", COMPLEX, "1.5-2j"),
]


def test_boxed_values() -> None:
    pairs = struct.pack("<4Q", 3, TAGS.index("Int"), 0, TAGS.index("Bool"))
    memory = {
        BEGIN: b"".join(struct.pack("<2Q", payload, TAGS.index(kind)) for kind, payload, _ in BOXED),
        NONE: struct.pack("<2Q", BEGIN, BEGIN + 16 * len(BOXED)),
        TEXT: struct.pack("<4Q", 0, 0, TEXT + 64, 9) + bytes(32) + b"two words",
        LIST: struct.pack("<4Q", 0, 0, ELEMENTS, ELEMENTS + 32),
        ELEMENTS: pairs,
        COMPLEX: struct.pack("<2Q2d", 0, 0, 1.5, -2.0),
    }
    found = Memory(memory)
    assert Values(Tensors(LAYOUT, found), found, boxed=TAGS).boxed(NONE, 20) == [value for *_, value in BOXED]


def test_the_tags_of_another_version() -> None:
    found = Memory({BEGIN: struct.pack("<2Q", 5, 3), NONE: struct.pack("<2Q", BEGIN, BEGIN + 16)})
    unread = {"unknown": True, "why": "a boxed value of tag 3"}
    assert Values(Tensors(LAYOUT, found), found).boxed(NONE, 1) == [unread]
