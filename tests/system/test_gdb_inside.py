"""The parts of a gdb session that need no gdb: signatures, registers, tensors in memory, conditions."""

from __future__ import annotations

import ctypes
import importlib
import struct
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from lazily import torch

_GDB = Path(__file__).parent.parent.parent / "gdb"


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(_GDB / "inside"))
    monkeypatch.syspath_prepend(str(_GDB / "inferior"))


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


class OwnMemory:
    def read(self, address: int, size: int) -> bytes:
        if address < 4096:
            raise OSError("unmapped")
        with open("/proc/self/mem", "rb", buffering=0) as file:
            file.seek(address)
            return file.read(size)


class Registers:
    """Arguments where the ABI puts them; `stack` holds the words that did not fit."""

    def __init__(self, integers: list[int], doubles: list[float] = (), stack: bytes = b"") -> None:
        self._integers = (integers + [0] * 6)[:6]
        self._doubles = [*doubles, *[0.0] * 8][:8]
        self._stack = ctypes.create_string_buffer(stack, len(stack) + 8)

    def integers(self) -> list[int]:
        return list(self._integers)

    def doubles(self) -> list[float]:
        return list(self._doubles)

    def stack(self) -> int:
        return ctypes.addressof(self._stack)

    def word(self, address: int) -> int:
        return struct.unpack("<Q", OwnMemory().read(address, 8))[0]


@pytest.fixture
def tensors() -> Any:
    return module("tensors").Tensors(module("tensor_layout").measure(), OwnMemory())


@pytest.mark.parametrize(
    ("demangled", "types"),
    [
        ("at::_ops::mm::call(at::Tensor const&, at::Tensor&)", ["at::Tensor const&", "at::Tensor&"]),
        ("f(std::optional<c10::ArrayRef<double> >, std::array<bool, 3ul>)",
         ["std::optional<c10::ArrayRef<double> >", "std::array<bool, 3ul>"]),
        ("a<b(c, d)>::call(c10::OperatorKernel*, long) [clone .isra.0]", ["c10::OperatorKernel*", "long"]),
        ("x::y(void) const", []),
        ("cfunction_call", []),
    ],
)  # fmt: skip
def test_parameters(demangled: str, types: list[str]) -> None:
    assert module("arguments").parameters(demangled) == types


def test_arguments_of_every_class(tensors: Any) -> None:
    arguments = module("arguments").Arguments(module("values").Values(tensors, OwnMemory()))
    made = [torch.zeros(2, 3), torch.zeros(4, dtype=torch.int64)]
    handles = (ctypes.c_uint64 * 2)(*(tensor._cdata for tensor in made))
    first, second = ctypes.addressof(handles), ctypes.addressof(handles) + 8
    sizes = (ctypes.c_int64 * 3)(7, -1, 9)
    text = ctypes.create_string_buffer(b"mean")
    types = [
        "at::Tensor const&", "c10::ArrayRef<long>", "double", "bool", "std::optional<c10::ScalarType>",
        "c10::ArrayRef<at::Tensor>", "std::optional<long>",
        "std::basic_string_view<char, std::char_traits<char> >", "long",
        "std::optional<double>", "at::Tensor const&",
    ]  # fmt: skip
    # six integer registers: tensor, array (2), bool, optional type; one is left, so the list of tensors
    # goes to the stack whole, and the register that is left to the next argument that fits it
    stack = (
        struct.pack("<2Q", first, 2)
        + struct.pack("<2Q", 5, 1)
        + struct.pack("<2Q", 4, ctypes.addressof(text))
    )
    stack += struct.pack("<dQ", 0.25, 1) + struct.pack("<Q", second)
    registers = Registers(
        [first, ctypes.addressof(sizes), 3, 1, 0x106, (-3) & (2**64 - 1)], [2.5, 9.0], stack
    )
    values, skipped = arguments.read(types, registers, [0])
    assert skipped == 0
    plain = [value for _, value in values]
    assert [each["shape"] for each in plain[5]] == [[2, 3], [4]]
    assert plain[0]["shape"] == [2, 3]
    assert plain[1:5] == [[7, -1, 9], 2.5, True, "float32"]
    assert plain[6:10] == [5, "mean", -3, 0.25]
    assert plain[10]["dtype"] == "int64"


def test_optionals_of_two_bytes_and_scalars(tensors: Any) -> None:
    arguments = module("arguments").Arguments(module("values").Values(tensors, OwnMemory()))
    types = ["std::optional<c10::Layout>", "std::optional<c10::MemoryFormat>", "std::optional<bool>"]
    types += ["std::optional<c10::Device>", "std::optional<c10::Scalar> const&", "c10::Scalar const&"]
    half = ctypes.create_string_buffer(struct.pack("<I12xd8xB7x", 0, 0.5, 1))
    none = ctypes.create_string_buffer(struct.pack("<I12xd8xB7x", 0, 0.5, 0))
    for words, expected in [
        ([0x100, 0x102, 0x101, 0x10101], ["strided", "channels_last", True, "cuda:1"]),
        ([0x002, 0x003, 0x001, 0x00101], [None, None, None, None]),
    ]:
        for scalar, value in [(half, 0.5), (none, None)]:
            registers = Registers([*words, ctypes.addressof(scalar), ctypes.addressof(half)])
            values, _ = arguments.read(types, registers, [0])
            assert [value for _, value in values] == [*expected, value, 0.5]


def test_boxed_generators_and_dtypes(tensors: Any) -> None:
    values = module("values").Values(tensors, OwnMemory(), boxed=("None", "Tensor", "Generator", "Int"))
    stack = ctypes.create_string_buffer(struct.pack("<6Q", 0x1230, 2, 7, 3, 0, 0))
    begin = ctypes.addressof(stack)
    ends = ctypes.create_string_buffer(struct.pack("<2Q", begin, begin + 48))
    assert values.boxed(ctypes.addressof(ends), 3) == ["a generator at 0x1230", 7, None]
    numbered = module("schemas").measure()["aten::empty.memory_format"]["numbered"]
    assert numbered == {
        "dtype": "c10::ScalarType", "layout": "c10::Layout", "memory_format": "c10::MemoryFormat",
    }  # fmt: skip
    assert values.plain(numbered["dtype"], 7) == "float64"


def test_generators_and_storages_are_none_or_an_address(tensors: Any) -> None:
    arguments = module("arguments").Arguments(module("values").Values(tensors, OwnMemory()))
    generator = torch.Generator()
    # behind its head a Python generator is an at::Generator
    given = ctypes.c_uint64.from_address(id(generator) + object.__basicsize__).value
    engaged = ctypes.create_string_buffer(struct.pack("<QB7x", given, 1))
    empty = ctypes.create_string_buffer(struct.pack("<QB7x", given, 0))
    storage = torch.ones(3).untyped_storage()
    handle = ctypes.c_uint64(storage._cdata)
    types = [
        "std::optional<at::Generator>",
        "std::optional<at::Generator> const&",
        "at::Generator",
        "c10::Storage",
    ]
    words = [ctypes.addressof(each) for each in (engaged, empty, engaged, handle)]
    values, _ = arguments.read(types, Registers(words), [0])
    shown = f"a generator at {given:#x}"
    assert [value for _, value in values] == [shown, None, shown, f"a storage at {storage._cdata:#x}"]


def test_scalars_of_each_kind(tensors: Any) -> None:
    """A node of autograd of another class than the one that was measured keeps them."""
    scalars = module("tensor_layout").measure()["scalars"]
    values = module("values").Values(tensors, OwnMemory(), False, scalars)
    base, real = (
        torch.ones(1, dtype=dtype, requires_grad=True) for dtype in (torch.complex64, torch.float32)
    )
    nodes = [(torch.add(base, base, alpha=value).grad_fn, value) for value in (2.5, -7, 3 - 4j)]
    nodes.append((torch.nn.functional.threshold(real, True, 0.0).grad_fn, True))
    for node, value in nodes:
        shown = "3-4j" if isinstance(value, complex) else value
        address = ctypes.c_uint64.from_address(id(node) + object.__basicsize__).value
        read = [values.read("c10::Scalar", at) for at in range(address + 64, address + 600, 16)]
        assert any(type(each) is type(shown) and each == shown for each in read), value


def test_the_place_of_a_result_is_found_by_trying(tensors: Any) -> None:
    arguments = module("arguments").Arguments(module("values").Values(tensors, OwnMemory()))
    made = torch.zeros(2, 3)
    handle = ctypes.c_uint64(made._cdata)
    behind = Registers([ctypes.addressof(ctypes.create_string_buffer(512)), ctypes.addressof(handle)])
    values, skipped = arguments.read(["at::Tensor const&"], behind, [0, 1])
    assert (skipped, values[0][1]["shape"]) == (1, [2, 3])
    (unread,), skipped = arguments.read(["at::Tensor const&"], Registers([1, 2, 3]), [0, 1])
    assert skipped is None
    assert unread[1]["why"] == "no reading of the registers fits these types"


def test_the_flag_of_an_optional_is_found() -> None:
    assert module("tensor_layout").measure()["flag_first"] is (torch.__version__ < "2.4")


def test_tensors_in_memory(tensors: Any) -> None:
    for tensor in [
        torch.zeros(()), torch.zeros(1, 2, 3, 4, 5, 6, 7), torch.zeros(4, 5).t()[1:],
        torch.zeros(3, device="meta"), torch.zeros(2, dtype=torch.complex128),
        torch.zeros(2, requires_grad=True),
    ]:  # fmt: skip
        read = tensors.implementation(tensor._cdata)
        assert (read["shape"], read["stride"]) == (list(tensor.shape), list(tensor.stride()))
        assert (f"torch.{read['dtype']}", read["device"]) == (str(tensor.dtype), str(tensor.device))
        keys = torch._C._dispatch_keys(tensor)
        assert sorted(read["keys"]) == sorted(
            str(keys).removeprefix("DispatchKeySet(").rstrip(")").split(", ")
        )
        assert tensors.key_sets.highest(keys.raw_repr()) == torch._C._dispatch_key_name(
            keys.highestPriorityTypeId()
        )
    assert tensors.implementation(tensors._undefined) == {"defined": False}
    with pytest.raises(module("tensors").NoTensorError):
        tensors.implementation(id(object()))


class Seen:
    key = "CPU"

    def __init__(self, *shapes: list[int]) -> None:
        self._shapes = shapes

    def tensors(self) -> list[dict[str, Any]]:
        return [{"shape": shape} for shape in self._shapes]


def test_a_path_belongs_to_its_op_call() -> None:
    group = module("wanted").Group("aten::mm", at=2)
    seen = Seen([2, 2])
    assert [
        group.wants(kind, 1, sp, seen) for kind, sp in [("call", 100), ("kernel", 90), ("redispatch", 80)]
    ] == [False] * 3
    # the second call runs inside the first one, the kernel of another thread belongs to neither
    assert group.wants("call", 1, 70, seen)
    assert group.wants("kernel", 1, 60, seen)
    assert not group.wants("kernel", 2, 60, seen)
    # the inner one has returned: what follows is the outer one's again
    assert not group.wants("redispatch", 1, 90, seen)
    assert (group.hits, group.recorded) == (2, 2)


def test_conditions() -> None:
    group = module("wanted").Group("aten::mm", when="shape(0)[0] > 128 and dim(-1) == 1 and tensors == 2")
    assert not group.wants("call", 1, 9, Seen([128, 2], [4]))
    assert group.wants("call", 1, 9, Seen([129, 2], [4]))
    assert not group.wants("call", 1, 9, Seen())
    assert group.errors == ["IndexError: the arguments hold 0 tensors, none is number 0"]
    generator = module("wanted").Group("aten::mm", when="any(shape(i)[0] > 1 for i in range(tensors))")
    assert generator.wants("call", 1, 9, Seen([1], [2]))
    assert (generator.wants("call", 1, 9, Seen([1], [1])), generator.errors) == (False, [])
    limited = module("wanted").Group("f", limit=1)
    assert [limited.wants("function", 1, 9, Seen()) for _ in range(3)] == [True, False, False]
    assert (limited.recorded, limited.left_out) == (1, 2)
