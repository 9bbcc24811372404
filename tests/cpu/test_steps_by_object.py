"""Which optimizer's steps are the steps: the same ones with --steps and without."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from launching import Launcher

import tracer

GAN = """
import torch
g, d = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
x = torch.ones(2, 3)
og, od = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
for i in range(5):
    d(x).sum().backward(); od.step(); od.zero_grad()
    g(x).sum().backward(); og.step(); og.zero_grad()
"""
RAISING = """
import torch
p = torch.nn.Parameter(torch.ones(2))
o = torch.optim.SGD([p], lr=0.1)
def closure(fails):
    if fails:
        raise ValueError
    p.grad = torch.ones(2)
    return p.sum()
for i in range(10):
    try:
        o.step(lambda: closure(i % 2))
    except ValueError:
        pass
"""
RECREATED = """
import torch
p = torch.nn.Parameter(torch.ones(2))
for i in range(5):
    o = None
    o = torch.optim.Adam([p])
    p.grad = torch.ones(2)
    o.step()
"""
BASE_CLASS = """
import torch
class Mine(torch.optim.Adam):
    def step(self, closure=None):
        return super().step(closure)
p = torch.nn.Parameter(torch.ones(2))
torch.optim.Adam([p])  # from here on torch has its range around Adam's own step too
o = Mine([p])
for i in range(5):
    p.grad = torch.ones(2)
    o.step()
"""
NESTED = """
import torch
class Outer(torch.optim.SGD):
    inner = None
    def step(self, closure=None):
        super().step(closure)
        if self.inner is not None:
            self.inner.step()
p = torch.nn.Parameter(torch.ones(2))
o = Outer([p], lr=0.1)
o.inner = Outer([p], lr=0.1)
for i in range(5):
    p.grad = torch.ones(2)
    o.step()
"""
SCHEDULED = """
import torch
p = torch.nn.Parameter(torch.ones(2))
o = torch.optim.SGD([p], lr=0.1)
s = torch.optim.lr_scheduler.StepLR(o, 2)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
class Wrapper:  # as training frameworks have
    def __init__(self, inner): self.inner = inner
    def step(self, *arguments, **named): return scaler.step(self.inner, *arguments, **named)
w = Wrapper(o)
for i in range(6):
    scaler.scale((p * (float("inf") if i == 3 else 1.0)).sum()).backward()
    w.step()  # not where a gradient is infinite
    scaler.update()
    s.step()
    o.zero_grad()
"""
CALLED_LATER = """
import torch, tracer
p = torch.nn.Parameter(torch.ones(2))
o = torch.optim.SGD([p], lr=0.1)
p.grad = torch.ones(2)
for i in range(7):
    o.step()
for i in range(5):
    o.step()
    tracer.step()
"""
IN_BACKWARD = """
import torch
m = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4), torch.nn.Sigmoid())
optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in m.parameters()}
def hook(p):
    optimizers[p].step()
    optimizers[p].zero_grad()
for p in m.parameters():
    p.register_post_accumulate_grad_hook(hook)
for i in range(5):
    m(torch.ones(2, 3)).sum().backward()
"""
SCRIPTS = {
    "gan": GAN,
    "raising": RAISING,
    "recreated": RECREATED,
    "base class": BASE_CLASS,
    "nested": NESTED,
    "scheduled": SCHEDULED,
    "called later": CALLED_LATER,
    "in backward": IN_BACKWARD,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces `SCRIPT.trace` of the whole script and `SCRIPT 1:3.trace`."""
    launcher = Launcher(tmp_path_factory.mktemp("steps"))
    launcher.write(
        "import tracer\n"
        f"for name, script in {SCRIPTS!r}.items():\n"
        "    for steps in (None, '1:3'):\n"
        "        path = f'{name} {steps}.trace' if steps else f'{name}.trace'\n"
        "        with tracer.record(path, steps=steps, cuda='off'):\n"
        "            exec(compile(script, 'script.py', 'exec'), {'__name__': 'script'})\n"
    )
    run = launcher.python("script.py")
    assert run.status == 0, run.err
    return launcher.folder


def ops_of(trace: tracer.Trace, step: int) -> list[str]:
    calls = trace.hops.filter((pl.col("kind") == "call") & (pl.col("step") == step))
    return calls["op"].cast(pl.String).to_list()


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_program_of_five_steps_has_five(folder: Path, script: str) -> None:
    steps = tracer.load(folder / f"{script}.trace").hops["step"]
    assert steps.drop_nulls().unique().sort().to_list() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("script", [script for script in SCRIPTS if script != "called later"])
def test_some_steps_are_those_of_the_whole_trace(folder: Path, script: str) -> None:
    whole, some = tracer.load(folder / f"{script}.trace"), tracer.load(folder / f"{script} 1:3.trace")
    assert some.hops["step"].drop_nulls().unique().sort().to_list() == [1, 2]
    for step in (1, 2):
        assert ops_of(some, step) == ops_of(whole, step)


def test_a_script_that_begins_to_count_itself_begins_again(folder: Path) -> None:
    trace = tracer.load(folder / "called later.trace")
    updates = [ops_of(trace, step).count("aten::add_.Tensor") for step in range(5)]
    assert updates == [8, 1, 1, 1, 1]  # seven before, of no step that the script counted
    certificate = tracer.load(folder / "called later 1:3.trace").certificate
    assert certificate["steps"] == {"wanted": [1, 3], "ended": 5, "counted_by": "tracer.step()"}


def test_a_forked_process_counts_its_own_optimizer(launcher: Launcher) -> None:
    launcher.write(
        "import os, sys, torch\n"
        "p = torch.nn.Parameter(torch.ones(2)); p.grad = torch.ones(2)\n"
        "first = torch.optim.SGD([p], lr=0.1)\n"
        "for i in range(2): first.step()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    other = torch.optim.SGD([p], lr=0.1)\n"
        "    for i in range(3): other.step()\n"
        "    torch.ones(1).neg()\n"
        "    sys.exit(0)  # in order: else the ranges of torch would tell\n"
        "os.waitpid(child, 0)\n"
    )
    run = launcher.record("-o", "run.trace", "script.py")
    assert run.status == 0, run.err
    hops = tracer.load(launcher.folder / "run.trace").hops
    steps = hops.drop_nulls("step").group_by("process").agg(pl.col("step").unique().sort()).sort("process")
    assert steps["step"].to_list() == [[0, 1], [0, 1, 2]]


@pytest.mark.parametrize("wanted", ["1:3", "2:4", "3:4"])
def test_a_child_forked_in_a_wanted_step_records_its_own_steps(launcher: Launcher, wanted: str) -> None:
    launcher.write(
        "import os, sys, torch, tracer\n"
        "def steps(numbers):\n"
        "    for number in numbers: torch.ones(number + 1).neg(); tracer.step()\n"
        "steps(range(2))\n"
        "torch.ones(3).neg()\n"
        "if os.fork() == 0: steps(range(6)); sys.exit(0)\n"
        "os.wait(); tracer.step(); steps(range(3, 6))\n"
    )
    run = launcher.record("--steps", wanted, "-o", "run.trace", "script.py")
    assert run.status == 0, run.err
    trace = tracer.load(launcher.folder / "run.trace")
    ones = trace.hops.filter((pl.col("op") == "aten::neg") & pl.col("parent").is_null())
    sizes = trace.signatures.select(inputs="id", size=pl.col("shape").list.first())
    seen = (
        ones.join(sizes, on="inputs").select("process", "step", size=pl.col("size") - 1).drop_nulls().rows()
    )
    first, end = map(int, wanted.split(":"))
    for process in (0, 1):  # a step has its own ops alone, whose size is its number
        found = {(step, size) for one, step, size in seen if one == process}
        assert found <= {(step, step) for step in range(first, end)}
    assert {step for one, step, _ in seen if one == 0} == set(range(first, end))


COMPILED = """
import sys, torch, tracer
from torch._dynamo.testing import CompileCounter
class Mine(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})
    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            parameter.sub_(parameter.grad * 0.1)
parameter = torch.nn.Parameter(torch.ones(4))
optimizer, counter = Mine([parameter]), CompileCounter()
step = torch.compile(optimizer.step, backend=counter, fullgraph=True)
for i in range(4):
    parameter.grad = torch.ones(4)
    step()
print(counter.frame_count, counter.op_count, dict(torch._dynamo.utils.counters["graph_break"]))
"""


@pytest.mark.parametrize("options", [(), ("--steps", "1:3")])
def test_what_is_compiled_of_a_step_stays_as_it_was(launcher: Launcher, options: tuple[str, ...]) -> None:
    launcher.write(COMPILED)
    alone = launcher.python("script.py")
    assert alone.out == "1 4 {}\n", alone.err
    recorded = launcher.record(*options, "-o", "run.trace", "script.py")
    assert (recorded.status, recorded.out) == (0, alone.out), recorded.err


@pytest.mark.parametrize(("name", "steps"), [("in backward", range(5)), ("in backward 1:3", range(1, 3))])
def test_a_step_that_a_hook_of_backward_takes_ends_with_that_backward(
    folder: Path, name: str, steps: range
) -> None:
    trace = tracer.load(folder / f"{name}.trace")
    for step in steps:
        found = ops_of(trace, step)
        assert [found.count(f"aten::{op}") for op in ("sigmoid", "tanh_backward", "add_.Tensor")] == [1, 1, 4]


RAISES = """
import torch
m = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 4))
o = torch.optim.SGD(m[1].parameters(), lr=0.1)
for i in range(5):
    fails = i == 2
    m[1].bias.register_post_accumulate_grad_hook(lambda p: o.step()) if i == 0 else None
    x = m[0](torch.ones(2, 3))
    def hook(grad):
        if fails: raise ValueError
    x.register_hook(hook)
    try:
        m[1](x).sum().backward()
    except ValueError:
        print("raised")
    o.zero_grad()
"""


def test_a_backward_that_raises_after_its_step_has_ended_it_by_the_next_one(launcher: Launcher) -> None:
    launcher.write(RAISES)
    run = launcher.record("-o", "run.trace", "script.py")
    assert run.out == "raised\n", run.err
    assert len(tracer.load(launcher.folder / "run.trace").steps) == 5
