"""Functions that Dynamo gives up as a whole: certificate and report name them, their line and the reason."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launching import Launcher
from unpacked import unpacked

from tracer.base.known_names import known_here
from tracer.trace import load
from tracer.trace.bytes.redact import redact

SCRIPT = """
import torch
from torch import nn
torch._logging.set_logs(graph_breaks=True, recompiles=True)

class Wrong(Exception):
    pass

class Context:
    def __enter__(self):
        return self
    def __exit__(self, *_):
        pass

def inner(x):
    y = x.sin()
    print("inner")  # line of inner
    return y

def generated(x):
    yield x.sin()
    print("generated")  # line of from_generator
    yield x.cos()

def broken_backend(*_):
    raise KeyError("planted")

on = torch.compile(backend="eager")

@on
def raises(x):
    y = x.log() + 1
    if y.shape[0] == 8:
        raise Wrong("no")  # line of raises
    return y

@on
def in_loop(x):
    for _ in range(3):
        x = x.sin()
        print("loop")  # line of in_loop
    return x

@on
def in_try(x):
    y = x.sin()
    try:
        print("try")  # line of in_try
    finally:
        y = y + 1
    return y

@on
def in_with(x):
    y = x.sin()
    with Context():
        print("with")  # line of in_with
    return y

@on
def calls_inner(x):
    for _ in range(2):
        x = inner(x)
    return x

@on
def from_generator(x):
    return sum(generated(x))

@on
def rest(x):
    y = x.sin()
    print("resumes")  # line of ends
    try:
        print("try")  # line of torch_dynamo_resume_in_rest
    finally:
        y = y + 1
    return y

class Net(nn.Module):
    def forward(self, x):
        for _ in range(2):
            print("net")  # line of Net.forward
        return x.sin()

@torch.compile(backend="eager", fullgraph=True)
def full(x):
    y = x.sin()
    print("full")  # line of full
    return y

@torch.compile(backend=broken_backend)
def no_backend(x):  # line of no_backend
    return x.sin()

@torch.compile(backend="eager", dynamic=False)
def many(x):  # line of many
    return x.sin()

@torch._dynamo.disable
def disabled(x):
    return x.cos()

@on
def calls_disabled(x):
    return disabled(x.sin()) + 1  # line of calls_disabled

class Helped(nn.Module):
    def helper(self, y):
        if y.sum() > 0:  # line of helper
            return y * 2
        return y

    def forward(self, y):
        try:
            y = self.helper(y)
        except ValueError:
            pass
        return y

x = torch.ones(8)
helped = torch.compile(Helped(), backend="eager")
net = torch.compile(Net(), backend="eager")
for function in (raises, in_loop, in_try, in_with, calls_inner, from_generator, rest, net, full, full, helped,
                 no_backend, calls_disabled):
    for _ in range(2):
        try:
            print(function(x).sum().item())
        except Exception as error:
            print(type(error).__name__, str(error).splitlines()[0])
torch._dynamo.config.suppress_errors = True
print(no_backend(x).sum().item())
torch._dynamo.config.recompile_limit = 2
for size in range(2, 7):
    print(many(torch.ones(size)).sum().item())
"""
LINES = SCRIPT.splitlines()
PRINTS = "Failed to trace builtin operator"
NET = "Net.forward" if sys.version_info >= (3, 11) else "forward"
EXPECTED = {
    "raises": ("Observed exception", 1),
    "in_loop": (PRINTS, 1),
    "in_try": (PRINTS, 1),
    "in_with": (PRINTS, 1),
    "from_generator": (PRINTS, 1),
    NET: (PRINTS, 1),
    "full": (PRINTS, 4),  # the call raises an error each time
    "no_backend": ("BackendCompilerFailed: backend='broken_backend' raised: KeyError: 'planted'", 3),
    "many": ("Dynamo recompile limit exceeded", 1),
}
"""Function, with the reason and how often Dynamo gave it up"""


# Of the lines that torch logs what differs between two runs: time, process, addresses.
CHANGES = re.compile(r"^[A-Z]\d{4} [\d:.]+ \d+ |0x[0-9a-f]+", re.MULTILINE)


def breaks_of(trace: Path) -> list[dict[str, Any]]:
    return list(load(trace).certificate["compiled"]["breaks"])


class Recorded:
    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        launcher.write(SCRIPT)
        self.alone = launcher.python("script.py")
        self.run = launcher.record("-o", "run.trace", "script.py")
        self.breaks = breaks_of(launcher.folder / "run.trace")

    def line(self, of: str) -> str:
        number = next(n for n, line in enumerate(LINES, 1) if line.endswith(f"  # line of {of}"))
        return f"{self.launcher.folder / 'script.py'}:{number}"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    return Recorded(Launcher(tmp_path_factory.mktemp("not_compiled")))


def test_the_program_runs_and_logs_as_ever(recorded: Recorded) -> None:
    alone, run = recorded.alone, recorded.run
    assert (run.status, run.out) == (alone.status, alone.out) == (0, alone.out), run.err
    assert CHANGES.sub("", run.own_err) == CHANGES.sub("", alone.err)
    assert "Graph break" in alone.err


@pytest.mark.parametrize("function", EXPECTED)
def test_a_function_that_is_not_compiled_has_its_reason_and_line(recorded: Recorded, function: str) -> None:
    reason, times = EXPECTED[function]
    found = [one for one in recorded.breaks if one.get("not_compiled") == function]
    where = recorded.line("Net.forward" if function == NET else function)
    expected = {"reason": reason, "source": where, "times": times, "not_compiled": function}
    assert found == [expected]


def test_the_rest_of_a_function_may_be_what_is_not_compiled(recorded: Recorded) -> None:
    resumed = "torch_dynamo_resume_in_rest"
    (found,) = [one for one in recorded.breaks if (one.get("not_compiled") or "").startswith(resumed)]
    assert (found["reason"], found["source"], found["times"]) == (PRINTS, recorded.line(resumed), 1)


def test_a_function_that_runs_as_ops_may_call_one_that_only_breaks(recorded: Recorded) -> None:
    of_inner = [one for one in recorded.breaks if one["source"] == recorded.line("inner")]
    assert {one.get("not_compiled"): one["times"] for one in of_inner} == {"calls_inner": 1, None: 1}


def test_a_called_function_that_is_compiled_alone_has_the_reason_of_its_caller(recorded: Recorded) -> None:
    """Two compilations ended at this line, as torch logs; torch's list calls one of them generic_jump."""
    found = [one for one in recorded.breaks if one["source"] == recorded.line("helper")]
    assert {one["reason"] for one in found} == {"Data-dependent branching"}
    given_up = NET.replace("Net", "Helped")
    assert {one.get("not_compiled"): one["times"] for one in found} == {given_up: 1, None: 1}


def test_a_graph_that_ended_is_listed_once_and_without_a_function(recorded: Recorded) -> None:
    ends = [one for one in recorded.breaks if not one.get("not_compiled")]
    lines = [recorded.line(of) for of in ("inner", "ends", "helper", "calls_disabled")]
    assert [(one["source"], one["times"]) for one in ends] == [(line, 1) for line in lines]
    places = [(one["source"], one.get("not_compiled")) for one in recorded.breaks]
    assert len(set(places)) == len(places)


def test_the_report_names_the_functions(recorded: Recorded) -> None:
    command = [str(recorded.launcher.tracer), "report", "run.trace", "--section", "compiled"]
    text = recorded.launcher.run(command).out
    number = recorded.line("raises").rpartition(":")[2]
    cells = ["1", f"`script.py:{number}`", "Observed exception", "`raises`"]
    row = next(line for line in text.splitlines() if "Observed exception" in line)
    assert [cell.strip() for cell in row.strip("| ").split(" | ")] == cells
    assert "A function that is not compiled runs eagerly" in text
    assert f"`rest` after line {recorded.line('ends').rpartition(':')[2]}" in text
    assert f"`{NET}`" in text


def test_a_redacted_trace_keeps_the_function_and_no_reason(recorded: Recorded, tmp_path: Path) -> None:
    with (tmp_path / "out.trace").open("w+b") as out:
        done = redact(recorded.launcher.folder / "run.trace", out, known_here())
    breaks = breaks_of(tmp_path / "out.trace")
    assert {one["reason"] for one in breaks} == {"left out"}
    assert [one.get("not_compiled") for one in breaks] == [one.get("not_compiled") for one in recorded.breaks]
    assert "raises" in done.left["Python functions"]
    assert b"planted" not in unpacked(tmp_path / "out.trace")


def test_a_forked_process_lists_only_its_own(launcher: Launcher) -> None:
    launcher.write(
        "import os, torch\n"
        "@torch.compile(backend='eager')\n"
        "def parent(x):\n"
        "    for _ in range(2): print('a')\n"
        "    return x.sin()\n"
        "@torch.compile(backend='eager')\n"
        "def child(x):\n"
        "    for _ in range(2): print('b')\n"
        "    return x.sin()\n"
        "def work():\n"
        "    child(torch.ones(4))\n"
        "if __name__ == '__main__':\n"
        "    parent(torch.ones(4))\n"
        "    import torch.multiprocessing as several\n"
        "    process = several.get_context('fork').Process(target=work)\n"
        "    process.start()\n"
        "    process.join()\n"
    )
    run = launcher.record("-o", "run.trace", "script.py")
    assert run.status == 0, run.err
    found = [(one["not_compiled"], one["times"]) for one in breaks_of(launcher.folder / "run.trace")]
    assert found == [("parent", 1), ("child", 1)]


def test_an_error_keeps_no_tensor_alive(launcher: Launcher) -> None:
    launcher.write(
        "import gc, torch, weakref, tracer\n"
        "@torch.compile(backend='eager')\n"
        "def function(x):\n"
        "    local = x.sin()\n"
        "    if x.shape[0] == 8: raise ValueError('no')\n"
        "    return local\n"
        "with tracer.record('run.trace', cuda='off'):\n"
        "    x = torch.ones(8)\n"
        "    there = weakref.ref(x)\n"
        "    try: function(x)\n"
        "    except ValueError: pass\n"
        "    del x\n"
        "    gc.collect()\n"
        "    print(there() is None)\n"
    )
    run = launcher.python("script.py")
    assert (run.status, run.out) == (0, "True\n"), run.err
    (found,) = breaks_of(launcher.folder / "run.trace")
    assert found["not_compiled"] == "function"
