"""What the certificate says of calls of compiled code."""

from __future__ import annotations

from typing import Any

import pytest
from launching import Launcher

import tracer

MODEL = """
import os, sys, torch
def function(x, weight):
    return torch.nn.functional.gelu(x @ weight).sum()
x, weight = torch.ones(4, 4), torch.ones(4, 4, requires_grad=True)
"""
LOOP = "for _ in range(3): compiled(x, weight).backward()\n"


def certificate_of(launcher: Launcher, script: str, status: int = 0) -> dict[str, Any]:
    launcher.write(MODEL + script)
    alone = launcher.python("script.py")
    recorded = launcher.record("-o", "run.trace", "script.py")
    assert (recorded.status, recorded.out) == (alone.status, alone.out), recorded.err
    assert recorded.status == status, recorded.err
    certificate = tracer.load(launcher.folder / "run.trace").certificate
    if status == 0:
        hidden = certificate.get("compiled", {}).get("calls_not_visible")
        assert certificate["complete"] is not bool(hidden)
        assert ("  complete: nothing dropped\n" in recorded.err) is certificate["complete"], recorded.err
    return certificate


def said(certificate: dict[str, Any]) -> list[str]:
    """Of the calls of compiled code, not of what runs while it is compiled."""
    texts = (text for text in certificate["not_visible"] if "torch.compile" in text)
    return [text for text in texts if "PythonDispatcher" not in text]


@pytest.mark.compiler
def test_calls_of_compiled_code_are_counted(launcher: Launcher) -> None:
    certificate = certificate_of(launcher, "compiled = torch.compile(function)\n" + LOOP)
    assert certificate["compiled_calls"] == 6  # three forwards, three backwards
    assert not said(certificate)
    assert certificate["complete"]


@pytest.mark.compiler
def test_calls_of_code_whose_kernels_are_hidden_are_counted(launcher: Launcher) -> None:
    script = "compiled = torch.compile(function, options={'cpp_wrapper': True})\n" + LOOP
    certificate = certificate_of(launcher, script)
    assert certificate["compiled_calls"] == 6
    (text,) = said(certificate)
    assert text.startswith("6 calls of code compiled by torch.compile or AOTInductor")
    assert "cpp_wrapper" in text


@pytest.mark.compiler
def test_calls_of_a_package_are_counted(launcher: Launcher) -> None:
    script = """
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x) * 2
with torch.no_grad():
    if not os.path.exists("model.pt2"):  # of the run without tracer: it is calls that are counted
        exported = torch.export.export(Model(), (x,))
        torch._inductor.aoti_compile_and_package(exported, package_path=os.path.abspath("model.pt2"))
    model = torch._inductor.aoti_load_package(os.path.abspath("model.pt2"))
    print(model(x).sum().item(), model(x).sum().item())
"""
    certificate = certificate_of(launcher, script)
    assert certificate["compiled_calls"] == 2
    (text,) = said(certificate)
    assert text.startswith("2 calls of code compiled by")
    assert "AOTInductor calls its kernels from C++" in text


@pytest.mark.compiler
def test_a_killed_process_says_that_compiled_code_ran(launcher: Launcher) -> None:
    script = "compiled = torch.compile(function)\n" + LOOP + "os.kill(os.getpid(), 9)\n"
    certificate = certificate_of(launcher, script, status=-9)
    assert certificate["compiled_calls"] == 1
    assert certificate["compiled"]["calls"] == 6


@pytest.mark.compiler
def test_calls_in_a_forked_process_and_of_code_from_before_the_recording(launcher: Launcher) -> None:
    launcher.write(
        MODEL
        + "compiled = torch.compile(function)\n"
        + LOOP
        + """
import tracer
from torch._inductor.output_code import CompiledFxGraph
import importlib._bootstrap as importlib
def state():
    return [dict(vars(CompiledFxGraph)), dict(vars(importlib)), list(sys.meta_path)]
before = state()
with tracer.record("run.trace", cuda="off"):
    now = state()
    wrapped = now[0].pop("post_compile").__wrapped__  # all that Python sees
    same = now[0].items() <= before[0].items() and now[1:] == before[1:]
    same = same and wrapped is before[0]["post_compile"]
    compiled(x, weight)
    child = os.fork()
    if child == 0:
        compiled(x, weight)
        compiled(x, weight)
        tracer.stop()
        os._exit(0)
    os.waitpid(child, 0)
compiled(x, weight)
print(same and state() == before)
with tracer.record("other.trace", cuda="off"):
    compiled(x, weight)
recording = tracer.record("forked.trace", cuda="off").start()  # only the child calls compiled code
x + 1
child = os.fork()
if child == 0:
    compiled(x, weight)
    tracer.stop()
    os._exit(0)
os.waitpid(child, 0)
recording.stop()
print(recording.summary.complete)
"""
    )
    run = launcher.python("script.py")
    assert (run.status, run.out) == (0, "True\nTrue\n"), run.err
    assert tracer.load(launcher.folder / "run.trace").certificate["compiled_calls"] == 3
    assert tracer.load(launcher.folder / "other.trace").certificate["compiled_calls"] == 1
    assert tracer.load(launcher.folder / "forked.trace").certificate["complete"]
    forked = tracer.load(launcher.folder / "run.trace")
    assert (
        forked.compiled_calls["function"].cast(str).to_list() == ["function"] * 3
    )  # compiled before the recording
    assert forked.compiled_calls["visible"].all()
    assert len(forked.compiled_kernels) == 3
    assert len(tracer.load(launcher.folder / "other.trace").compiled_kernels) == 1


EARLIER = """
import torch, tracer
x, wide = torch.ones(4, 4, requires_grad=True), torch.ones(5, 5, requires_grad=True)

@torch.compile(dynamic=False)
def product(x):  # def product
    return torch.mm(x, x)

@torch.compile(dynamic=False)
def broken(x):  # def broken
    x = torch.mm(x, x)
    torch._dynamo.graph_break()  # def rest
    return torch.mm(x, x)

class Net(torch.nn.Module):
    def forward(self, x):  # def forward
        return torch.mm(x, x)

net = torch.compile(Net(), dynamic=False)

@torch.compile(dynamic=False)
@torch.no_grad()
def inner(x):  # def inner
    return torch.mm(x, x)

def step():
    for function, given in ((product, x), (broken, x), (net, x), (product, wide)):
        function(given).backward(torch.ones_like(given))
    first, second = product(x), net(x)
    first.backward(torch.ones(4, 4)), second.backward(torch.ones(4, 4))
    inner(x)

step()
loss = net(x)
with tracer.record("run.trace", cuda="off"):
    loss.backward(torch.ones(4, 4))
    step()
"""


def test_code_from_before_the_recording_has_its_function_and_line(launcher: Launcher) -> None:
    """Of forwards from the frame that calls them, of backwards from the forward of the same graph."""
    launcher.write(EARLIER)
    run = launcher.python("script.py")
    assert run.status == 0, run.err
    trace = tracer.load(launcher.folder / "run.trace")
    assert not trace.certificate["compiled"]["errors"]
    calls = trace.compiled_calls.select("direction", "defined_at", "compile_id").cast(str).rows()
    lines = EARLIER.splitlines()
    names = {
        f"{launcher.folder / 'script.py'}:{number}": line.partition("# def ")[2]
        for number, line in enumerate(lines, 1)
    }
    found = [(direction, names.get(place, place), compile_id) for direction, place, compile_id in calls]
    assert found == [
        ("backward", "forward", "3/0"),  # its forward is called later
        ("forward", "product", "0/0"),
        ("backward", "product", "0/0"),
        ("forward", "broken", "1/0"),
        ("forward", "rest", "2/0"),
        ("backward", "rest", "2/0"),
        ("backward", "broken", "1/0"),
        ("forward", "forward", "3/0"),
        ("backward", "forward", "3/0"),
        ("forward", "product", "0/1"),
        ("backward", "product", "0/1"),
        ("forward", "product", "0/0"),
        ("forward", "forward", "3/0"),
        ("backward", "product", "0/0"),
        ("backward", "forward", "3/0"),
        ("inference", "inner", "4/0"),
    ]


@pytest.mark.parametrize(
    "script",
    [
        "print(function(x, weight).item())",
        "print(torch.compile(function, backend='eager')(x, weight).item())",  # its ops are hops
    ],
)
def test_without_compiled_code_nothing_is_said(launcher: Launcher, script: str) -> None:
    certificate = certificate_of(launcher, script + "\n")
    assert certificate["compiled_calls"] == 0
    assert not said(certificate)


@pytest.mark.fresh  # a child of the fork server has the compiler before the script begins
def test_a_recording_of_ops_loads_no_compiler(launcher: Launcher) -> None:
    launcher.write(
        MODEL
        + "print(function(x, weight).item())\nprint({'torch._dynamo', 'torch._inductor'} & {*sys.modules})\n"
    )
    run = launcher.record("-o", "run.trace", "script.py")
    assert (run.status, run.out.splitlines()[1:]) == (0, ["set()"]), run.err
    certificate = tracer.load(launcher.folder / "run.trace").certificate
    assert certificate["complete"]
    assert certificate["compiled_calls"] == 0
    assert not said(certificate)


DECORATED = """
import functools, torch
x = torch.ones(4, 4)
named = lambda make: lambda function: function  # it looks like a decorator with an argument

@torch.compile(
    dynamic=False,
)
@named(lambda product: 0)
def product(  # def product
    x,
):
    return torch.mm(x, x)

class Net(torch.nn.Module):
    @torch.compile(dynamic=False)
    @torch.no_grad()
    def forward(self, x):  # def forward
        return torch.mm(x, x)

@torch.compile(dynamic=False)

def broken(x): # def broken
    x = torch.mm(x, x)
    torch._dynamo.graph_break()  # def rest
    return torch.mm(x, x)

def plain(x):  # def plain
    return torch.mm(x, x)

product(x), Net()(x), broken(x)
torch.compile(plain, dynamic=False)(x)
torch.compile(lambda x: torch.mm(x, x), dynamic=False)(x)  # def <lambda>
names = {"torch": torch}
exec("@torch.compile(dynamic=False)\\ndef made(x):\\n    return torch.mm(x, x)", names)
names["made"](x)
"""


def test_the_line_of_a_compiled_function_is_that_of_its_def(launcher: Launcher) -> None:
    launcher.write(DECORATED)
    run = launcher.record("-o", "run.trace", "script.py")
    assert run.status == 0, run.err
    trace = tracer.load(launcher.folder / "run.trace")
    names = ("product", "forward", "broken", "rest", "plain", "<lambda>")
    lines = DECORATED.splitlines()
    wanted = [next(n for n, line in enumerate(lines, 1) if line.endswith(f"# def {name}")) for name in names]
    places = [f"{launcher.folder / 'script.py'}:{line}" for line in wanted]
    assert trace.compiled_calls["defined_at"].cast(str).to_list() == [*places, "<string>:1"]
    hops = trace.hops.filter(trace.hops["op"].cast(str) == "aten::mm.out")
    outermost = hops.filter(hops["parent"].is_null())["called_from"].cast(str).to_list()
    caller = next(n for n, line in enumerate(lines, 1) if line.startswith("product(x)"))
    assert outermost[0] == f"{launcher.folder / 'script.py'}:{caller}"
    assert outermost[:6] == trace.compiled_calls["called_from"].cast(str).to_list()[:6]


@pytest.mark.promise("record", "docs/compiled.md")
def test_a_region_without_kernels_of_its_own_needs_no_compiler(launcher: Launcher) -> None:
    """Inductor calls stock's product, so nothing is compiled in C++; the region and its hops are recorded."""
    launcher.environment["CXX"] = "/bin/false"
    script = "def product(x, weight):\n    return torch.mm(x, weight)\ncompiled = torch.compile(product)\n"
    launcher.write(MODEL + script + "for _ in range(3): print(compiled(x, x).sum().item())\n")
    run = launcher.record("-o", "run.trace", "script.py")
    assert (run.status, run.out) == (0, "64.0\n" * 3), run.err
    trace = tracer.load(launcher.folder / "run.trace")
    assert trace.certificate["complete"]
    assert trace.certificate["compiled_calls"] == 3
    calls = trace.compiled_calls
    assert set(calls["function"].cast(str)) == {"product"}
    assert set(calls["defined_at"].cast(str).str.extract(r"(\w+\.py:\d+)$")) == {"script.py:6"}
    assert calls["visible"].all()
    hops = trace.hops.filter(op="aten::mm.out")
    products = hops.filter(hops["parent"].is_null()).select("start_ns", "end_ns").rows()
    within = zip(products, calls.select("start_ns", "end_ns").rows(), strict=True)
    assert all(begin <= start <= end <= finish for (start, end), (begin, finish) in within)
    assert {"dynamo", "backend_compile"} <= set(trace.compile_phases["name"].cast(str))
