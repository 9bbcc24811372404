"""Overlays that several tests build once."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from launching import Launcher

from tracer.debugger import overlay, target
from tracer.debugger.overlay import Overlay
from tracer.debugger.target import Target

# The checkout has one path per worktree, which is part of what its overlay depends on.
STORE = Path(__file__).resolve().parents[2] / "build" / "test-overlays"

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


def use_the_users_cache(launcher: Launcher) -> None:
    """Commands of this launcher find the overlays that are there; to build that of mm takes two minutes."""
    launcher.environment.pop("XDG_CACHE_HOME")
    if "XDG_CACHE_HOME" in os.environ:
        launcher.environment["XDG_CACHE_HOME"] = os.environ["XDG_CACHE_HOME"]


@pytest.fixture(scope="session")
def checkout(here: Target) -> Path:
    """A PyTorch checkout of the installed version, as far as `outer` needs one.

    It stays: the overlay that is built from it counts as long as the folder and all that it is built from,
    with the code of tracer that builds it, are the same.
    """
    version = here.torch_version.partition("+")[0]
    folder = STORE / f"checkout-{version}"
    native = folder / "aten/src/ATen/native"
    native.mkdir(parents=True, exist_ok=True)
    (folder / "version.txt").write_text(f"{version}a0\n")
    (native / "Products.cpp").write_text(OUTER)
    return folder


def seeded(cache: Path, built: Overlay) -> Path:
    """A cache that holds the generated code, and no overlay when it is new."""
    base = cache / "tracer/overlay" / built.sources.parent.name
    base.mkdir(parents=True, exist_ok=True)
    generated = base / "generated"
    if not generated.is_symlink() or generated.readlink() != built.sources:
        generated.unlink(missing_ok=True)
        generated.symlink_to(built.sources)
    return cache


@pytest.fixture(scope="session")
def outer(here: Target, mm: Overlay, checkout: Path) -> Overlay:
    cache = seeded(checkout / "cache", mm)
    built = overlay.build(here, ["aten::outer"], source=checkout, cache=cache)
    if not built.cached:
        _remove_all_but(built)
    return built


def _remove_all_but(built: Overlay) -> None:
    """Overlays of earlier versions of tracer, of a compiler, or of the checkout."""
    kept = built.libraries[0].parent
    for library in kept.parent.glob(f"*/{built.libraries[0].name}"):
        if library.parent != kept:
            shutil.rmtree(library.parent)
