"""Graph breaks and the guards behind recompiles, whatever the program does to Dynamo's own lists."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from launching import Launcher
from stored import recorded_once

import tracer

RUNS = """
import threading, torch, tracer
from torch._dynamo import reset
from torch._dynamo.utils import graph_break_reasons as reasons

def breaking(line):
    text = "def f(x):\\n    y = x.sin()" + "\\n" * (line - 2) + "    torch._dynamo.graph_break()\\n"
    text += "    return y.cos()\\n"
    names = {"torch": torch}
    exec(compile(text, "made.py", "exec"), names)
    return torch.compile(names["f"], backend="eager")

def run(*lines):
    for line in lines:
        breaking(line)(torch.ones(4))

def in_threads(*several):
    threads = [threading.Thread(target=run, args=lines) for lines in several]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""
PROGRAMS = {
    "none": ("run(3, 4, 5)", [3, 4, 5]),
    "before_each": ("for line in range(3, 8):\n    reset()\n    run(line)", [3, 4, 5, 6, 7]),
    "same_length": ("run(3, 4)\nreset()\nrun(5, 6)", [3, 4, 5, 6]),
    "longer": ("run(3)\nreset()\nrun(4, 5, 6)", [3, 4, 5, 6]),
    "twice": ("run(3, 4, 5)\nreset()\nreset()\nrun(6)", [3, 4, 5, 6]),
    "the_same_break": ("run(3)\nreset()\nrun(3)", [3, 3]),
    "cleared_by_hand": ("run(3)\nreasons.clear()\nrun(4)\nreasons[:] = []\nrun(5, 6)", [3, 4, 5, 6]),
    "shortened": ("run(3, 4)\nreasons.pop(0)\nrun(5)\ndel reasons[0]\nrun(6)", [3, 4, 5, 6]),
    "doubled": ("run(3, 4)\nreasons.extend(list(reasons))\nrun(5)", [3, 4, 5]),
    "threads": ("in_threads((3, 4), (5, 6), (3,))\nreset()\nin_threads((7,), (8,))", [3, 3, 4, 5, 6, 7, 8]),
}


def make(launcher: Launcher) -> None:
    """All in one process; before each recording the compiler is as new."""
    text = RUNS
    for name, (program, _) in PROGRAMS.items():
        text += f"reset()\nwith tracer.record('{name}.trace', cuda='off'):\n{indent(program, '    ')}\n"
    text += "reset()\nrun(3)\nwith tracer.record('listed.trace', cuda='off'):\n"
    text += "    run(4)\n    reset()\n    run(5)\n"
    launcher.write(text)
    run = launcher.python("script.py")
    assert run.status == 0, run.err


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return recorded_once(tmp_path_factory.mktemp("breaks"), make)


def breaks_of(trace: Path) -> list[int]:
    """The line of each, as often as it happened."""
    found = tracer.load(trace).certificate["compiled"]["breaks"]
    return sorted(int(one["source"].rpartition(":")[2]) for one in found for _ in range(one["times"]))


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_break_is_listed_as_often_as_it_happened(recorded: Launcher, name: str) -> None:
    assert breaks_of(recorded.folder / f"{name}.trace") == PROGRAMS[name][1]


def test_what_torch_lists_when_the_recording_begins_is_listed_once(recorded: Launcher) -> None:
    assert breaks_of(recorded.folder / "listed.trace") == [3, 4, 5]


# Products only: Inductor makes no kernel of its own, so no C++ is compiled.
GUARDS = """
import torch
from torch._dynamo import reset
from torch._inductor.compile_fx import compile_fx
def product(x, weight, times):
    return torch.mm(x, weight) if times == 1 else torch.mm(torch.mm(x, weight), weight)
x, wide = torch.ones(4, 4), torch.ones(5, 4)
function = torch.compile(product, dynamic=False)
for arguments in ((x, x, 1), (wide, x, 1), (x, x, 2), (x.double(), x.double(), 1)):
    function(*arguments)
reset()
failures = [RuntimeError("planted")]
def backend(graph, inputs):
    if failures: raise failures.pop()
    return compile_fx(graph, inputs)
function = torch.compile(product, dynamic=False, backend=backend)
try: function(wide, x, 2)
except torch._dynamo.exc.BackendCompilerFailed: pass
function(wide, x, 2)  # 0/1, and no recompile
function(wide, x, 1)
"""


def test_a_recompile_names_the_guard_of_every_earlier_compilation(launcher: Launcher) -> None:
    launcher.write(GUARDS)
    assert launcher.record("-o", "run.trace", "script.py").status == 0
    calls = tracer.load(launcher.folder / "run.trace").compiled_calls
    rows = calls.select("compile_id", "recompiled").cast(str).rows()
    assert [compile_id for compile_id, _ in rows] == ["0/0", "0/1", "0/2", "0/3", "0/1", "0/2"]
    (first, size, times, dtype, new, after_reset) = (reason for _, reason in rows)
    assert (first, new) == (None, None)  # the ids begin again
    assert size == "0/0: tensor 'x' size mismatch at index 0. expected 4, actual 5"
    assert [text.split("  #")[0] for text in times.split("; ")] == [
        "0/1: tensor 'x' size mismatch at index 0. expected 5, actual 4",
        "0/0: times == 1",
    ]
    assert "script.py:6 in product" in times
    assert dtype.split("; ") == [
        f"0/{earlier}: tensor 'x' dtype mismatch. expected Float, actual Double" for earlier in (2, 1, 0)
    ]
    assert after_reset.split("  #")[0] == "0/1: times == 2"
    assert not any("\n" in reason or "   " in reason for _, reason in rows if reason)
