"""Code with debug information: a line as a breakpoint, typed arguments, locals, and steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from debugging import debug
from launching import Launcher
from lazily import torch
from libraries import build

pytestmark = pytest.mark.gdb

SOURCE = """\
#include <torch/library.h>
#include <vector>

static at::Tensor scaled(const at::Tensor& input, double factor, int64_t times) {
  std::vector<int64_t> sizes = input.sizes().vec();
  at::Tensor result = input.clone();
  for (int64_t n = 0; n < times; ++n)
    result.mul_(factor);
  return result;
}

TORCH_LIBRARY(own, library) {
  library.def("scaled(Tensor input, float factor, int times) -> Tensor", scaled);
}
"""
SCRIPT = """
import torch
torch.ops.load_library("libown.so")
print(torch.ops.own.scaled(torch.ones(4, 3).t(), 2.0, 2).sum().item())
"""


@pytest.fixture(scope="module")
def library() -> Path:
    return build("own", SOURCE)


def test_lines_arguments_locals(launcher: Launcher, library: Path) -> None:
    launcher.write(SCRIPT.replace("libown.so", str(library)))
    found = debug(launcher, "script.py", "-b", "own.cpp:8", "-b", "scaled")
    assert found.run.status == 0, found.run.err
    assert [(stop["kind"], Path(stop["file"]).name, stop["line"]) for stop in found.stops] == [
        ("function", "own.cpp", 5),
        ("line", "own.cpp", 8),
        ("line", "own.cpp", 8),
    ]
    arguments = {value["name"]: value for value in found.stops[1]["arguments"]}
    assert arguments["input"]["value"]["shape"] == [3, 4]
    assert arguments["input"]["value"]["stride"] == [1, 3]
    assert arguments["input"]["type"] == "at::Tensor const&"
    assert (arguments["factor"]["value"], arguments["times"]["value"]) == (2.0, 2)
    inner = {value["name"]: value["value"] for value in found.stops[2]["locals"]}
    assert inner["n"] == 1
    assert inner["sizes"] == [3, 4]
    assert inner["result"]["shape"] == [3, 4]
    frame = found.stops[1]["frames"][0]
    assert (frame["function"], frame["line"]) == ("scaled", 8)
    assert "- level: DWARF: file:line, arguments and locals" in found.markdown
    assert "#0   scaled  own.cpp:8\n" in found.markdown


SESSION = """
\"\"\"Two steps from the first line.\"\"\"
def walk(gdb):
    gdb.command = ["script.py"]
    gdb.stop_at("own.cpp:5", halt=True)
    stop = gdb.go()
    assert stop["line"] == 5
    lines = [gdb.step()["line"] for _ in range(2)]
    gdb.note(f"stepped to {lines}")
    assert gdb.go() is None
"""


def test_a_session_of_ones_own_steps(launcher: Launcher, library: Path) -> None:
    launcher.write(SCRIPT.replace("libown.so", str(library)))
    launcher.write(SESSION, "steps.py")
    found = debug(launcher, "--session", "steps.py")
    assert found.run.status == 0, found.run.err
    assert "Two steps from the first line." in found.markdown
    assert found.stops[1]["kind"] == "step"
    assert found.stops[1]["line"] != 5


# With <ATen/Tensor.h> a compiler takes ten seconds more.
PRELOADED = """\
#include <ATen/core/TensorBody.h>

namespace at::native {
Tensor outer(const Tensor& self, const Tensor& vec2) {
  return self.unsqueeze(1).mul(vec2);
}
}  // namespace at::native
"""


def test_a_function_of_torch_in_a_preloaded_library(launcher: Launcher) -> None:
    """As gdb/debug_build/preload.sh makes one: it runs in place of torch's own."""
    library = build("preloaded", PRELOADED, f"-Wl,-rpath,{Path(torch.__file__).parent / 'lib'}")
    launcher.write("import torch\nprint(torch.outer(torch.ones(2), torch.ones(3)).shape)\n")
    found = debug(launcher, "script.py", "-b", "at::native::outer", "--preload", str(library))
    assert found.run.out == "torch.Size([2, 3])\n"
    assert [(Path(stop["file"]).name, stop["line"]) for stop in found.stops] == [("preloaded.cpp", 5)]
    assert found.stops[0]["arguments"][1]["value"]["shape"] == [3]
    assert "- preloaded: libpreloaded.so" in found.markdown
