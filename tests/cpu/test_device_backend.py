"""A back end on PrivateUse1, as vendors make theirs: a library that a script loads while it is recorded.

Its operators pass calls on as vendors' do: to the CPU by `at::native::cpu_fallback` and by a boxed kernel of
the library's own, and from an autograd kernel to the device's.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from launching import Launcher
from lazily import torch
from libraries import build

import tracer
from tracer.trace import Trace

pytestmark = pytest.mark.compiler

SOURCE = """
#include <cstring>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

using c10::DispatchKey, c10::DispatchKeySet, c10::DeviceType;
using at::Tensor;
const c10::Device moon(DeviceType::PrivateUse1, 0);

void give_back(void* block) {
  if (!block) return;
  size_t* size = static_cast<size_t*>(block) - 8;
  c10::reportMemoryUsageToProfiler(block, -int64_t(*size), 0, 0, moon);
  free(size);
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    if (!size) return {nullptr, nullptr, &give_back, moon};
    auto* begin = static_cast<size_t*>(malloc(size + 64));
    *begin = size;
    c10::reportMemoryUsageToProfiler(begin + 8, int64_t(size), 0, 0, moon);
    return {begin + 8, begin + 8, &give_back, moon};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t size) const override { memcpy(to, from, size); }
} allocator;
REGISTER_ALLOCATOR(DeviceType::PrivateUse1, &allocator);
C10_REGISTER_GUARD_IMPL(PrivateUse1, c10::impl::NoOpDeviceGuardImpl<DeviceType::PrivateUse1>);

Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  DispatchKeySet keys(DispatchKey::PrivateUse1);
  return at::detail::empty_generic(size, &allocator, keys, c10::dtype_or_default(type), format);
}
Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> type,
                     std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  DispatchKeySet keys(DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(size, stride, &allocator, keys, c10::dtype_or_default(type));
}
Tensor on_host(const Tensor& x) {
  auto options = x.options().device(at::kCPU);
  return x.is_cpu() ? x : at::from_blob(x.data_ptr(), x.sizes(), x.strides(), options);
}
Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  on_host(to).copy_(on_host(from));
  return to;
}
Tensor copy_from_same_size(const Tensor& from, const Tensor& to) { return copy_from(from, to, false); }
void to_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack); }

// The library's own way to the CPU, of operators with one tensor.
void own_way(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  stack->front() = on_host(stack->front().toTensor()).clone();
  op.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), stack);
}
Tensor root(const Tensor& x) { return x.sqrt(); }

Tensor halved(const Tensor& x) { return on_host(x).div(2).to(moon); }
struct Halved : torch::autograd::Function<Halved> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) {
    at::AutoDispatchBelowADInplaceOrView guard;
    auto op = c10::Dispatcher::singleton().findSchemaOrThrow("moon::halved", "");
    return op.typed<Tensor(const Tensor&)>().call(x);
  }
  using List = torch::autograd::variable_list;
  static List backward(torch::autograd::AutogradContext*, List grads) {
    return {grads[0]};
  }
};
Tensor halved_autograd(const Tensor& x) { return Halved::apply(x); }

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&to_cpu>());
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_same_size);
}
TORCH_LIBRARY(moon, library) {
  library.def("root(Tensor x) -> Tensor");
  library.def("halved(Tensor x) -> Tensor");
  library.impl("root", DispatchKey::CPU, TORCH_FN(root));
  library.impl("root", DispatchKey::PrivateUse1, torch::CppFunction::makeFromBoxedFunction<&own_way>());
  library.impl("halved", DispatchKey::PrivateUse1, TORCH_FN(halved));
  library.impl("halved", DispatchKey::AutogradPrivateUse1, TORCH_FN(halved_autograd));
}
"""
SCRIPT = """\
import collections, json, sys, types, torch
from torch.profiler import ProfilerActivity, profile

module = types.ModuleType("torch.moon")
module.is_available = module.is_initialized = lambda: True
module._is_in_bad_fork, module.device_count, module.current_device = (lambda: False), (lambda: 1), (lambda: 0)
torch.ops.load_library(sys.argv[1])
torch.utils.rename_privateuse1_backend("moon")
torch._register_device_module("moon", module)

def work():
    x = torch.full((40, 30), 4.0).to("moon")
    y = torch.ops.moon.root(x.floor())
    z = torch.ops.moon.halved(x.detach().requires_grad_())
    return y.sum().item(), (z * z).cumsum(1).to("cpu").sum().item()

config = torch._C._profiler._ExperimentalConfig(capture_overload_names=True)
with profile(activities=[ProfilerActivity.CPU], profile_memory=True, experimental_config=config) as profiler:
    print(*work())
events = profiler.profiler.kineto_results.events()
names = [f"{event.name()}.{event.overload_name()}".rstrip(".") for event in events]
blocks = [event for event in events if event.name() == "[memory]"]
json.dump({
    "calls": collections.Counter(name for name in names if name.startswith(("aten::", "moon::"))),
    "blocks": [[event.device_type().name.lower(), event.nbytes()] for event in blocks],
}, open("witness.json", "w"))
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, dict[str, Any], str]:
    """The trace, what torch.profiler counted in the same run, and what the summary said."""
    launcher = Launcher(tmp_path_factory.mktemp("backend"))
    launcher.write(SCRIPT)
    library = str(build("moon", SOURCE, "-O2", "-g0", "-I" + str(include()), "-ltorch"))
    run = launcher.record("-o", "run.trace", "--memory", "script.py", library)
    assert (run.status, run.out) == (0, "2400.0 74400.0\n"), run.err
    witness = json.loads((launcher.folder / "witness.json").read_text())
    return tracer.load(launcher.folder / "run.trace"), witness, run.err


def include() -> Path:
    return Path(torch.__file__).parent / "include" / "torch" / "csrc" / "api" / "include"


def test_its_op_calls_are_those_of_torchs_profiler(recorded: tuple[Trace, dict[str, Any], str]) -> None:
    trace, witness, summary = recorded
    calls = trace.hops.filter(pl.col("kind") == "call")["op"].cast(pl.String)
    counted = Counter(op for op in calls if op.startswith(("aten::", "moon::")))
    assert counted == witness["calls"]
    assert (counted["moon::root"], counted["moon::halved"], counted["aten::floor"]) == (1, 2, 1)
    assert f"{trace.certificate['op_calls']:,} op calls" in summary


@pytest.mark.parametrize(
    ("op", "passed_on_by"), [("aten::cumsum.out", "fallback: to_cpu"), ("moon::root", "own_way")]
)
def test_the_cpus_kernel_continues_the_call(
    recorded: tuple[Trace, dict[str, Any], str], op: str, passed_on_by: str
) -> None:
    hops = recorded[0].hops.with_columns(pl.col("op", "key", "kind", "kernel").cast(pl.String))
    on_cpu = hops.row(by_predicate=(pl.col("op") == op) & (pl.col("key") == "CPU"), named=True)
    around = hops.row(on_cpu["parent"], named=True)
    assert on_cpu["kind"] == "redispatch"
    assert (around["op"], around["key"], around["kernel"]) == (op, "PrivateUse1", passed_on_by)


def test_each_block_that_it_reports_is_recorded(recorded: tuple[Trace, dict[str, Any], str]) -> None:
    trace, witness, _ = recorded
    device = pl.col("device").cast(pl.String).str.strip_suffix(":0")
    recorded_blocks = Counter(trace.memory.select(device, "bytes").rows())
    assert recorded_blocks == Counter((device, size) for device, size in witness["blocks"])
    assert recorded_blocks["moon", 4800] == recorded_blocks["moon", -4800] == 5
    assert not [text for text in trace.certificate["not_visible"] if "of memory" in text]


def test_its_device_has_the_name_that_the_program_gave_it(
    recorded: tuple[Trace, dict[str, Any], str],
) -> None:
    assert set(recorded[0].signatures["device"].cast(pl.String).drop_nulls()) == {"cpu", "moon:0"}
