"""Overlays that several tests build once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tracer.debugger import overlay, target
from tracer.debugger.overlay import Overlay
from tracer.debugger.target import Target

# What the release computes, through a function that libtorch_cpu has and does not export.
OUTER = """\
#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/outer_native.h>

namespace torch::autograd::VariableType {
const at::Tensor& unpack(const at::Tensor& tensor, const char* name, int position);
}

namespace at::native {

Tensor outer(const Tensor& self, const Tensor& vec2) {
  const Tensor& column = torch::autograd::VariableType::unpack(self, "self", 0);
  TORCH_CHECK(column.dim() == 1 && vec2.dim() == 1, "outer: expected vectors");
  return column.reshape_symint({column.sym_size(0), 1}) * vec2;
}

} // namespace at::native
"""


@pytest.fixture(scope="session")
def here() -> Target:
    return target.look(sys.executable)


@pytest.fixture(scope="session")
def mm(here: Target) -> Overlay:
    """The overlay of mm, in the user's cache."""
    return overlay.build(here, ["mm"])


@pytest.fixture(scope="session")
def checkout(here: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PyTorch checkout of the installed version, as far as `outer` needs one."""
    folder = tmp_path_factory.mktemp("checkout")
    native = folder / "aten/src/ATen/native"
    native.mkdir(parents=True)
    (folder / "version.txt").write_text(here.torch_version.partition("+")[0] + "a0\n")
    (native / "Products.cpp").write_text(OUTER)
    return folder


def seeded(cache: Path, built: Overlay) -> Path:
    """A cache that holds the generated code and no overlay."""
    base = cache / "tracer/overlay" / built.sources.parent.name
    base.mkdir(parents=True)
    (base / "generated").symlink_to(built.sources)
    return cache


@pytest.fixture(scope="session")
def outer(here: Target, mm: Overlay, checkout: Path) -> Overlay:
    cache = seeded(checkout / "cache", mm)
    return overlay.build(here, ["aten::outer"], source=checkout, cache=cache)
