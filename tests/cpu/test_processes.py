"""Whole programs: several processes in one file, and the subsystems of torch that live on the dispatcher."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from compiler_cache import use_cache
from launching import Launcher
from lazily import pytree, torch
from programs import whole
from recorded import hops_of

import tracer

BACKEND = "inductor" if shutil.which("g++") else "aot_eager"
PRODUCT = "aten::mm.out" if BACKEND == "inductor" else "aten::mm"  # what it makes of torch.mm


def runs_by_process(trace: tracer.Trace, op: str) -> dict[int, int]:
    """OS process id -> how often `op` ran at the CPU key."""
    ran = trace.hops.filter((pl.col("op").cast(pl.String) == op) & (pl.col("key").cast(pl.String) == "CPU"))
    return dict(ran.join(trace.processes, on="process").group_by("pid").len().iter_rows())


def load(launcher: Launcher) -> tracer.Trace:
    trace = tracer.load(launcher.folder / "both.trace")
    assert trace.certificate["verdict"].startswith("complete: ")
    assert all(trace.certificate["closed_in_order"].values()), trace.certificate["closed_in_order"]
    assert trace.certificate["unresolved_kernels"] == 0
    return trace


# ---- several processes in one file ---------------------------------------------------------------


def test_fork(launcher: Launcher) -> None:
    launcher.write(
        "import os, sys, threading, torch\n"
        "def negate(n):\n    for _ in range(n): torch.neg(x)\n"
        "x = torch.ones(2)\n"
        "negate(3)\n"
        "for n in (5, 7):\n"
        "    if (child := os.fork()) == 0:\n"
        "        thread = threading.Thread(target=negate, args=(100,))\n"
        "        thread.start(); negate(n); thread.join()\n"
        "        if n == 7 and os.fork() == 0:\n"
        "            negate(11); sys.exit(0)\n"
        "        elif n == 7: os.wait()\n"
        "        sys.exit(n)\n"
        "    print(os.waitpid(child, 0)[1] >> 8)\n"
        "negate(1)\n"
    )
    launcher.same("script.py")
    trace = load(launcher)
    assert sorted(runs_by_process(trace, "aten::neg").values()) == [4, 11, 105, 107]
    assert trace.processes["how"].cast(pl.String).to_list() == ["root", "forked", "forked", "forked"]
    assert trace.hops.group_by("process").agg(pl.col("thread").n_unique()).sort("process")[
        "thread"
    ].to_list() == [1, 2, 2, 1]
    assert trace.hops["source"].cast(pl.String).str.ends_with("script.py:3").any()


@pytest.mark.parametrize(
    ("method", "how"),
    [
        pytest.param("fork", "forked", marks=pytest.mark.promise("record", "docs/record.md")),
        ("spawn", "joined"),
        ("forkserver", None),
    ],
)
def test_multiprocessing(launcher: Launcher, method: str, how: str | None) -> None:
    launcher.write(
        "import multiprocessing, torch\n"
        "def work(n):\n    for _ in range(n): torch.neg(torch.ones(2))\n"
        "if __name__ == '__main__':\n"
        f"    context = multiprocessing.get_context({method!r})\n"
        "    children = [context.Process(target=work, args=(n,)) for n in (3, 5)]\n"
        "    for child in children: child.start()\n"
        "    work(1)\n"
        "    for child in children: child.join()\n"
        "    print([child.exitcode for child in children])\n"
    )
    launcher.says("[0, 0]\n", "script.py")
    trace = load(launcher)
    assert sorted(runs_by_process(trace, "aten::neg").values()) == [1, 3, 5]
    if how is not None:
        assert trace.processes["how"].cast(pl.String).to_list() == ["root", how, how]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_threads_that_a_child_leaves_running(launcher: Launcher, method: str) -> None:
    """multiprocessing waits for them when the work is done, and its own end has begun."""
    launcher.write(
        "import multiprocessing, threading, time\n"
        "def late():\n"
        "    time.sleep(0.4)\n    for _ in range(7): torch.neg(torch.ones(2))\n"
        "def work():\n"
        "    global torch\n    import torch\n    threading.Thread(target=late).start()\n"
        "if __name__ == '__main__':\n"
        "    import torch\n    torch.neg(torch.ones(2))\n"
        f"    child = multiprocessing.get_context({method!r}).Process(target=work)\n"
        "    child.start(); child.join()\n    print(child.exitcode)\n"
    )
    launcher.says("0\n", "script.py")
    assert sorted(runs_by_process(load(launcher), "aten::neg").values()) == [1, 7]


@pytest.mark.fresh
@pytest.mark.parametrize("begin", ["", "import tracer; tracer.start('both.trace')"], ids=["record", "start"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_that_nobody_joins(launcher: Launcher, method: str, begin: str) -> None:
    """multiprocessing joins it when the process ends; until then it is recorded."""
    launcher.write(
        "import atexit, os, time, multiprocessing, torch\n"
        "def work():\n"
        "    torch.ones(1)\n"
        "    while not os.path.exists('ending'): time.sleep(0.01)\n"
        "    time.sleep(1)  # else it might end before what ends too early\n"
        "    for _ in range(30_000): torch.neg(torch.ones(2))\n"
        "    print('child')\n"
        "if __name__ == '__main__':\n"
        f"    {begin or 'pass'}\n"
        f"    multiprocessing.get_context({method!r}).Process(target=work).start()\n"
        "    atexit.register(lambda: open('ending', 'w').close())\n"
        "    print('parent', flush=True)\n"
    )
    run = launcher.python("script.py") if begin else launcher.record("-o", "both.trace", "script.py")
    assert (run.status, run.out, run.own_err) == (0, "parent\nchild\n", "")
    trace = load(launcher)
    assert list(runs_by_process(trace, "aten::neg").values()) == [30_000]
    if not begin:
        counted = int(re.search(r"([\d,]+) hops", run.said)[1].replace(",", ""))
        assert counted == len(trace.hops)


def test_an_idle_child_says_nothing_in_the_name_of_its_parent(launcher: Launcher) -> None:
    """The worker that `child.py` forks runs no op; child.py itself ends without a word."""
    launcher.write("import subprocess, sys, torch\nsubprocess.run([sys.executable, 'child.py'])\n")
    (launcher.folder / "child.py").write_text(
        "import multiprocessing, os, torch\n"
        "torch.neg(torch.ones(2))\n"
        "worker = multiprocessing.get_context('fork').Process(target=len, args=('',))\n"
        "worker.start(); worker.join()\n"
        "os._exit(worker.exitcode)\n"
    )
    launcher.says("", "script.py")
    trace = tracer.load(launcher.folder / "both.trace")
    assert trace.processes["how"].cast(pl.String).to_list() == ["root", "joined"]
    assert trace.certificate["closed_in_order"] == {0: True, 1: False}


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_data_loader_workers(launcher: Launcher, method: str) -> None:
    script = (
        "import torch\n"
        "from torch.utils.data import DataLoader, Dataset\n"
        "torch.manual_seed(0)\n"
        "class Squares(Dataset):\n"
        "    def __len__(self): return 12\n"
        "    def __getitem__(self, i): return torch.neg(torch.full((2,), float(i)))\n"
        "def train(model, optimizer, loader):\n"
        "    for batch in loader:\n"
        "        optimizer.zero_grad()\n"
        "        loss = model(batch).square().mean()\n"
        "        loss.backward(); optimizer.step()\n"
        "    print(loss.item())\n"
        "if __name__ == '__main__':\n"
        "    model = torch.nn.Linear(2, 1)\n"
        "    optimizer = torch.optim.SGD(model.parameters(), 0.01)\n"
        "    for epoch in range(2):\n"
        "        train(model, optimizer, DataLoader(Squares(), batch_size=3, num_workers=2,\n"
        f"                                           multiprocessing_context={method!r}))\n"
    )
    launcher.write(script)
    launcher.write(script.replace(repr(method), "'fork'"), "forks.py")  # which says the same, sooner
    alone = launcher.python("forks.py")
    assert (alone.status, alone.err) == (0, "")
    launcher.says(alone.out, "script.py")
    trace = load(launcher)
    root = trace.processes["pid"][0]
    for op, count in (("aten::neg", 6), ("aten::stack.out", 2)):
        assert list(runs_by_process(trace, op).values()) == [count] * 4, "two workers in each of two epochs"
    assert list(runs_by_process(trace, "aten::addmm")) == [root]


def test_locks_that_are_made_while_the_process_forks(launcher: Launcher) -> None:
    """As on a thread of `tracer attach`, when the main thread forks: the fork has not taken them."""
    launcher.write(
        "import importlib.util, os\n"
        "def make():\n"
        "    spec = importlib.util.find_spec('tracer.base.locks')\n"
        "    made.append(importlib.util.module_from_spec(spec))\n"
        "    spec.loader.exec_module(made[-1])\n"
        "made = []\n"
        "os.register_at_fork(before=lambda: made or make())\n"
        "for _ in range(2):\n"
        "    child = os.fork()\n"
        "    if child == 0: os._exit(not made[0].counting.acquire(timeout=5))\n"
        "    print(os.waitpid(child, 0)[1], made[0].counting.locked())\n"
    )
    done = launcher.run([sys.executable, "script.py"])
    assert (done.status, done.out, done.err) == (0, "0 False\n0 False\n", "")


def test_forked_before_the_recording_and_nothing_after_it(tmp_path: Path) -> None:
    """A pool that was forked before is no part of the recording, and goes on working after it."""
    with torch.multiprocessing.get_context("fork").Pool(1) as pool:
        pool.map(_square, [1])
        with tracer.record(tmp_path / "t.trace") as recording:
            torch.ones(1)
            assert pool.map(_square, [3]) == [9]
        assert pool.map(_square, [4]) == [16]
    assert recording.summary.processes == 1


def _square(x: int) -> float:
    return torch.tensor(x).square().item()


# ---- subsystems ----------------------------------------------------------------------------------


def _train() -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).square().mean().backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def _compiled() -> list[torch.Tensor]:
    torch._dynamo.reset()
    weight = torch.linspace(0, 1, 64).view(8, 8).requires_grad_()

    @torch.compile(backend=BACKEND)
    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, weight).relu().sum()

    loss = step(torch.ones(8, 8))
    loss.backward()
    return [loss.detach(), weight.grad]


def _autocast() -> torch.Tensor:
    x = torch.linspace(0, 1, 16).view(4, 4).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = torch.nn.functional.softmax(x @ x, -1)
    y.sum().backward()
    return x.grad


def _inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.nn.functional.gelu(
            torch.linspace(0, 1, 4).view(2, 2) @ torch.ones(2, 2, requires_grad=True)
        )


def _per_sample_gradients() -> torch.Tensor:
    def loss(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (x @ weight).sigmoid().sum()

    return torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(
        torch.ones(4, 4), torch.linspace(0, 1, 24).view(3, 2, 4)
    )


def _subclass() -> list[torch.Tensor]:
    from torch.testing._internal.two_tensor import TwoTensor

    x = TwoTensor(torch.ones(2, 2), torch.full((2, 2), 2.0)).requires_grad_()
    y = torch.mm(x, x).relu()
    y.sum().backward()
    return [y.a.detach(), y.b.detach(), x.grad.a, x.grad.b]


def _fake() -> list[object]:
    with torch._subclasses.FakeTensorMode():
        model = torch.nn.Linear(1000, 10_000)
        y = model(torch.empty(64, 1000))
        y.sum().backward()
        return [tuple(y.shape), y.dtype, tuple(model.weight.grad.shape)]


def _caught() -> list[object]:
    caught = []
    with torch.library._scoped_library("tracerraise", "FRAGMENT") as library:
        library.define("value(Tensor x) -> Tensor")
        library.define("shapes(Tensor x) -> Tensor")
        library.impl("value", lambda x: [][x.numel()], "CPU")
        library.impl("shapes", lambda x: torch.mm(x, x), "CPU")
        for op in (torch.ops.tracerraise.value, torch.ops.tracerraise.shapes):
            try:
                op(torch.ones(2, 3))
            except (IndexError, RuntimeError) as error:
                caught.append((type(error), str(error)))
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    with torch.no_grad():
        y.add_(1)
    try:
        y.sum().backward()
    except RuntimeError as error:
        caught.append((type(error), str(error)))
    return [*caught, torch.ones(2).abs()]


def same(a: object, b: object) -> bool:
    (left, left_shape), (right, right_shape) = pytree.tree_flatten(a), pytree.tree_flatten(b)
    return left_shape == right_shape and all(
        torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y for x, y in zip(left, right, strict=True)
    )


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (_train, {("aten::addmm", "AutogradCPU"), ("aten::addmm", "CPU"), ("aten::addcdiv_", "CPU")}),
        (_compiled, {(PRODUCT, "CPU")}),
        (_autocast, {("aten::matmul", "AutocastCPU"), ("aten::_softmax", "CPU")}),
        (_inference, {("aten::mm", "CPU"), ("aten::gelu", "CPU")}),
        (_per_sample_gradients, {("aten::sigmoid", "FuncTorchBatched"), ("aten::sigmoid_backward", "CPU")}),
        (_subclass, {("aten::mm", "AutogradCPU"), ("aten::mm", "Python"), ("aten::mm", "CPU")}),
        (_fake, {("aten::addmm", "AutogradCPU"), ("aten::addmm", "Python")}),
        (_caught, {("tracerraise::value", "CPU"), ("aten::mm", "CPU")}),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_program(tmp_path: Path, run: Callable[[], object], expected: set[tuple[str, str]]) -> None:
    plain = run()
    results = []
    hops = hops_of(tmp_path, lambda: results.append(run()))
    assert same(results[0], plain)
    found = set(hops.select(pl.col("op", "key").cast(pl.String)).iter_rows())
    assert expected <= found, expected - found
    assert hops["open"].sum() == 0
    assert len(whole(tracer.load(tmp_path / "recorded.trace")).hops) == len(hops)


def test_inference_mode_has_no_autograd_hop(tmp_path: Path) -> None:
    hops = hops_of(tmp_path, lambda: torch.inference_mode()(torch.mm)(torch.ones(2, 2), torch.ones(2, 2)))
    assert not hops["key"].cast(pl.String).str.contains("Autograd").any()


def test_exceptions_leave_later_hops_at_the_top(tmp_path: Path) -> None:
    hops = hops_of(tmp_path, _caught).with_columns(pl.col("op").cast(pl.String))
    raised = hops.filter("raised")
    assert set(raised["op"]) >= {"tracerraise::value", "tracerraise::shapes", "aten::mm"}
    nested = raised.filter(pl.col("op") == "aten::mm").row(0, named=True)
    ancestors = []
    while nested["parent"] is not None:
        nested = hops.row(nested["parent"], named=True)
        ancestors.append(nested["op"])
    assert ancestors[-1] == "tracerraise::shapes"
    assert hops.filter(pl.col("op") == "aten::abs")["parent"][0] is None


@pytest.mark.compiler
def test_compiled_code_runs_recorded(launcher: Launcher) -> None:
    """Compiled and run in a process of its own: as under python, and what it still dispatches is there."""
    launcher.write(
        "import torch\n"
        f"@torch.compile(backend={BACKEND!r})\n"
        "def f(x, w):\n    return torch.mm(x, w).relu().sum()\n"
        "w = torch.ones(4, 4, requires_grad=True)\n"
        "for _ in range(3):\n    f(torch.eye(4), w).backward()\n"
        "print(w.grad)\n"
    )
    # A torch with CUDA warns of a toolkit without a GPU, with the time and the process number.
    quiet = {"TORCH_LOGS": "-torch.utils.cpp_extension"} if torch.version.cuda else {}
    use_cache(launcher, launcher.folder / "cache")
    launcher.same("script.py", extra=quiet)
    trace = tracer.load(launcher.folder / "both.trace")
    ran = trace.hops.filter(
        (pl.col("op").cast(pl.String) == PRODUCT) & (pl.col("key").cast(pl.String) == "CPU")
    )
    assert len(ran) >= 6, "a forward and a backward product in each of three steps"
    assert ", nothing dropped" in trace.certificate["verdict"]
    if BACKEND == "inductor":
        assert len(trace.compiled_kernels) >= 6, "a kernel or more in each forward and backward"
