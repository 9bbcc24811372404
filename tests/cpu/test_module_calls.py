"""Calls of nn.Module in threads, children and unusual ways."""

from __future__ import annotations

import ctypes
import gc
import threading
import types
import weakref
from pathlib import Path

import polars as pl
import pytest
from launching import Launcher
from lazily import Lazily, nn, torch
from module_names import inputs, modules
from op_samples import digest
from recorded import hops_of

import tracer

models = Lazily("own_models")


def test_threads_have_modules_of_their_own(tmp_path: Path) -> None:
    model = models.Model()
    barrier = threading.Barrier(3)
    results = []

    class Waits(nn.Module):
        def __init__(self, block: nn.Module) -> None:
            super().__init__()
            self.block = block

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(20):
                barrier.wait()
                x = self.block(x)
            return x

    def run() -> None:
        parts = [Waits(model.layers[0]), Waits(model.heads["a"]), Waits(nn.Sigmoid())]
        threads = [
            threading.Thread(target=lambda part=part: results.append(part(inputs()))) for part in parts
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    hops = hops_of(tmp_path, run)
    assert len(results) == 3
    assert hops["thread"].n_unique() == 3
    assert modules(hops, "relu", "sigmoid") == ["block"] * 40
    assert modules(hops, "tanh") == ["block.1"] * 20
    assert modules(hops, "linear") in (
        ["block.inner"] * 20 + ["block.0"] * 20,
        ["block.0"] * 20 + ["block.inner"] * 20,
    )


def test_recordings_come_and_go_while_modules_are_called(tmp_path: Path) -> None:
    model, end, failures = models.Model(), threading.Event(), []
    expected = digest(model(inputs()))

    def work() -> None:
        while not end.is_set():
            if digest(model(inputs())) != expected:
                failures.append("another result")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(12):
            with tracer.record(tmp_path / f"{number}.trace"):
                model(inputs())
    finally:
        end.set()
        for thread in threads:
            thread.join()
    assert not failures
    found = set()
    for number in range(12):
        found |= set(modules(tracer.load(tmp_path / f"{number}.trace").hops, "linear", "relu", "tanh"))
    # threads inside a call when the recording began are in none, or go on from the frames around them
    known = {"layers.0.inner", "layers.0", "layers.1.inner", "layers.1", "heads.a.0", "heads.a.1"}
    assert known <= found <= known | {None}


def test_exceptions_leave_modules(tmp_path: Path) -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = models.Block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                self.block(x.view(4, 2))
            except RuntimeError:
                x = x.cos()
            raise ValueError(x)

    def run() -> None:
        with pytest.raises(ValueError, match="tensor"):
            Fails()(inputs())
        inputs().sin()

    hops = hops_of(tmp_path, run)
    assert modules(hops, "linear", "cos", "sin") == ["block.inner", "Fails", None]


def test_recursion_and_deep_nesting(tmp_path: Path) -> None:
    class Recursive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.Tanh()

        def forward(self, x: torch.Tensor, depth: int) -> torch.Tensor:
            return self.cell(x) if depth == 0 else self(x, depth - 1).cos()

    nested: nn.Module = nn.Sigmoid()
    for _ in range(80):
        nested = nn.Sequential(nested)
    model = Recursive()
    hops = hops_of(tmp_path, lambda: (model(inputs(), 100), nested(inputs()), inputs().sin()))
    assert modules(hops, "tanh", "sin") == ["cell", None]
    assert modules(hops, "cos") == ["Recursive"] * 100
    assert modules(hops, "sigmoid") == [".".join("0" * 80)]


def test_other_ways_to_call_a_module(tmp_path: Path) -> None:
    class Overrides(models.Block):
        def __call__(self, *arguments: torch.Tensor) -> torch.Tensor:
            return super().__call__(*arguments).cos()

    class Calls(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own, self.plain = Overrides(), models.Block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.plain.__call__(self.own(x))

    model = Calls()
    assert modules(hops_of(tmp_path, lambda: model(inputs())), "linear", "relu", "cos") == [
        *("own.inner", "own", "Calls"),
        *("plain.inner", "plain"),
    ]
    traced = torch.fx.symbolic_trace(models.Model())
    assert modules(hops_of(tmp_path, lambda: traced(inputs())), "linear") == [
        *("layers.0.inner", "layers.1.inner", "heads.a.0"),
    ]
    parameters = {name: value.clone() for name, value in model.named_parameters()}
    hops = hops_of(tmp_path, lambda: torch.func.functional_call(model, parameters, (inputs(),)))
    assert modules(hops, "linear") == ["own.inner", "plain.inner"]
    scripted = torch.jit.script(models.Block())
    assert modules(hops_of(tmp_path, lambda: scripted(inputs())), "linear") == ["RecursiveScriptModule"]


def test_compiled_modules_are_one_call(tmp_path: Path) -> None:
    """Dynamo inlines the calls of submodules, so their hops run in the module that was compiled."""
    torch._dynamo.reset()
    inside, around = models.Model(), torch.compile(models.Model(), backend="eager")
    inside.compile(backend="eager")
    expected = digest([inside(inputs()), around(inputs())])
    results: list[torch.Tensor] = []
    hops = hops_of(tmp_path, lambda: results.extend([inside(inputs()), around(inputs())]))
    assert digest(results) == expected
    assert set(modules(hops, "relu", "tanh")) == {"Model", "_orig_mod"}
    alone = torch.compile(models.Model(), backend="eager", fullgraph=True)
    hops = hops_of(tmp_path, lambda: alone(inputs()))  # compiled while it is recorded
    assert "_orig_mod" in modules(hops, "relu")


def test_a_forked_child_names_what_it_calls(launcher: Launcher) -> None:
    launcher.write(
        "import os, torch\n"
        "from torch import nn\n"
        "class Forks(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.block = nn.Sequential(nn.Tanh())\n"
        "    def forward(self, x):\n"
        "        x = self.block(x)\n"
        "        if os.fork() == 0:\n"
        "            self.block(x.cos())\n"
        "            self.other = nn.Sequential(nn.Sigmoid())\n"
        "            self.other(x)\n"
        "            return x\n"
        "        os.wait()\n"
        "        return self.block(x).sin()\n"
        "Forks()(torch.ones(2))\n"
    )
    launcher.same("script.py")
    hops = tracer.load(launcher.folder / "both.trace").hops
    parent, child = (hops.filter(pl.col("process") == number) for number in (0, 1))
    assert modules(parent, "tanh", "sin") == ["block.0", "block.0", "Forks"]
    assert modules(child, "tanh", "sigmoid") == ["block.0", "other.0"]
    assert modules(child, "cos") == [None], "called before the fork"


def test_a_forked_child_may_begin_with_a_module(launcher: Launcher) -> None:
    launcher.write(
        "import os, torch\n"
        "model, x = torch.nn.Sequential(torch.nn.Tanh()), torch.ones(2)\n"
        "model(x)\n"
        "if os.fork() == 0:\n"
        "    model(x)\n"
        "else:\n"
        "    os.wait()\n"
    )
    launcher.same("script.py")
    hops = tracer.load(launcher.folder / "both.trace").hops
    for number in (0, 1):
        assert modules(hops.filter(pl.col("process") == number), "tanh") == ["0"]


def offset_of_entry() -> int:
    """Where a function object keeps what C callers call: `tp_vectorcall_offset` of its type."""
    head, pointers_before = 24, 4  # PyVarObject; tp_name, tp_basicsize, tp_itemsize, tp_dealloc
    return ctypes.c_ssize_t.from_address(id(types.FunctionType) + head + 8 * pointers_before).value


def words_of(function: object) -> list[int | None]:
    """The memory of a function object, without its reference count and its type."""
    return [
        ctypes.c_void_p.from_address(id(function) + at).value for at in range(16, function.__sizeof__(), 8)
    ]


def test_one_word_of_one_function_is_changed_until_the_stop(tmp_path: Path) -> None:
    function = nn.Module._call_impl
    entry = (offset_of_entry() - 16) // 8
    python_entry = words_of(words_of)[entry]  # the same for all functions that nobody has changed
    assert words_of(function).count(python_entry) == 1
    assert words_of(function)[entry] == python_entry

    def state() -> tuple[object, ...]:
        hooks = [value for name, value in vars(nn.modules.module).items() if name.startswith("_global")]
        return dict(vars(nn.Module)), function.__code__, repr(hooks)

    before = state()
    for _ in range(2):
        with tracer.record(tmp_path / "x.trace", force=True):
            assert words_of(function)[entry] != python_entry
            assert state() == before
            models.Model()(inputs())
        assert words_of(function)[entry] == python_entry
    with tracer.record(tmp_path / "x.trace", force=True, modules=False):
        assert words_of(function)[entry] == python_entry


def test_modules_live_no_longer_than_without_a_recording(tmp_path: Path) -> None:
    with tracer.record(tmp_path / "x.trace"):
        model = models.Model()
        model(inputs()).sum().backward()
        part = weakref.ref(model.layers[0])
        gone = weakref.ref(model)
        del model
        gc.collect()
        assert gone() is None
        assert part() is None


def test_it_can_be_left_out(tmp_path: Path, launcher: Launcher) -> None:
    model = models.Model()
    assert set(modules(hops_of(tmp_path, lambda: model(inputs()), modules=False))) == {None}
    launcher.write("import torch\ntorch.nn.Tanh()(torch.ones(2))\n")
    for option, expected in (("--modules", ["Tanh"]), ("--no-modules", [None])):
        launcher.record("--force", "-o", "x.trace", option, "script.py")
        assert modules(tracer.load(launcher.folder / "x.trace").hops, "tanh") == expected


def test_it_is_recorded_in_children_that_join(launcher: Launcher) -> None:
    launcher.write(
        "import sys, subprocess, torch\n"
        "if len(sys.argv) == 1:\n"
        "    subprocess.run([sys.executable, __file__, 'child'], check=True)\n"
        "torch.nn.Sequential(torch.nn.Tanh())(torch.ones(2))\n"
    )
    for option, expected in (("--modules", "0"), ("--no-modules", None)):
        launcher.record("--force", "-o", "x.trace", option, "script.py")
        hops = tracer.load(launcher.folder / "x.trace").hops
        assert hops["process"].n_unique() == 2
        assert modules(hops, "tanh") == [expected] * 2


def test_results_are_those_of_an_unrecorded_run(tmp_path: Path) -> None:
    def run() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
        optimiser = torch.optim.Adam(model.parameters())
        for _ in range(2):
            optimiser.zero_grad()
            model(torch.ones(1, 3, 8), torch.ones(1, 2, 8)).sum().backward()
            optimiser.step()
        return [value.detach() for value in model.parameters()]

    alone = digest(run())
    with tracer.record(tmp_path / "x.trace", stack=8):
        results = run()
    assert digest(results) == alone
