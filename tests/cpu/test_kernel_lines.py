"""The line of an op that Python code calls which runs inside another op."""

from __future__ import annotations

import re

import polars as pl
import pytest
from launching import Launcher

import tracer

SCRIPT = """\
import os, signal, weakref, torch
from torch.utils._python_dispatch import TorchDispatchMode

@torch.library.custom_op("lines::smooth", mutates_args=())
def smooth(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = x.tanh()  # tanh
    return torch.nn.functional.softplus(x)  # softplus

library = torch.library.Library("lines", "FRAGMENT")
library.define("shift(Tensor x) -> Tensor")
def shift(x):
    return helper(x).floor()  # floor
def helper(x):
    return x.erf()  # erf
library.impl("shift", shift, "CompositeExplicitAutograd")

class Boxed(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape)
        made.inner = inner
        return made
    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return function(*(getattr(one, "inner", one) for one in args))  # frac

class Counting(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        torch.ceil(SMALL)  # ceil
        return function(*args, **(kwargs or {}))  # log2

@torch.library.custom_op("lines::interrupted", mutates_args=())
def interrupted(x: torch.Tensor) -> torch.Tensor:
    os.kill(os.getpid(), signal.SIGUSR1)
    del LATER[:]
    return x.round()  # round
signal.signal(signal.SIGUSR1, lambda *_: torch.trunc(SMALL))  # trunc
class Closing:
    def __del__(self):
        torch.sinh(SMALL)  # sinh
LATER = [Closing()]

SMALL = torch.ones(2)
weight = torch.ones(2, requires_grad=True)
smooth(torch.ones(4))  # lines::smooth
torch.ops.lines.shift(torch.ones(4))  # lines::shift
torch.frac(Boxed(SMALL))
with Counting():
    SMALL.log2()
interrupted(torch.ones(3))  # lines::interrupted
with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept.expm1(), lambda kept: kept):  # expm1
    weight * weight  # mul
"""
LINES = {
    name if "::" in name else f"aten::{name}": number
    for number, line in enumerate(SCRIPT.splitlines(), 1)
    if (name := line.partition("# ")[2])
}


def lines_of(trace: tracer.Trace, column: str) -> dict[str, set[int]]:
    """The lines of each op of LINES, at the key that computes."""
    hops = trace.hops.with_columns(pl.col("op", column, "key").cast(pl.String)).filter(pl.col("key") == "CPU")
    text = hops.with_columns(pl.col(column).str.extract(r"script\.py:(\d+)$").cast(pl.Int64))
    found = text.group_by(pl.col("op").str.extract(r"^([^.]+)")).agg(column)
    return {op: set(lines) for op, lines in found.rows() if op in LINES}


@pytest.mark.parametrize("how", [[], ["--stack", "3"], ["--values", "scalars"]], ids=lambda how: "".join(how))
def test_an_op_in_a_python_kernel_has_the_line_that_runs(launcher: Launcher, how: list[str]) -> None:
    launcher.write(SCRIPT)
    launcher.record("-o", "run.trace", *how, "script.py")
    trace = tracer.load(launcher.folder / "run.trace")
    wanted = {op: {line} for op, line in LINES.items()}
    assert lines_of(trace, "source") == lines_of(trace, "called_from") == wanted


def test_the_stack_goes_from_the_kernel_to_its_caller(launcher: Launcher) -> None:
    launcher.write(SCRIPT)
    launcher.record("-o", "run.trace", "--stack", "3", "script.py")
    trace = tracer.load(launcher.folder / "run.trace")
    hops = trace.hops.filter(pl.col("op").cast(pl.String) == "aten::erf")
    (stack,) = {tuple(trace.python_stacks["frames"][number]) for number in hops["python_stack"]}
    frames = [re.sub(r".*script\.py:", "", frame) for frame in stack]
    called = LINES["lines::shift"]
    assert frames == [
        f"{LINES['aten::erf']} helper",
        f"{LINES['aten::floor']} shift",
        f"{called} <module>",
    ]


def test_the_line_is_found_and_has_its_own_time(launcher: Launcher) -> None:
    launcher.write(SCRIPT)
    launcher.record("-o", "run.trace", "script.py")
    line = f"script.py:{LINES['aten::tanh']}"
    tree = launcher.run([str(launcher.tracer), "tree", "run.trace", "--source", line]).out
    assert "3 x aten::tanh" in tree
    assert "lines::smooth" in tree
    assert "softplus" not in tree
    top = launcher.run([str(launcher.tracer), "top", "run.trace", "--by", "source"]).out
    assert re.search(rf"(?m) 3 +3  {re.escape(line)}  x = x.tanh\(\)", top)


@pytest.mark.parametrize("how", [[], ["--values", "scalars"]], ids=["typed", "boxed"])
def test_at_key_python_the_class_or_the_mode_is_named(launcher: Launcher, how: list[str]) -> None:
    launcher.write(
        SCRIPT.partition("SMALL = ")[0]
        + """
class Derived(Boxed):
    pass
class Listed(Boxed):
    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return SMALL
def local():
    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))
    return Counting()
SMALL = torch.ones(2)
torch.frac(Boxed(SMALL))
torch.add(Boxed(SMALL), Derived(SMALL))
torch.cat([SMALL, Listed(SMALL)])
with local():
    torch.exp(SMALL)
    with Counting():
        torch.cos(SMALL)
with local():
    torch.sin(SMALL)
"""
    )
    assert launcher.record("-o", "run.trace", *how, "script.py").status == 0
    hops = tracer.load(launcher.folder / "run.trace").hops
    rows = hops.select(pl.col("op", "key", "kernel").cast(pl.String)).filter(pl.col("key") == "Python").rows()
    script = launcher.folder / "script.py"
    counting = f"__main__.Counting.__torch_dispatch__ ({script}:{LINES['aten::ceil'] - 1})"
    boxed = f"({script}:{LINES['aten::frac'] - 2})"
    local = "__main__.local.<locals>.Counting.__torch_dispatch__"
    kernels = {op: {kernel for name, _, kernel in rows if name == op} for op, _, _ in rows}
    assert kernels["aten::frac"] == {f"__main__.Boxed.__torch_dispatch__ {boxed}"}
    assert kernels["aten::add.Tensor"] == {f"__main__.Derived.__torch_dispatch__ {boxed}"}
    (cat,), (exp,), (sin,) = (kernels[f"aten::{name}"] for name in ("cat", "exp", "sin"))
    assert cat.startswith(f"__main__.Listed.__torch_dispatch__ ({script}:")
    assert exp == sin
    assert exp.startswith(f"{local} ({script}:")
    assert kernels["aten::cos"] == {counting, exp}
