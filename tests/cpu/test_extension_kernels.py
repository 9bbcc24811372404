"""The newest ways to register a kernel of C++: the stable ABI, and functors that take boxed arguments."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from kept_extensions import kept_extension
from lazily import torch

import tracer

pytestmark = pytest.mark.compiler

STABLE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

using torch::stable::Tensor;

namespace shop {
Tensor zeroed(Tensor x) { return torch::stable::fill_(torch::stable::clone(x), 0.0); }
template <int N>
Tensor filled(Tensor x, double by) { return torch::stable::fill_(torch::stable::clone(x), N * by); }
}  // namespace shop

namespace {
std::tuple<Tensor, Tensor> pair(Tensor x) { return {x, shop::zeroed(x)}; }
void nothing(Tensor x) {}
}  // namespace

void by_hand(StableIValue* stack, uint64_t arguments, uint64_t results) {
  stack[0] = torch::stable::detail::from(shop::zeroed(torch::stable::detail::to<Tensor>(stack[0])));
}

STABLE_TORCH_LIBRARY(tracer_stable, library) {
  library.def("zeroed(Tensor x) -> Tensor");
  library.def("filled_two(Tensor x, float by) -> Tensor");
  library.def("filled_three(Tensor x, float by) -> Tensor");
  library.def("pair(Tensor x) -> (Tensor, Tensor)");
  library.def("nothing(Tensor x) -> ()");
  library.def("by_hand(Tensor x) -> Tensor");
}
STABLE_TORCH_LIBRARY_IMPL(tracer_stable, CPU, library) {
  library.impl("zeroed", TORCH_BOX(&shop::zeroed));
  library.impl("filled_two", TORCH_BOX(&shop::filled<2>));
  library.impl("filled_three", TORCH_BOX(&shop::filled<3>));
  library.impl("pair", TORCH_BOX(&pair));
  library.impl("nothing", TORCH_BOX(&nothing));
  library.impl("by_hand", &by_hand);
}
"""
FUNCTORS = """
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

using Stack = torch::jit::Stack;

namespace shop {
struct Negate final : c10::OperatorKernel {
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
    torch::jit::push(*stack, torch::jit::pop(*stack).toTensor().neg());
  }
};
template <int N>
struct Times final : c10::OperatorKernel {
  double state = 1;
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
    torch::jit::push(*stack, torch::jit::pop(*stack).toTensor().mul(N * state));
  }
};
}  // namespace shop
namespace {
struct Hidden final : c10::OperatorKernel {
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack*) {}
};
}  // namespace

template <class Functor>
torch::CppFunction of() { return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Functor>()); }

TORCH_LIBRARY(tracer_functors, library) {
  for (const char* name : {"negate", "twice", "thrice", "same"})
    library.def((std::string(name) + "(Tensor x) -> Tensor").c_str());
}
TORCH_LIBRARY_IMPL(tracer_functors, CPU, library) {
  library.impl("negate", of<shop::Negate>());
  library.impl("twice", of<shop::Times<2>>());
  library.impl("thrice", of<shop::Times<3>>());
  library.impl("same", of<Hidden>());
}
"""


def load(name: str, source: str) -> None:
    from torch.utils.cpp_extension import load_inline

    with kept_extension(name):
        load_inline(name, source, is_python_module=False, extra_cflags=["-O1"], no_implicit_headers=True)


def kernels(trace: tracer.Trace, space: str) -> dict[str, str]:
    """By operator: the kernel at the key CPU."""
    hops = trace.hops.select(pl.col("op", "key", "kernel").cast(pl.String)).filter(key="CPU")
    return {op.removeprefix(space): kernel for op, _, kernel in hops.rows() if op.startswith(space)}


def test_a_kernel_of_the_stable_abi_is_the_users_function(tmp_path: Path) -> None:
    load("tracer_stable", STABLE)
    x, ops = torch.ones(2), torch.ops.tracer_stable
    with tracer.record(tmp_path / "t.trace"):
        ops.zeroed(x), ops.filled_two(x, 1.5), ops.filled_three(x, 1.5), ops.pair(x), ops.nothing(x)
        assert ops.by_hand(x).sum() == 0
    assert kernels(tracer.load(tmp_path / "t.trace"), "tracer_stable::") == {
        "zeroed": "shop::zeroed",
        "filled_two": "shop::filled<2>",
        "filled_three": "shop::filled<3>",
        "pair": "pair",
        "nothing": "nothing",
        "by_hand": "by_hand",
    }


def test_a_boxed_functor_is_named_by_its_class(tmp_path: Path) -> None:
    load("tracer_functors", FUNCTORS)
    x, ops = torch.ones(2), torch.ops.tracer_functors
    with tracer.record(tmp_path / "t.trace"):
        ops.negate(x), ops.twice(x), ops.thrice(x), ops.same(x)
    assert kernels(tracer.load(tmp_path / "t.trace"), "tracer_functors::") == {
        "negate": "shop::Negate",
        "twice": "shop::Times<2>",
        "thrice": "shop::Times<3>",
        "same": "Hidden",
    }
