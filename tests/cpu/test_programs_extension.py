"""A C++ extension, loaded while the recording runs, with a backward of its own."""

from __future__ import annotations

import polars as pl
import pytest
from kept_extensions import kept_extension
from lazily import torch
from op_samples import digest
from programs import at, values, ways, whole

import tracer

pytestmark = pytest.mark.compiler

SOURCE = """
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor scaled(const at::Tensor& a, const at::Tensor& b, double scale) { return at::mm(a, b).mul(scale); }

struct Scaled : torch::autograd::Function<Scaled> {
  static at::Tensor forward(AutogradContext* context, at::Tensor a, at::Tensor b, double scale) {
    context->save_for_backward({a, b});
    context->saved_data["scale"] = scale;
    static auto op = c10::Dispatcher::singleton()
                         .findSchemaOrThrow("tracer_programs::scaled_mm", "")
                         .typed<at::Tensor(const at::Tensor&, const at::Tensor&, double)>();
    at::AutoDispatchBelowADInplaceOrView guard;
    return op.call(a, b, scale);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    auto saved = context->get_saved_variables();
    double scale = context->saved_data["scale"].toDouble();
    auto grad = grads[0], a = saved[0], b = saved[1];
    return {at::mm(grad, b.t()).mul(scale), at::mm(a.t(), grad).mul(scale), at::Tensor()};
  }
};

at::Tensor with_backward(const at::Tensor& a, const at::Tensor& b, double scale) {
  return Scaled::apply(a, b, scale);
}

at::Tensor without_operator(const at::Tensor& a, const at::Tensor& b) { return Scaled::apply(a, b, 2.0); }

TORCH_LIBRARY(tracer_programs, library) {
  library.def("scaled_mm(Tensor a, Tensor b, float scale) -> Tensor");
  library.impl("scaled_mm", c10::DispatchKey::CPU, TORCH_FN(scaled));
  library.impl("scaled_mm", c10::DispatchKey::Autograd, TORCH_FN(with_backward));
}
"""


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    a = torch.linspace(-1, 1, 6).view(2, 3).requires_grad_()
    return a, torch.linspace(2, 3, 12).view(3, 4).requires_grad_()


def by_operator() -> list[torch.Tensor]:
    a, b = operands()
    y = torch.ops.tracer_programs.scaled_mm(a, b, 0.3)
    y.sin().sum().backward()
    return [y.detach(), a.grad, b.grad]


def in_python() -> list[torch.Tensor]:
    a, b = operands()
    y = torch.mm(a, b) * 0.3
    grad = torch.autograd.grad(y.sin().sum(), y, retain_graph=True)[0]
    with torch.no_grad():
        return [y.detach(), torch.mm(grad, b.t()) * 0.3, torch.mm(a.t(), grad) * 0.3]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory):
    from torch.utils.cpp_extension import load_inline

    folder = tmp_path_factory.mktemp("extension")
    with kept_extension("tracer_programs"), tracer.record(folder / "program.trace"):
        library = load_inline(
            "tracer_programs",
            SOURCE,
            functions=["without_operator"],
            extra_cflags=["-O0"],
            no_implicit_headers=True,  # torch/extension.h takes 24 s to compile
        )
        results = by_operator()
        a, b = operands()
        a.sin()  # makes a node, and is no maker of the next one
        torch.add(a.detach(), 1)  # makes none, at the number that the next one gets
        library.without_operator(a, b).sum().backward()
    assert digest(results) == digest(in_python()), "the formulas, from Python"
    assert digest(results) == digest(by_operator()), "the extension, not recorded"
    return whole(tracer.load(folder / "program.trace"))


def test_registered_late(recorded: tracer.Trace) -> None:
    """Its kernels are hooked as they come, at the key Autograd for every backend."""
    hops = recorded.hops
    assert ways(hops, "tracer_programs::scaled_mm", "CPU")[0] == [
        "tracer_programs::scaled_mm [AutogradCPU]",
        "tracer_programs::scaled_mm [CPU]",  # op.call, in the extension's own code, from its own kernel
    ]
    assert values(at(hops, "tracer_programs::scaled_mm"), "kernel") == ["with_backward", "scaled"]
    assert ways(hops, "aten::mm", "CPU")[0] == [
        "tracer_programs::scaled_mm [AutogradCPU]",
        "tracer_programs::scaled_mm [CPU]",
        "aten::mm [CPU]",
    ]
    assert recorded.certificate["rearmed"] > 0
    assert not recorded.certificate["lost_entries"]


def products_of_backward(hops: pl.DataFrame) -> pl.DataFrame:
    return at(hops.filter(pl.col("backward_node").cast(pl.String).str.contains("Scaled")), "aten::mm", "CPU")


def test_backward_in_cpp(recorded: tracer.Trace) -> None:
    """Its backward node is linked with the hop that made it, at the line that called the operator."""
    backward = products_of_backward(recorded.hops)
    assert len(backward) == 4
    first = backward[:2]
    maker = recorded.hops[first["forward_hop"].unique()]
    assert values(maker, "op") == ["tracer_programs::scaled_mm"]
    assert values(maker, "key") == ["AutogradCPU"]
    line = by_operator.__code__.co_firstlineno + 2
    assert values(first, "source") == [f"{__file__}:{line}"]


def test_backward_of_a_function_that_is_no_operator(recorded: tracer.Trace) -> None:
    backward = products_of_backward(recorded.hops)
    assert values(backward[2:], "forward_hop") == [None]
