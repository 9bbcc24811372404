"""Overrides written in C++: a function, an operator of a library, and kernels that register themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest
from doubled_mm import operands
from lazily import torch

import tracer
from tracer.overrides import OverrideError, register, registered, unregister, use

pytestmark = pytest.mark.compiler


SOURCE = """
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/unsqueeze.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

at::Tensor product(const at::Tensor& self, const at::Tensor& mat2) {
  TORCH_CHECK(self.size(1) != 13, "thirteen");
  return at::mul(at::mul(self.unsqueeze(2), mat2.unsqueeze(0)).sum(1), 2);
}

TORCH_LIBRARY(tracer_override_test, library) {
  library.def("product(Tensor self, Tensor mat2) -> Tensor");
  library.impl("product", c10::DispatchKey::CPU, TORCH_FN(product));
}

// Registers itself, and leaves double to stock.
std::unique_ptr<torch::Library> library;
std::optional<c10::SafeKernelFunction> stock;
int64_t computed = 0, left = 0;

at::Tensor floats_only(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& mat2) {
  if (self.scalar_type() != at::kFloat) {
    ++left;
    static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::mm", "");
    torch::jit::Stack stack{self, mat2};
    stock->callBoxed(op, keys, &stack);
    return stack.back().toTensor();
  }
  ++computed;
  return product(self, mat2);
}

void install() {
  auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::mm", "");
  stock.emplace(op.getComputedKernelForDispatchKey(c10::DispatchKey::CPU));
  auto kind = torch::Library::IMPL;
  library = std::make_unique<torch::Library>(kind, "aten", c10::DispatchKey::CPU, "native.cpp", 7);
  library->impl("mm", TORCH_FN(floats_only));
}
void remove_it() { library.reset(); }
int64_t ran() { return computed; }
int64_t handed_over() { return left; }
"""


class Native:
    """What an extension offers to `register`: its own switching and counts."""

    operators = (("aten::mm", "CPU"),)

    def __init__(self, extension: ModuleType) -> None:
        self._extension = extension

    def install(self) -> None:
        self._extension.install()

    def remove(self) -> None:
        self._extension.remove_it()

    def ran(self) -> dict[str, int]:
        return {"aten::mm": self._extension.ran()}

    def handed_over(self) -> dict[str, dict[str, int]]:
        left = self._extension.handed_over()
        return {"aten::mm": {"double": left}} if left else {}


@pytest.fixture(scope="module")
def extension() -> ModuleType:
    from torch.utils.cpp_extension import load_inline

    functions = ["product", "install", "remove_it", "ran", "handed_over"]
    return load_inline(
        "tracer_override_test",
        SOURCE,
        functions=functions,
        extra_cflags=["-O0"],
        no_implicit_headers=True,  # torch/extension.h takes 24 s to compile
    )


@pytest.fixture(autouse=True)
def _table_as_it_was() -> Iterator[None]:
    before = torch._C._dispatch_dump_table("aten::mm")
    yield
    for name in set(registered()) - {"mm", "gru", "cat"}:
        unregister(name)
    assert torch._C._dispatch_dump_table("aten::mm") == before


def overridden(trace: tracer.Trace) -> list[tuple[str, str, str]]:
    hops = trace.hops.filter(pl.col("override").is_not_null())
    return list(hops.select(pl.col("op", "kernel", "override").cast(pl.String)).iter_rows())


def test_a_function_of_an_extension(extension: ModuleType, tmp_path: Path) -> None:
    a, b = operands()
    register("aten::mm", "CPU", extension.product, name="function")
    stock = torch.mm(a, b)
    with tracer.record(tmp_path / "x.trace"), use("function"):
        torch.testing.assert_close(torch.mm(a, b), stock * 2)
        with pytest.raises(RuntimeError, match="thirteen"):
            torch.mm(torch.ones(2, 13), torch.ones(13, 2))
    ((op, kernel, name),) = set(overridden(tracer.load(tmp_path / "x.trace")))
    assert (op, name) == ("aten::mm", "function")
    assert kernel.endswith("product")


def test_an_operator_of_a_library(extension: ModuleType, tmp_path: Path) -> None:
    a, b = operands()
    register("aten::mm", "CPU", torch.ops.tracer_override_test.product, name="operator")
    with tracer.record(tmp_path / "x.trace"), use("operator"):
        result = torch.mm(a, b)
    torch.testing.assert_close(result, torch.mm(a, b) * 2)
    trace = tracer.load(tmp_path / "x.trace")
    assert overridden(trace) == [("aten::mm", "torch.ops.tracer_override_test::product", "operator")]
    below = trace.hops.filter(pl.col("op").cast(pl.String) == "tracer_override_test::product")
    (parent,) = set(below["parent"])
    assert trace.hops["override"].cast(pl.String)[parent] == "operator"


def test_kernels_that_register_themselves(extension: ModuleType, tmp_path: Path) -> None:
    a, b = operands()
    register("aten::mm", "CPU", Native(extension), name="native")
    stock = torch.mm(a, b)
    with tracer.record(tmp_path / "x.trace"), use("native"):
        torch.testing.assert_close(torch.mm(a, b), stock * 2)
        assert torch.equal(torch.mm(a.double(), b.double()), a.double() @ b.double())
    assert torch.equal(torch.mm(a, b), stock)
    trace = tracer.load(tmp_path / "x.trace")
    hops = overridden(trace)
    assert [(op, name) for op, _, name in hops] == [("aten::mm", "native")] * 3
    assert "floats_only" in hops[0][1]  # named from the extension's symbols
    (one,) = trace.certificate["overrides"]
    assert (one["ran"], one["handed_over"], one["registered_at"]) == (1, {"double": 2}, "native.cpp:7")


def test_beneath_and_above_a_python_function(extension: ModuleType) -> None:
    a, b = operands()
    register("aten::mm", "CPU", Native(extension), name="native")
    register("aten::mm", "CPU", lambda self, mat2: torch.mm(self, mat2) * 5, name="five")
    stock = torch.mm(a, b)
    with use("native"):
        with use("five"):
            assert torch.equal(torch.mm(a, b), stock * 5)  # what it calls is stock, not the override beneath
            with use("native"):
                torch.testing.assert_close(torch.mm(a, b), stock * 2)
            assert torch.equal(torch.mm(a, b), stock * 5)
        torch.testing.assert_close(torch.mm(a, b), stock * 2)
    assert torch.equal(torch.mm(a, b), stock)


def test_an_object_that_is_for_another_operator_or_cannot_be_installed(extension: ModuleType) -> None:
    with pytest.raises(OverrideError, match=r"does not list aten::addmm \[CPU\] in its operators"):
        register("aten::addmm", "CPU", Native(extension), name="native")

    class Failing(Native):
        def install(self) -> None:
            raise RuntimeError("no such card")

    register("aten::mm", "CPU", Failing(extension), name="failing")
    with pytest.raises(OverrideError, match=r"cannot override aten::mm \[CPU\]: RuntimeError: no such card"):
        use("failing").__enter__()
    assert not registered()["failing"].is_on


def test_switched_again_and_again_while_it_is_recorded(extension: ModuleType, tmp_path: Path) -> None:
    a, b = operands()
    register("aten::mm", "CPU", Native(extension), name="native")
    stock = torch.mm(a, b)
    with tracer.record(tmp_path / "x.trace"):
        for _ in range(50):
            with use("native"):
                torch.testing.assert_close(torch.mm(a, b), stock * 2)
            assert torch.equal(torch.mm(a, b), stock)
    trace = tracer.load(tmp_path / "x.trace")
    at_cpu = trace.hops.filter(
        (pl.col("op").cast(pl.String) == "aten::mm") & (pl.col("key").cast(pl.String) == "CPU")
    )
    assert at_cpu["override"].cast(pl.String).to_list() == ["native", None] * 50
    (one,) = trace.certificate["overrides"]
    assert (one["ran"], one["times"]) == (50, 50)
