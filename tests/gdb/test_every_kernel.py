"""Stops at all kernel functions of an operator are the hops that `tracer record` sees of the same script."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest
from debugging import Debugged, debug
from launching import Launcher

import tracer

pytestmark = pytest.mark.gdb

# kernels that are registered as pointers (autocast, vmap), fallbacks of a key (Negative), boxed calls, an
# operator that is not ATen's, and kernels that are registered while the script runs
KINDS = """
import sys, warnings, torch, torch._dispatch.python
warnings.simplefilter("ignore")
print("the script runs", file=sys.stderr, flush=True)
torch.set_num_threads(1)
x, bias = torch.ones(3, 3), torch.ones(3)
with torch.autocast("cpu", dtype=torch.bfloat16):
    torch.addmm(bias, x, x)
torch.vmap(torch.addmm)(torch.ones(2, 3), torch.ones(2, 3, 3), torch.ones(2, 3, 3))
torch.addmm(bias, torch.ones(3, 3, dtype=torch.complex64).conj().imag, x)
torch.ops.aten.addmm(bias, x, x)
with torch._dispatch.python.enable_python_dispatcher():
    torch.bmm(torch.ones(2, 3, 3), torch.ones(2, 3, 3))
own = torch.library.Library("own_kernels", "DEF")
own.define("thrice(Tensor x, Tensor[] a, complex b, float c=2.5, int d=-7, bool e=True, str f='a text', "
           "int[2] g=[3, 4], Device? h=None) -> Tensor")
own.impl("thrice", lambda x, *_: x * 3, "CompositeExplicitAutograd")
torch.ops.own_kernels.thrice(x, [x, bias], 1j)
late = torch.library.Library("aten", "IMPL")
late.impl("addmm", lambda bias, a, b, beta=1, alpha=1: a + b, "CPU")
torch.addmm(bias, x, x)
"""
SPECS = ("aten::addmm", "own_kernels::thrice", "aten::addmm [AutocastCPU]", "aten::baddbmm [Negative]",
         "aten::addmm [SparseHPU]", "aten::addmm [NoKey]", "aten::*baddbm*", "aten::bmm")  # fmt: skip


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Launcher, Debugged]:
    launcher = Launcher(tmp_path_factory.mktemp("kinds"))
    launcher.write(KINDS)
    found = debug(launcher, "script.py", *(word for spec in SPECS for word in ("-b", spec)))
    assert found.run.status == 0, found.run.err
    return launcher, found


def test_stops_at_kernels_are_the_recorded_hops(seen: tuple[Launcher, Debugged]) -> None:
    launcher, found = seen
    recorded = launcher.record("-o", "run.trace", "script.py")
    assert recorded.status == 0, recorded.err
    hops = tracer.load(launcher.folder / "run.trace").hops.select(pl.col("op", "key").cast(pl.String))
    wanted = Counter(hops.filter(pl.col("op").is_in(["aten::addmm", "own_kernels::thrice"])).iter_rows())
    stops = [stop for stop in found.stops if stop["spec"] in SPECS[:2] and "kernel" in stop["kind"]]
    assert Counter((stop["op"], stop["key"]) for stop in stops) == wanted
    assert {"AutocastCPU", "FuncTorchBatched", "Negative"} <= {key for _, key in wanted}


def test_a_kernel_below_the_python_dispatcher_has_its_own_key(seen: tuple[Launcher, Debugged]) -> None:
    _, found = seen
    kernels = {(stop["key"], stop["function"]) for stop in found.stops if "kernel" in stop["kind"]}
    assert ("AutogradCPU", "torch::autograd::VariableType::bmm") in kernels
    assert {function for key, function in kernels if key == "PythonDispatcher"} == {
        "pythonDispatcherFallback"
    }


def test_one_key_and_boxed_calls(seen: tuple[Launcher, Debugged]) -> None:
    _, found = seen
    (cast,) = [stop for stop in found.stops if stop["spec"] == "aten::addmm [AutocastCPU]"]
    assert cast["function"].startswith("at::autocast::WrapFunction_<")
    assert [argument["value"]["shape"] for argument in cast["arguments"][:3]] == [[3], [3, 3], [3, 3]]
    boxed = [stop for stop in found.stops if stop["kind"] == "boxed call" and stop["op"] != "aten::addmm"]
    assert [(stop["op"], stop["arguments"][0]["value"]["shape"]) for stop in boxed] == [
        ("own_kernels::thrice", [3, 3])
    ]
    tensors, number, *values = [argument["value"] for argument in boxed[0]["arguments"][1:]]
    assert [tensor["shape"] for tensor in tensors] == [[3, 3], [3]]
    assert number == "1j"
    assert values == [2.5, -7, True, "a text", [3, 4], None]


def test_what_cannot_be_a_stop_is_said_before_the_run(seen: tuple[Launcher, Debugged]) -> None:
    _, found = seen
    before, _, after = found.run.err.partition("the script runs")
    assert "aten::addmm [SparseHPU]: aten::addmm has no kernel function at SparseHPU; there are: " in before
    assert "aten::addmm [NoKey]: this torch has no dispatch key NoKey" in before
    assert (
        "own_kernels::thrice is not in torch; tracer waits for a library that the script loads, or" in before
    )
    assert "aten::baddbmm [Negative] was never reached" in after
    assert "no hit met the conditions" not in after


READINGS = """
import os, signal, subprocess, time, torch
generator = torch.Generator().manual_seed(3)
torch.rand(2, generator=generator)
torch.randperm(4)
bits = torch.tensor([True])
torch.add(bits, bits, alpha=True)
torch.empty(2, dtype=torch.complex64).fill_(2 - 3j)
torch.full((1,), 2**63 + 1, dtype=torch.uint64)
x = torch.empty(0)
storage = torch.ones(4).untyped_storage()
x.set_(storage)
print(hex(storage._cdata))
received = []
signal.signal(signal.SIGINT, lambda *_: received.append(len(received)))
for sent in (1, 2, 3):
    subprocess.run(["kill", "-INT", str(os.getpid())])
    deadline = time.monotonic() + 60
    while len(received) < sent and time.monotonic() < deadline:
        time.sleep(0.01)
print(received)
if os.fork() == 0:
    os._exit(0)
os.wait()
"""


def test_readings_signals_and_children(launcher: Launcher) -> None:
    """And functions with internal linkage are in torch."""
    launcher.write(READINGS)
    operators = ["rand.generator", "normal_", "uniform_", "randperm", "add.Tensor", "fill_.Scalar", "full",
                 "set_.source_Storage"]  # fmt: skip
    specs = [*(f"aten::{name}" for name in operators), "torch::autograd::THPVariable_randperm",
             "torch::autograd::THPVariable_randpern"]  # fmt: skip
    found = debug(launcher, "script.py", *(word for spec in specs for word in ("-b", spec)))
    assert found.run.status == 0, found.run.err
    storage, received = found.run.out.splitlines()
    assert received == "[0, 1, 2]"
    read = [
        (stop["op"], argument["name"], argument["value"])
        for stop in found.stops
        if stop["kind"] == "call"
        for argument in stop["arguments"]
    ]
    values = {(op, name): value for op, name, value in read}
    given = values["aten::rand.generator", "generator"]
    assert given.startswith("a generator at 0x")
    assert values["aten::uniform_", "generator"] == given
    assert ("aten::add.Tensor", "alpha", True) in read
    assert ("aten::fill_.Scalar", "value", "2-3j") in read
    assert values["aten::full", "fill_value"] == 2**63 + 1
    assert values["aten::set_.source_Storage", "source"] == f"a storage at {storage}"
    assert "THPVariable_randperm is not in" not in found.run.err
    assert (
        "THPVariable_randpern is not in torch (near: torch::autograd::THPVariable_randperm" in found.run.err
    )
    assert "torch::autograd::THPVariable_randperm" in found.functions()
    assert "1 forked child was not followed: only the script's first process was examined" in found.run.err
