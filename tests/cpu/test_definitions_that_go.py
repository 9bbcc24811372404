"""Operators whose definition goes, and comes back, while kernels of another library stay."""

from __future__ import annotations

from launching import Launcher

SCRIPT = """
import torch, tracer
from torch.library import Library

def library(kind, name="going"):
    return Library(name, kind)  # noqa

definition, kernels = library("FRAGMENT"), library("IMPL")
definition.define("twice(Tensor x) -> Tensor")
definition.define("other(Tensor x) -> Tensor")
kernels.impl("twice", lambda x: x + x, "CPU")
kernels.impl("other", lambda x: x - x, "CPU")
x = torch.ones(2)
recording = tracer.record("run.trace").start()
print(torch.ops.going.twice(x).tolist())
definition._destroy()  # the kernels stay
more = library("IMPL")
more.impl("twice", lambda x: x * 4, "AutogradCPU")        # computes entries anew
again = library("FRAGMENT")
again.define("twice(Tensor x) -> Tensor")
print(torch.ops.going.twice(x).tolist())
more._destroy()
print(torch.ops.going.twice(x).tolist())
recording.stop()
again._destroy()
last = library("FRAGMENT")
last.define("twice(Tensor x) -> Tensor")
print(torch.ops.going.twice(x).tolist())
print(recording.summary.complete)
"""


def test_a_definition_that_goes_and_comes_back(launcher: Launcher) -> None:
    launcher.write(SCRIPT)
    run = launcher.python("script.py")
    assert (run.status, run.err.count("Error")) == (0, 0), run.err
    assert run.out == "[2.0, 2.0]\n[4.0, 4.0]\n[2.0, 2.0]\n[2.0, 2.0]\nTrue\n"
