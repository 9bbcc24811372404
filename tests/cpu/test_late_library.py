"""A C++ library that registers its operators while the recording runs."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from kept_extensions import kept_extension
from lazily import torch

import tracer

pytestmark = pytest.mark.compiler

SOURCE = """
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <torch/library.h>

at::Tensor twice(const at::Tensor& x) { return x.add(x); }

TORCH_LIBRARY(tracer_late, library) {
  library.def("twice(Tensor x) -> Tensor");
  library.impl("twice", c10::DispatchKey::CPU, TORCH_FN(twice));
  library.def("pointer(Tensor x) -> Tensor", &twice);
}
"""


def test_operators_of_a_library_that_is_loaded_late(tmp_path: Path) -> None:
    from torch.utils.cpp_extension import load_inline

    x = torch.ones(2)
    with kept_extension("tracer_late"), tracer.record(tmp_path / "t.trace"):
        load_inline(
            "tracer_late",
            SOURCE,
            is_python_module=False,
            extra_cflags=["-O0"],
            no_implicit_headers=True,  # torch/extension.h takes 24 s to compile
        )
        torch.ops.tracer_late.twice(x)
        torch.ops.tracer_late.pointer(x)
    trace = tracer.load(tmp_path / "t.trace")
    found = {
        (hop["op"], hop["key"]): hop["kernel"]
        for hop in trace.hops.select(pl.col("op", "key", "kernel").cast(pl.String)).iter_rows(named=True)
    }
    assert found["tracer_late::twice", "CPU"] == "twice"
    assert found["tracer_late::pointer", "AutogradCPU"] == "twice"  # a function pointer, for all keys
    assert not trace.certificate["lost_entries"]
    assert torch._C._dispatch_check_all_invariants() is None
