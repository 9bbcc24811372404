"""`tracer gdb --overlay`: the dispatch code of a release wheel with file and line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import overlays
import pytest
from debugging import Debugged, debug
from launching import Launcher

from tracer.debugger import overlay, target

pytestmark = [pytest.mark.gdb, pytest.mark.compiler]


def places(stop: dict[str, Any]) -> list[tuple[str, str]]:
    """(function, file) of the frames that have a line, the innermost first."""
    return [
        (frame["function"], Path(frame["file"]).name)
        for frame in stop["frames"]
        if frame["file"] and frame["line"]
    ]


def in_order(wanted: list[tuple[str, str]], frames: list[tuple[str, str]]) -> bool:
    """Whether all of `wanted` are in `frames` in this order; a file's number may differ."""
    left = iter(frames)
    return all(
        any(function == name and file.startswith(stem) for name, file in left) for function, stem in wanted
    )


CHAIN = [
    ("wrapper_CPU_mm", "RegisterCPU_"),
    ("c10::Dispatcher::redispatch", "Dispatcher.h"),
    ("at::_ops::mm::redispatch", "Operators_"),
    ("torch::autograd::VariableType::mm", "VariableType_"),
    ("c10::Dispatcher::call", "Dispatcher.h"),
    ("at::_ops::mm::call", "Operators_"),
]


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """Built before the sessions, whose time is limited; on a new machine that takes a minute or two."""
    overlay.build(target.look(sys.executable), ["mm"])


@pytest.fixture(autouse=True)
def users_cache(launcher: Launcher) -> None:
    overlays.use_the_users_cache(launcher)


@pytest.fixture
def overlaid(launcher: Launcher) -> Debugged:
    return debug(launcher, "mm", "--overlay", "mm")


def test_the_chain_has_lines_from_the_call_to_the_kernel(overlaid: Debugged) -> None:
    assert overlaid.run.status == 0, overlaid.run.err
    assert "- level: overlay of mm: file:line in the dispatch code" in overlaid.markdown
    kernel = overlaid.stops[-1]
    assert kernel["function"] == "at::native::structured_mm_out_cpu::impl"
    assert in_order(CHAIN, places(kernel)), places(kernel)
    bodies = [stop for stop in overlaid.stops if stop["kind"] == "body"]
    assert [(stop["function"], Path(stop["file"]).name.split("_")[0]) for stop in bodies] == [
        ("torch::autograd::VariableType::mm", "VariableType"),
        ("wrapper_CPU_mm", "RegisterCPU"),
    ]
    # behind the prologue DWARF tells the arguments, and memory what the tensors are
    assert [value["name"] for value in bodies[1]["arguments"]] == ["self", "mat2"]
    assert bodies[1]["arguments"][1]["value"]["shape"] == [64, 32]


def test_the_session_for_debug_builds_runs_on_it(launcher: Launcher) -> None:
    found = debug(launcher, "debug_build/nine_stops", "--overlay", "mm")
    assert found.run.status == 0, found.run.err
    assert len(found.stops) == 9
    (autograd,) = [stop for stop in found.stops if stop["spec"] == "VariableType::mm"]
    assert Path(autograd["file"]).name.startswith("VariableType_")
    assert autograd["line"] > 0
    assert autograd["locals"] != []
    # the line of the file that the debug information names is that of the function
    source = Path(autograd["file"]).read_text().splitlines()
    assert any("at::Tensor mm(" in line for line in source[autograd["line"] - 5 : autograd["line"]])


SESSION = '''
"""Steps through the dispatcher, and ends a second call."""
def walk(gdb):
    gdb.command = ["script.py"]
    gdb.stop_at("at::_ops::mm::call", halt=True)
    gdb.go()
    for _ in range(60):  # with plumbing it would be hundreds
        stop = gdb.step()
        if stop["function"] == "torch::autograd::VariableType::mm":
            break
    gdb.note("arrived" if stop["function"] == "torch::autograd::VariableType::mm" else "lost")
    gdb.go()
    gdb.stop_at("at::native::structured_mm_out_cpu::impl")
    gdb.finish_op()
'''


def test_steps_and_the_end_of_an_op_call(launcher: Launcher) -> None:
    """Steps lead through the dispatcher, and without optimisation a call ends behind its kernel.

    Before that of the kernel function at::_ops::mm::call has other calls, such as getFunctor.
    """
    product = "torch.mm(torch.ones(2, 3), torch.ones(3, {}))\n"
    launcher.write(f"import torch\n{product.format(2)}{product.format(4)}")
    launcher.write(SESSION, "steps.py")
    found = debug(launcher, "--session", "steps.py", "--overlay", "mm")
    assert found.run.status == 0, found.run.err
    assert "tracer: arrived" in found.run.err
    files = {Path(stop["file"]).name for stop in found.stops if stop["file"]}
    assert "Dispatcher.h" in files
    assert "KernelFunction_impl.h" in files
    assert found.functions()[-3:] == [
        "at::_ops::mm::call",
        "at::native::structured_mm_out_cpu::impl",
        "at::_ops::mm::call",
    ]
    assert found.stops[-1]["kind"] == "end"
    assert found.stops[-1]["arguments"][-1]["value"]["shape"] == [2, 4]


def test_operators_that_do_not_exist(launcher: Launcher) -> None:
    launcher.write("import torch\n")
    run = launcher.run([str(launcher.tracer), "gdb", "--overlay", "mmx", "script.py"])
    assert (run.status, run.err.count("\n")) == (1, 1)
    assert "no operator aten::mmx; near: aten::mm" in run.err
