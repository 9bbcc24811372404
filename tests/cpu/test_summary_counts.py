"""The counts that a recording prints at its end are those of the tables that are read from the file later."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from launching import Launcher

import tracer

WORK = """
import os, signal, sys, threading, torch
from torch import nn

def work(times):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(times):
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.autocast("cpu"):
            torch.ones(2, 2).add_(1).mm(torch.ones(2, 2))
"""
FORK = (
    WORK
    + """
work(5)
child = os.fork()
if child == 0:
    work(5)
    os.{ending}
os.waitpid(child, 0)
work(5)
"""
)
SCRIPTS = {
    "one thread": ([], WORK + "work(20)\n"),
    "threads one after the other": (
        [],
        WORK + "for _ in range(4):\n    t = threading.Thread(target=work, args=(3,)); t.start(); t.join()\n",
    ),
    "threads at once": (
        [],
        WORK + "ts = [threading.Thread(target=work, args=(20,)) for _ in range(4)]\n"
        "for t in ts: t.start()\nfor t in ts: t.join()\n",
    ),
    "several chunks": ([], WORK + "work(250)\n"),
    "a forked child": ([], FORK.format(ending="_exit(0)")),
    "a killed child": ([], FORK.format(ending="kill(os.getpid(), signal.SIGKILL)")),
    "a killed child that has filled chunks": (
        [],
        FORK.replace("    work(5)\n    os", "    work(200)\n    os").format(
            ending="kill(os.getpid(), signal.SIGKILL)"
        ),
    ),
    "a child that joins": (
        [],
        WORK + "work(3)\nimport subprocess\n"
        "if sys.argv[1:] != ['child']: subprocess.run([sys.executable, __file__, 'child'], check=True)\n",
    ),
    "steps": (["--steps", "3:6"], WORK + "work(10)\n"),
    "some operators": (["--ops", "aten::*mm*"], WORK + "work(10)\n"),
    "a ring": (["--max-size", "16M"], WORK + "work(900)\n"),
    "a ring and a killed child": (
        ["--max-size", "16M"],
        FORK.replace("work(5)", "work(300)").format(ending="kill(os.getpid(), signal.SIGKILL)"),
    ),
    "a largest size": (["--max-size", "4M", "--then-stop"], WORK + "work(250)\n"),
    "left inside of hops": (
        [],
        WORK + "work(2)\n"
        "class Leaves(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(context, x): return x * 2\n"
        "    @staticmethod\n    def backward(context, x):\n"
        "        import tracer\n        tracer.stop()\n        return x\n"
        "Leaves.apply(torch.ones(2, requires_grad=True)).sum().backward()\n",
    ),
}


def number(said: str, noun: str) -> int:
    found = re.search(rf"([\d,]+) {noun}", said)
    return int(found[1].replace(",", "")) if found else 0


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_counts_at_the_end_are_those_of_the_tables(launcher: Launcher, name: str) -> None:
    options, script = SCRIPTS[name]
    launcher.write(script)
    run = launcher.record("-o", "t.trace", *options, "script.py")
    said = " ".join(run.said.split())
    trace = tracer.load(launcher.folder / "t.trace")
    hops, certificate = trace.hops, trace.certificate
    assert len(hops) > 30, run.err
    assert number(said, "hops?,") == len(hops)
    assert number(said, "op calls?,") == (hops["kind"] == "call").sum()
    assert number(said, "threads?,") == certificate["threads"]
    assert number(said, "process(?:es)?,") == certificate["processes"]
    assert number(said, "hops? still open") == certificate["open_hops"] == hops["open"].sum()
    assert number(said, "hops? overwritten") == certificate["overwritten_hops"]
    assert number(said, "chunks? damaged") == certificate["damaged_chunks"] == 0


# ---- in this process: programs in which an op calls itself, or a key comes again -----------------------


def mapped(torch: Any) -> None:
    torch.vmap(lambda x: (x.sin() @ x).clamp(min=0))(torch.ones(3, 4))
    torch.vmap(torch.vmap(torch.dot), in_dims=(None, 0))(torch.ones(2, 4), torch.ones(3, 2, 4))


def differentiated(torch: Any) -> None:
    def loss(x: Any) -> Any:
        return (x.sin() * x).sum()

    torch.func.grad(loss)(torch.ones(4))
    torch.func.grad(torch.func.grad(torch.sin))(torch.tensor(0.5))
    torch.vmap(torch.func.grad(loss))(torch.ones(3, 4))


def jacobians(torch: Any) -> None:
    torch.func.jacrev(torch.sin)(torch.ones(4))
    torch.func.jacfwd(torch.sin)(torch.ones(4))
    torch.func.hessian(lambda x: (x.sin() * x).sum())(torch.ones(4))


def functionalized(torch: Any) -> None:
    torch.func.functionalize(lambda x: x.clone().add_(1).view(-1).mul_(2))(torch.ones(2, 2))


def boxed(torch: Any) -> None:
    """Kernels in Python are boxed: each hop of such an operator has a stack of values."""
    with torch.library._scoped_library("counted", "FRAGMENT") as library:
        library.define("deeper(Tensor x, int levels) -> Tensor")

        def deeper(x: Any, levels: int) -> Any:
            return torch.ops.counted.deeper(x, levels - 1) if levels else x.sin()

        def as_an_autograd_kernel(x: Any, levels: int) -> Any:
            with torch._C._AutoDispatchBelowAutograd():
                return torch.ops.counted.deeper(x, levels)

        library.impl("deeper", deeper, "CPU")
        torch.ops.counted.deeper(torch.ones(2), 3)
        library.impl("deeper", as_an_autograd_kernel, "AutogradCPU")
        torch.ops.counted.deeper(torch.ones(2), 3)
        torch.vmap(torch.sin)(torch.ops.counted.deeper(torch.ones(2), 1))


def custom_op(torch: Any) -> None:
    @torch.library.custom_op("counted::thrice", mutates_args=(), schema="(Tensor x) -> Tensor")
    def thrice(x: Any) -> Any:
        return x * 3

    thrice.register_autograd(lambda context, gradient: thrice(gradient))
    thrice.register_vmap(lambda info, dims, x: (thrice(x), dims[0]))
    thrice(torch.ones(2, requires_grad=True)).sum().backward()
    torch.vmap(thrice)(torch.ones(3, 2))


def under_modes(torch: Any) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Passes(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, arguments: Any = (), named: Any = None
        ) -> Any:
            return function(*arguments, **(named or {}))

    with Passes(), Passes():
        (torch.ones(2, 2, requires_grad=True) @ torch.ones(2, 2)).sum().backward()


def raising(torch: Any) -> None:
    def fails(x: Any) -> Any:
        return x.sin() @ torch.ones(7)

    for transformed in (torch.vmap(fails), torch.func.grad(fails)):
        with pytest.raises((RuntimeError, ValueError)):
            transformed(torch.ones(3, 4))


def in_threads(torch: Any) -> None:
    """Without jacfwd and hessian: the levels of torch's forward AD are those of the whole process."""
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(differentiated, torch) for _ in range(3)]:
            done.result()


PROGRAMS = (
    *(mapped, differentiated, jacobians, functionalized, boxed, custom_op),
    *(under_modes, raising, in_threads),
)


@pytest.mark.parametrize("values", ["none", "all"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_ops_that_call_themselves_are_counted_as_in_the_tables(
    tmp_path: Path, program: Callable[[Any], None], values: str
) -> None:
    import torch

    with tracer.record(tmp_path / "t.trace", values=values) as recording:
        program(torch)
    closed, trace = recording.summary, tracer.load(tmp_path / "t.trace")
    hops, certificate = trace.hops, trace.certificate
    assert len(hops) > 10
    assert (hops["kind"] == "redispatch").sum() > 0
    assert closed.hops == len(hops)
    assert closed.op_calls == (hops["kind"] == "call").sum()
    assert closed.threads == certificate["threads"]
    assert closed.processes == certificate["processes"] == 1
    assert closed.open_hops == certificate["open_hops"] == hops["open"].sum() == 0
    assert closed.complete, closed.verdict
