"""An extension whose kernels and fallbacks call their own operator again: calls, and no redispatches.

Its code has the dispatcher inlined, or as functions of its own if it was compiled without optimisation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from kept_extensions import kept_extension
from lazily import torch
from programs import ways

import tracer

pytestmark = pytest.mark.compiler

SOURCE = """
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/clone.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

using c10::DispatchKey;

int64_t typed(const at::Tensor& x, int64_t n) {
  if (n == 0) return x.clone().numel();
  static auto op = c10::Dispatcher::singleton()
                       .findSchemaOrThrow("NAME::typed", "")
                       .typed<int64_t(const at::Tensor&, int64_t)>();
  return op.call(x, n - 1);
}

at::Tensor boxed(const at::Tensor& x, int64_t n) {
  if (n == 0) return x.clone();
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("NAME::boxed", "");
  torch::jit::Stack stack{x, n - 1};
  op.callBoxed(&stack);
  return stack[0].toTensor();
}

template <DispatchKey key>
void calls_again(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard guard(key);
  op.callBoxed(stack);
}

template <DispatchKey key>
void redispatches(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard guard(key);
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key), stack);
}

at::Tensor copy(const at::Tensor& x) { return x.clone(); }

at::Tensor copy_by(const at::Tensor& x, bool call) {
  c10::impl::IncludeDispatchKeyGuard guard(
      call ? DispatchKey::TESTING_ONLY_GenericMode : DispatchKey::TESTING_ONLY_GenericWrapper);
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("NAME::copy", "").typed<decltype(copy)>();
  return op.call(x);
}

TORCH_LIBRARY(NAME, library) {
  library.def("typed(Tensor x, int n) -> int", {at::Tag::pt2_compliant_tag});
  library.def("boxed(Tensor x, int n) -> Tensor", {at::Tag::pt2_compliant_tag});
  library.def("copy(Tensor x) -> Tensor", {at::Tag::pt2_compliant_tag});
  library.impl("typed", DispatchKey::CPU, TORCH_FN(typed));
  library.impl("boxed", DispatchKey::CPU, TORCH_FN(boxed));
  library.impl("copy", DispatchKey::CPU, TORCH_FN(copy));
}
TORCH_LIBRARY_IMPL(NAME, TESTING_ONLY_GenericMode, library) {
  library.impl("copy",
               torch::CppFunction::makeFromBoxedFunction<&calls_again<DispatchKey::TESTING_ONLY_GenericMode>>());
}
TORCH_LIBRARY_IMPL(NAME, TESTING_ONLY_GenericWrapper, library) {
  library.impl("copy",
               torch::CppFunction::makeFromBoxedFunction<&redispatches<DispatchKey::TESTING_ONLY_GenericWrapper>>());
}
"""


@pytest.fixture(scope="module", params=["-O0", "-O2"])
def extension(request: pytest.FixtureRequest) -> ModuleType:
    from torch.utils.cpp_extension import load_inline

    name = f"tracer_calls_again{request.param.replace('-', '_')}"
    with kept_extension(name):
        return load_inline(
            name,
            SOURCE.replace("NAME", name),
            functions=["copy_by"],
            extra_cflags=[request.param],
            no_implicit_headers=True,  # torch/extension.h takes 24 s to compile
        )


def agreed(step: Callable[[], object], folder: Path) -> Counter[str]:
    """The op calls as the profiler counts them, as tracer does, and as tracer does beside the profiler."""
    from rank import profiled, traced

    expected = profiled(step)
    assert traced(step, folder / "alone.trace") == expected
    assert traced(lambda: profiled(step), folder / "beside.trace") & expected == expected
    return expected


@pytest.mark.parametrize("name", ["typed", "boxed"])
def test_an_operator_that_calls_itself(extension: ModuleType, tmp_path: Path, name: str) -> None:
    op, x = getattr(getattr(torch.ops, extension.__name__), name), torch.ones(2, 2)
    assert agreed(lambda: op(x, 3), tmp_path)[op.default.name()] == 4


@pytest.mark.parametrize(("key", "calls"), [("GenericMode", True), ("GenericWrapper", False)])
def test_a_boxed_kernel_that_calls_or_redispatches(
    extension: ModuleType, tmp_path: Path, key: str, calls: bool
) -> None:
    x, op = torch.ones(2, 2), f"{extension.__name__}::copy"
    assert agreed(lambda: extension.copy_by(x, calls), tmp_path)[op] == 1 + calls
    hops = tracer.load(tmp_path / "alone.trace").hops
    arrow = "" if calls else "-> "
    keys = [f"{op} [TESTING_ONLY_{key}]", f"{arrow}{op} [AutogradCPU]", f"-> {op} [CPU]"]
    assert ways(hops, op, "CPU") == [keys]
