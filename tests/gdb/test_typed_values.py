"""PyTorch's types in code with debug information read as values, and what is not set is not read."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from debugging import Debugged, debug
from launching import Launcher
from libraries import build

pytestmark = [pytest.mark.gdb, pytest.mark.compiler]

SOURCE = """\
#include <torch/library.h>
#include <vector>

namespace typed {

int64_t leaves_numbers(int64_t n) {
  volatile int64_t numbers[64];
  for (int i = 0; i < 64; ++i) numbers[i] = n + i;
  return numbers[n % 64];
}

at::Tensor all(const at::Tensor& input, at::TensorList list, const at::Scalar& scalar, at::IntArrayRef sizes,
               std::optional<int64_t> number, const std::optional<at::Tensor>& absent,
               std::optional<at::ScalarType> dtype, at::OptionalIntArrayRef dims, c10::SymInt symbolic,
               c10::string_view text) {
  int64_t count = list.size();
  at::Scalar twice = scalar;
  std::optional<double> none;
  std::vector<int64_t> copied = sizes.vec();
  c10::SymInt local = symbolic;
  at::Tensor result = input.clone();
  for (int64_t n = 0; n < 2; ++n)
    result.add_(scalar);
  return result;
}

at::Tensor run(const at::Tensor& input, double, double, int64_t, int64_t, bool, std::optional<int64_t>) {
  std::vector<at::Tensor> list = {input, input.t()};
  leaves_numbers(5);
  auto inner = [&] {
    std::vector<int64_t> dims = {0, 1};
    return all(input, list, 3, input.sizes(), 7, std::nullopt, at::kDouble, at::IntArrayRef(dims), 9, "text");
  };
  return inner();
}

}  // namespace typed

TORCH_LIBRARY(typed, library) {
  library.def("run(Tensor x, float a=1, float b=2, int c=3, int d=4, bool e=False, int? f=None) -> Tensor",
              typed::run);
}
"""
SCRIPT = """
import torch
torch.ops.load_library("LIBRARY")
print(torch.ops.typed.run(torch.ones(4, 3)).sum().item())
"""
LOCALS = ["count", "twice", "none", "copied", "local", "result"]


CONDITION = "tensors == 3 and shape(2) == [3, 4]"
SESSION = """
def walk(gdb):
    gdb.command = ["script.py"]
    gdb.stop_at("typed::all", when="CONDITION")
    gdb.stop_at("typed::run", when="CONDITION")
    for line in range(16, 22):
        gdb.stop_at(f"typed.cpp:{line}")
    gdb.stop_at("typed.cpp:24", halt=True)
    gdb.go()
    said = gdb.session.mi.execute("info args") + gdb.session.mi.execute("info locals")
    open("said.txt", "w").write(said + gdb.session.mi.execute("bt 1"))
"""


@pytest.fixture(scope="module")
def library() -> Path:
    return build("typed", SOURCE)


@pytest.fixture(scope="module")
def walked(library: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Debugged, str]:
    """One session to the end of `all`, and what gdb itself prints there."""
    launcher = Launcher(tmp_path_factory.mktemp("walked"))
    launcher.write(SCRIPT.replace("LIBRARY", str(library)))
    launcher.write(SESSION.replace("CONDITION", CONDITION), "session.py")
    found = debug(launcher, "--session", "session.py")
    assert found.run.status == 0, found.run.err
    return found, (launcher.folder / "said.txt").read_text()


def _named(values: list[dict[str, Any]]) -> dict[str, Any]:
    return {value["name"]: value["value"] for value in values}


def _without_addresses(said: str) -> str:
    return re.sub(r"@0x[0-9a-f]+: ", "", said)


def test_arguments_are_values(walked: tuple[Debugged, str]) -> None:
    stops = walked[0].stops
    assert len(stops) == 8
    for stop in stops:
        arguments = _named(stop["arguments"])
        assert arguments["input"]["shape"] == [4, 3]
        assert [each["shape"] for each in arguments.pop("list")] == [[4, 3], [3, 4]]
        assert {name: arguments[name] for name in list(arguments)[1:]} == {
            "scalar": 3,
            "sizes": [4, 3],
            "number": 7,
            "absent": None,
            "dtype": "float64",
            "dims": [0, 1],
            "symbolic": 9,
            "text": "text",
        }
    assert stops[-1]["line"] == 24
    at_end = _named(stops[-1]["locals"])
    assert at_end.pop("result")["shape"] == [4, 3]
    assert at_end == {"count": 2, "twice": 3, "none": None, "copied": [4, 3], "local": 9}


def test_the_frames_of_a_custom_operator(walked: tuple[Debugged, str]) -> None:
    frames = walked[0].stops[0]["frames"]
    shown = [frame["function"] for frame in frames if not frame["plumbing"]]
    assert shown[:3] == ["typed::all", "typed::run::{lambda#1}::operator()", "typed::run"]
    assert shown[3].startswith("function pointer at::Tensor (*)(at::Tensor const&, double, ")
    assert shown[3].endswith("...")
    assert max(map(len, shown)) <= 100
    assert "call_functor_with_args_from_stack" not in "".join(shown)


def test_a_condition_means_the_same_tensors_as_the_report(walked: tuple[Debugged, str]) -> None:
    """It holds for the arguments of `all`, and not for the one tensor of `run`."""
    assert [stop["spec"] for stop in walked[0].stops if stop["kind"] == "function"] == ["typed::all"]


def test_locals_are_not_shown_before_they_are_set(walked: tuple[Debugged, str]) -> None:
    found = walked[0]
    stops = {stop["line"]: _named(stop["locals"]) for stop in found.stops[:-1] if stop["kind"] == "line"}
    assert sorted(stops) == [16, 17, 18, 19, 20, 21]
    for line, seen in stops.items():
        unset = [name for name in LOCALS if isinstance(seen[name], dict) and "unset" in seen[name]]
        assert unset == LOCALS[line - 16 :], line
    at_function = next(stop for stop in found.stops if stop["kind"] == "function")
    assert all("unset" in value for value in _named(at_function["locals"]).values())
    assert "`result` (line 21)" in found.markdown


def test_gdb_prints_the_same_values(walked: tuple[Debugged, str]) -> None:
    said = _without_addresses(walked[1])
    tensor = "<shape [4, 3], stride [3, 1], float32, cpu>"
    for line in (
        f"input = {tensor}",
        "list = [<shape [4, 3], stride [3, 1], float32, cpu>, <shape [3, 4], stride [1, 3], float32, cpu>]",
        "scalar = 3",
        "sizes = [4, 3]",
        "dims = [0, 1]",
        "symbolic = 9",
        "twice = 3",
        "local = 9",
        f"result = {tensor}",
    ):
        assert line in said, said
    assert f"typed::all (input={tensor}, list=[" in said


PLAIN = """
import torch
torch.ops.load_library("LIBRARY")
torch.ops.typed.run(torch.ones(4, 3))
"""


def test_printers_in_a_gdb_without_tracer(launcher: Launcher) -> None:
    # as a debug build of libc10 has it
    library = build("typed", SOURCE, "-femit-class-debug-always")
    launcher.write(PLAIN.replace("LIBRARY", str(library)))
    printers = Path(__file__).parents[2] / "gdb/inside/printers.py"
    run = launcher.run(
        ["gdb", "--nx", "--batch", "-ex", "set breakpoint pending on", "-ex", "break typed.cpp:24",
         "-ex", "run", "-ex", f"source {printers}", "-ex", "info args", "-ex", "info locals",
         "--args", sys.executable, "script.py"]
    )  # fmt: skip
    for line in (
        "input = <shape [4, 3], stride [3, 1], float32, cpu>",
        "scalar = 3",
        "sizes = [4, 3]",
        "result = <shape [4, 3], stride [3, 1], float32, cpu>",
    ):
        assert line in _without_addresses(run.out), run.out + run.err


def test_a_function_that_gdb_finds_by_its_symbol_alone(launcher: Launcher, library: Path) -> None:
    """Without debug information gdb stops a function of the script's library inside its prologue."""
    import subprocess

    bare = launcher.folder / "libbare.so"
    subprocess.run(["strip", "-g", "-o", bare, library], check=True)
    launcher.write(SCRIPT.replace("LIBRARY", str(bare)))
    found = debug(launcher, "script.py", "-b", "typed::all")
    assert found.run.status == 0, found.run.err
    values = [argument["value"] for argument in found.stops[0]["arguments"]]
    assert values[0]["shape"] == [4, 3]
    assert values[2:6] == [3, [4, 3], 7, None]
    assert values[-1] == "text"  # passed in memory
