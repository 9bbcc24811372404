"""The dispatcher's table, read from memory as gdb reads it: here a process reads its own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from lazily import torch
from test_gdb_inside import OwnMemory

from tracer.trace.names import kernels as naming

_GDB = Path(__file__).parents[2] / "gdb"
_OF_GDB = ("kernels", "symbols", "gdb")


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    for name in _OF_GDB:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "gdb", SimpleNamespace(GdbError=ValueError))
    for folder in ("inside", "inferior"):
        monkeypatch.syspath_prepend(str(_GDB / folder))
    module = importlib.import_module("kernels")
    monkeypatch.setattr(module, "symbol_at", lambda address: (f"function_{address:x}", 0))
    yield module
    for name in _OF_GDB:
        sys.modules.pop(name, None)


@pytest.fixture
def table(kernels: ModuleType) -> Any:
    layout = importlib.import_module("tensor_layout").measure()
    key_sets = importlib.import_module("tensors").KeySets(layout["keys"])
    measured = importlib.import_module("dispatch_table").measure()
    schemas = importlib.import_module("schemas").measure()
    return kernels.Table(measured, OwnMemory(), schemas, key_sets, naming)


def test_rows_are_what_torch_tells(table: Any) -> None:
    """Of an operator that is none of the samples by which the layout was found."""
    assert table.readable
    told: dict[str, set[str]] = {}
    for line in torch._C._dispatch_dump_table("aten::bmm").splitlines():
        key, _, text = line.partition(": ")
        told.setdefault(text, set()).add(key)
    fallthrough = {key for text, keys in told.items() if text.startswith("fallthrough") for key in keys}
    alike = {frozenset(kernel["keys"]) - fallthrough for kernel in table.kernels("aten::bmm")}
    assert {frozenset(keys) for keys in told.values()} - {frozenset(fallthrough)} >= {
        keys for keys in alike if "AutogradCPU" in keys or "CPU" in keys or "AutocastCPU" in keys
    }
    (cpu,) = [
        kernel
        for kernel in table.kernels("aten::bmm")
        if "CPU" in kernel["keys"] and kernel["kind"] == "kernel"
    ]
    assert cpu["keys"] == ["CPU"]
    assert cpu["functor"]


def test_what_is_registered_later_is_found(table: Any) -> None:
    assert table.state("own_table::later") is None
    library = torch.library.Library("own_table", "DEF")
    library.define("later.out(Tensor x) -> Tensor")
    before = table.state("own_table::later.out")
    assert before is not None
    library.impl("later.out", lambda x: x, "CPU")
    assert table.state("own_table::later.out") != before
    (kernel,) = [each for each in table.kernels("own_table::later.out") if "CPU" in each["keys"]]
    assert (kernel["kind"], kernel["op"]) == ("boxed kernel", "own_table::later.out")
    assert table.matching(kernel["operator_at"], "own_table::later") == "own_table::later.out"
    assert table.matching(kernel["operator_at"], "own_table::*") == "own_table::later.out"
    assert table.matching(kernel["operator_at"], "own_table::lat") is None


def test_a_key_without_a_kernel_function_is_said(table: Any) -> None:
    with pytest.raises(ValueError, match="this torch has no dispatch key NoKey"):
        table.at_key("aten::bmm", "NoKey")
    with pytest.raises(ValueError, match="aten::bmm has no kernel function at SparseHPU; there are: "):
        table.at_key("aten::bmm", "SparseHPU")
    kernels, key = table.at_key("aten::bmm", "AutocastCPU")
    assert key == "AutocastCPU"
    assert all("AutocastCPU" in kernel["keys"] for kernel in kernels)


def test_arguments_are_named_as_the_schema_names_them(table: Any) -> None:
    """Those of an operator that the script brings too."""
    library = torch.library.Library("own_table", "FRAGMENT")
    library.define("named(Tensor first, int second=2, *, str[] third_of_a_long_name) -> (Tensor, Tensor)")
    assert table.state("own_table::named") is not None
    assert table.arguments("own_table::named") == ["first", "second", "third_of_a_long_name"]
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name + ("." + schema.overload_name if schema.overload_name else "")
        if name in table.operators:
            assert table.arguments(name) == [argument.name for argument in schema.arguments], name
    assert table.arguments("own_table::no_such") == []
