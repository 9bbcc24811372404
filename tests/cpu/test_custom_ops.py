"""A custom operator's hops lead to the function that the user wrote."""

from __future__ import annotations

import polars as pl
import pytest
from launching import Launcher

import tracer

SCRIPT = """\
import functools, threading, torch

@torch.library.custom_op("mine::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

def logged(function):
    @functools.wraps(function)
    def inner(*arguments):
        return function(*arguments)
    return inner

@twice.register_kernel("cpu")
@logged
def twice_on_cpu(x):
    return x + x

@torch.library.custom_op("mine::thrice", mutates_args=())
def thrice(x: torch.Tensor) -> torch.Tensor:
    return x * 3

thrice.register_autograd(lambda context, gradient: gradient * 3)
x = torch.ones(4, requires_grad=True)
{how}
"""
CALLS = "thrice(x).sum().backward(); twice(x.detach())"
THREADS = f"""\
def work():
    {CALLS}
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def kernels(launcher: Launcher, name: str = "run.trace") -> dict[str, set[str]]:
    hops = tracer.load(launcher.folder / name).hops.with_columns(
        pl.col("op", "key", "kernel").cast(pl.String)
    )
    mine = hops.filter(pl.col("op").str.starts_with("mine::"), pl.col("key") == "CPU")
    return {op: set(mine.filter(pl.col("op") == op)["kernel"]) for op in sorted(set(mine["op"]))}


@pytest.mark.parametrize("how", [CALLS, THREADS], ids=["one thread", "8 threads"])
def test_the_hop_names_the_users_function(launcher: Launcher, how: str) -> None:
    launcher.write(SCRIPT.format(how=how))
    launcher.same("script.py")
    script = launcher.folder / "script.py"
    assert kernels(launcher, "both.trace") == {
        "mine::thrice": {f"__main__.thrice ({script}:18)"},
        "mine::twice": {f"__main__.twice_on_cpu ({script}:13)"},
    }


def test_a_function_that_is_registered_between_two_recordings(launcher: Launcher) -> None:
    launcher.write(
        "import torch, tracer\n"
        "@torch.library.custom_op('mine::twice', mutates_args=())\n"
        "def twice(x: torch.Tensor) -> torch.Tensor:\n    return x * 2\n"
        "with tracer.record('run.trace'):\n    twice(torch.ones(2))\n"
        "@twice.register_kernel('cpu')\n"
        "def other(x):\n    return x + x\n"
        "with tracer.record('second.trace'):\n    twice(torch.ones(2))\n"
    )
    assert launcher.python("script.py").status == 0
    script = launcher.folder / "script.py"
    assert kernels(launcher) == {"mine::twice": {f"__main__.twice ({script}:2)"}}
    assert kernels(launcher, "second.trace") == {"mine::twice": {f"__main__.other ({script}:7)"}}


DISABLED = """\
import torch

@torch.library.custom_op("mine::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@twice.register_kernel("cpu")
def on_cpu(x):
    return x + x

@twice.register_kernel("meta")
def on_meta(x):
    return torch.empty_like(x)

x = torch.ones(2)
for _ in range(2):
    twice(x)
    with twice.set_kernel_enabled("cpu", False):
        twice(x)
        twice(x)
    with twice.set_kernel_enabled("meta", False):  # of another device
        twice(x)
"""


def test_a_disabled_kernel_is_not_the_one_that_ran(launcher: Launcher) -> None:
    """torch decides at each call: while it is disabled, the operator's first function runs."""
    launcher.write(DISABLED)
    launcher.same("script.py")
    hops = tracer.load(launcher.folder / "both.trace").hops.with_columns(
        pl.col("op", "key", "kernel").cast(pl.String)
    )
    ran = hops.filter(pl.col("op") == "mine::twice", pl.col("key") == "CPU")["kernel"]
    assert [kernel.split(" ")[0] for kernel in ran] == [
        *["__main__.on_cpu", "__main__.twice", "__main__.twice", "__main__.on_cpu"] * 2
    ]
    called = hops.filter(pl.col("parent").is_in(hops.filter(pl.col("op") == "mine::twice")["id"].implode()))
    assert [op for op in called["op"] if op in ("aten::add.Tensor", "aten::mul.Tensor")] == [
        *["aten::add.Tensor", "aten::mul.Tensor", "aten::mul.Tensor", "aten::add.Tensor"] * 2
    ]
