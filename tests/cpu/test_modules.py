"""Which nn.Module was being called at each hop."""

from __future__ import annotations

import ctypes
import gc
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
import torch
from launching import Launcher
from op_samples import digest
from recorded import hops_of
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import tracer


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).relu()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block()])
        self.heads = nn.ModuleDict({"a": nn.Sequential(nn.Linear(4, 4), nn.Tanh())})

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.heads["a"](x).exp()

    def encode(self, x: Tensor) -> Tensor:
        return self.layers[1](x)


def modules(hops: pl.DataFrame, *ops: str) -> list[str | None]:
    """The modules of the outermost hops of these ops (no op: of all), in order."""
    outermost = hops.filter(pl.col("parent").is_null())
    if ops:
        outermost = outermost.filter(pl.col("op").cast(pl.String).is_in([f"aten::{op}" for op in ops]))
    return outermost["module"].cast(pl.String).to_list()


def forward(hops: pl.DataFrame) -> pl.DataFrame:
    return hops.filter(pl.col("backward_node").is_null())


def inputs() -> Tensor:
    return torch.linspace(-1, 1, 8).view(2, 4)


@contextmanager
def named_by_hooks(model: nn.Module) -> Iterator[None]:
    """Opens a range with the name of each module that is called, by torch's own hooks."""
    names = {module: name or type(model).__name__ for name, module in model.named_modules()}
    ranges: list[torch.autograd.profiler.record_function] = []

    def enter(module: nn.Module, _: object) -> None:
        ranges.append(torch.autograd.profiler.record_function(names[module]))
        ranges[-1].__enter__()

    def leave(*_: object) -> None:
        ranges.pop().__exit__(None, None, None)

    handles = [
        nn.modules.module.register_module_forward_pre_hook(enter),
        nn.modules.module.register_module_forward_hook(leave, always_call=True),
    ]
    yield
    for handle in handles:
        handle.remove()


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]]]] = {
    "own": (Model, lambda: (inputs(),)),
    "transformer": (
        lambda: nn.Transformer(8, 2, 2, 2, 16, batch_first=True),
        lambda: (torch.ones(1, 3, 8), torch.ones(1, 2, 8)),
    ),
    "recurrent": (lambda: nn.Sequential(nn.Embedding(5, 4), nn.GRU(4, 4)), lambda: (torch.arange(4),)),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.Sequential(nn.GELU(), nn.Flatten())),
        lambda: (torch.ones(2, 2, 8),),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_paths_are_those_of_named_modules(tmp_path: Path, name: str) -> None:
    """Each forward hop has the name that torch's own hooks say."""
    make, arguments = MODELS[name]
    model = make()
    with named_by_hooks(model):
        hops = hops_of(tmp_path, lambda: model(*arguments()))
    outermost = hops.filter(
        pl.col("parent").is_null(), ~pl.col("op").cast(pl.String).str.starts_with("profiler::")
    )
    inside = outermost.filter(pl.col("range").is_not_null())
    assert len(inside) >= 5
    assert inside["module"].cast(pl.String).to_list() == inside["range"].cast(pl.String).to_list()


def test_hops_inside_have_the_module_too(tmp_path: Path) -> None:
    model = Model()
    hops = hops_of(tmp_path, lambda: model(inputs()))
    roots = hops.with_columns(root=pl.when(pl.col("parent").is_null()).then("id").forward_fill())
    assert roots.group_by("root").agg(pl.col("module").n_unique())["module"].max() == 1
    assert hops["module"].is_not_null().sum() > len(modules(hops))


def test_backward_hops_have_the_module_of_their_forward_hop(tmp_path: Path) -> None:
    model = Model()
    hops = hops_of(tmp_path, lambda: model(inputs()).sum().backward())
    backward = hops.filter(pl.col("backward_node").is_not_null())
    assert modules(backward, "threshold_backward") == ["layers.1", "layers.0"]
    assert modules(backward, "tanh_backward") == ["heads.a.1"]
    assert set(modules(backward, "mm")) == {"heads.a.0", "layers.1.inner", "layers.0.inner"}
    linked = backward.filter(pl.col("forward_hop").is_not_null())
    assert linked["module"].to_list() == hops["module"].gather(linked["forward_hop"]).to_list()
    accumulated = backward.filter(pl.col("backward_node").cast(pl.String) == "AccumulateGrad")
    assert set(modules(accumulated)) == {None}, "no forward hop made it"


def test_a_backward_pass_inside_a_module_is_not_the_modules_own(tmp_path: Path) -> None:
    class Penalty(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def forward(self, x: Tensor) -> Tensor:
            self.block(x).sum().backward()
            return x.cos()

    model = Penalty()
    hops = hops_of(tmp_path, lambda: model(inputs()))
    assert modules(hops, "threshold_backward", "mm") == ["block", "block.inner"]
    assert modules(hops, "sum", "cos") == ["Penalty", "Penalty"]


def test_second_backward_leads_to_the_first_forward(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Tanh())

    def run() -> None:
        x = inputs().requires_grad_()
        (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        gradient.sum().backward()

    hops = hops_of(tmp_path, run)
    backward = hops.filter(pl.col("backward_node").is_not_null())
    assert "TanhBackwardBackward0" in backward["backward_node"].cast(pl.String).to_list()
    second = backward.filter(pl.col("backward_node").cast(pl.String) == "TanhBackwardBackward0")
    assert set(modules(second)) == {"0"}


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_has_the_names_of_the_first_run(tmp_path: Path, reentrant: bool) -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([Block(), Block()])

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = checkpoint(lambda x, run=block: run(x), x, use_reentrant=reentrant)
            return x

    model = Checkpointed()
    hops = hops_of(tmp_path, lambda: model(inputs().requires_grad_()).sum().backward())
    first, again = (
        hops.filter(pl.col("backward_node").is_null() == condition) for condition in (True, False)
    )
    ops = ("linear", "relu")
    expected = ["blocks.0.inner", "blocks.0", "blocks.1.inner", "blocks.1"]
    assert modules(first, *ops) == expected
    assert modules(again, *ops) == expected[2:] + expected[:2]
    assert modules(again, "threshold_backward") == ["blocks.1", "blocks.0"]
    again = again.filter(pl.col("op").cast(pl.String) == "aten::mm")
    assert set(modules(again)) == {"blocks.0.inner", "blocks.1.inner"}


def test_nothing_is_called_outside_of_modules(tmp_path: Path) -> None:
    def run() -> None:
        Model().half()
        torch.ones(2).cos()

    assert set(modules(hops_of(tmp_path, run))) == {None}


def test_modules_without_a_parent_are_called_by_their_class(tmp_path: Path) -> None:
    hidden = [nn.Tanh()]

    class Hides(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.Sigmoid()(hidden[0](x)).relu()

    hops = hops_of(tmp_path, lambda: (nn.GRU(2, 2)(torch.ones(1, 1, 2)), Hides()(inputs())))
    assert modules(hops, "gru.input") == ["GRU"]
    assert modules(hops, "tanh", "sigmoid", "relu") == ["Tanh", "Sigmoid", "Hides"]


def test_one_module_under_two_parents_goes_by_the_one_that_calls_it(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = Block(), Block()
            self.decoder.inner = self.encoder.inner
            self.first = self.second = self.encoder.inner

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.decoder(self.encoder(x)))

    model = Tied()
    hops = hops_of(tmp_path, lambda: model(inputs()))
    # one parent has it under two names, which are not told apart: the first, as in named_modules()
    assert modules(hops, "linear") == ["encoder.inner", "decoder.inner", "first"]


def test_a_module_that_is_handed_down_goes_by_the_model_that_has_it(tmp_path: Path) -> None:
    class Applies(nn.Module):
        def forward(self, module: nn.Module, x: Tensor) -> Tensor:
            return module(nn.Sigmoid()(x))

    class Hands(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.applies = Applies()
            self.shared = nn.Sequential(nn.Tanh(), nn.Sigmoid())

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(10):
                x = self.applies(self.shared, x)
            return x

    model = Hands()
    hops = hops_of(tmp_path, lambda: model(inputs()))
    assert modules(hops, "tanh", "sigmoid") == ["Sigmoid", "shared.0", "shared.1"] * 10


def test_methods_and_functions_around_a_module_say_where_it_stands(tmp_path: Path) -> None:
    model = Model()

    def evaluate(model: Model) -> Tensor:
        return model.layers[0](inputs())

    class Trainer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = model

        def training_step(self) -> Tensor:
            return self.network.encode(inputs())

    hops = hops_of(tmp_path, lambda: (model.encode(inputs()), evaluate(model), Trainer().training_step()))
    assert modules(hops, "relu") == ["layers.1", "layers.0", "network.layers.1"]
    assert modules(hops_of(tmp_path, lambda: model.layers[1](inputs())), "linear", "relu") == [
        "inner",
        "Block",
    ]


def test_a_recording_that_begins_inside_a_call(tmp_path: Path) -> None:
    class Records(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def forward(self, x: Tensor) -> Tensor:
            with tracer.record(tmp_path / "inside.trace", force=True):
                return self.block(x)

    model = Records()
    for _ in range(2):
        model(inputs())
        hops = tracer.load(tmp_path / "inside.trace").hops
        assert modules(hops, "linear", "relu") == ["block.inner", "block"]


def test_models_with_the_same_paths_are_told_apart(tmp_path: Path) -> None:
    class Other(Model):
        pass

    first, second, loss = Model(), Other(), nn.MSELoss()
    hops = hops_of(tmp_path, lambda: loss(first(inputs()), second(inputs())))
    assert modules(hops, "relu", "exp") == [
        *("Model.layers.0", "Model.layers.1", "Model"),
        *("Other.layers.0", "Other.layers.1", "Other"),
    ]
    assert modules(hops, "mse_loss") == ["MSELoss"]


def test_a_class_and_a_name_are_not_exchanged(tmp_path: Path) -> None:
    def parent(name: str, child: str) -> nn.Module:
        def run(self: nn.Module, x: Tensor) -> Tensor:
            return self.get_submodule(child)(x).exp()

        made = type(name, (nn.Module,), {"forward": run})()
        made.add_module(child, nn.Tanh())
        return made

    x = torch.ones(2)
    one, other, same, equal = (
        parent("head", "body"),
        parent("body", "head"),
        parent("a", "a"),
        parent("b", "b"),
    )
    hops = hops_of(tmp_path, lambda: [model(x) for model in (one, other, same, equal)])
    assert modules(hops, "tanh") == ["body", "head", "a", "b"]
    assert modules(hops, "exp") == ["head", "body", "a", "b"]


def test_a_name_is_that_of_now(tmp_path: Path) -> None:
    """Trees change while they are recorded: modules are made late, moved, swapped and taken out."""

    class Changing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Tanh(), nn.Sigmoid()])

        def forward(self, x: Tensor) -> Tensor:
            if not hasattr(self, "late"):
                late = nn.ReLU()
                late(x)
                self.late = late
            for layer in self.layers:
                layer(x)
            return self.late(x)

    model = Changing()

    def run() -> None:
        model(inputs())
        model.layers = nn.ModuleList([model.layers[1], model.layers[0]])
        model(inputs())
        del model.layers[0]
        model.late = nn.Sequential(model.late)
        model(inputs())

    hops = hops_of(tmp_path, run)
    assert modules(hops, "tanh") == ["layers.0", "layers.1", "layers.0"]
    assert modules(hops, "sigmoid") == ["layers.1", "layers.0"]
    assert modules(hops, "relu") == ["ReLU", "late", "late", "late.0"]


def test_a_new_module_at_an_old_address_has_its_own_name(tmp_path: Path) -> None:
    holder = nn.Module()
    addresses: list[int] = []

    class Uses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.holder = holder

        def forward(self, x: Tensor) -> Tensor:
            for number in range(40):
                module = nn.Tanh()
                addresses.append(id(module))
                if number % 3:
                    setattr(holder, f"tanh{number}", module)
                x = module(x)
                if number % 3:
                    delattr(holder, f"tanh{number}")
                del module
            return x

    model = Uses()
    hops = hops_of(tmp_path, lambda: model(inputs()))
    assert len(set(addresses)) < len(addresses), "no address was used again"
    expected = [f"holder.tanh{number}" if number % 3 else "Tanh" for number in range(40)]
    assert modules(hops, "tanh") == expected


def test_threads_have_modules_of_their_own(tmp_path: Path) -> None:
    model = Model()
    barrier = threading.Barrier(3)
    results = []

    class Waits(nn.Module):
        def __init__(self, block: nn.Module) -> None:
            super().__init__()
            self.block = block

        def forward(self, x: Tensor) -> Tensor:
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
    model, end, failures = Model(), threading.Event(), []
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
            self.block = Block()

        def forward(self, x: Tensor) -> Tensor:
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

        def forward(self, x: Tensor, depth: int) -> Tensor:
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
    class Overrides(Block):
        def __call__(self, *arguments: Tensor) -> Tensor:
            return super().__call__(*arguments).cos()

    class Calls(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own, self.plain = Overrides(), Block()

        def forward(self, x: Tensor) -> Tensor:
            return self.plain.__call__(self.own(x))

    model = Calls()
    assert modules(hops_of(tmp_path, lambda: model(inputs())), "linear", "relu", "cos") == [
        *("own.inner", "own", "Calls"),
        *("plain.inner", "plain"),
    ]
    traced = torch.fx.symbolic_trace(Model())
    assert modules(hops_of(tmp_path, lambda: traced(inputs())), "linear") == [
        *("layers.0.inner", "layers.1.inner", "heads.a.0"),
    ]
    parameters = {name: value.clone() for name, value in model.named_parameters()}
    hops = hops_of(tmp_path, lambda: torch.func.functional_call(model, parameters, (inputs(),)))
    assert modules(hops, "linear") == ["own.inner", "plain.inner"]
    scripted = torch.jit.script(Block())
    assert modules(hops_of(tmp_path, lambda: scripted(inputs())), "linear") == ["RecursiveScriptModule"]


def test_compiled_modules_are_one_call(tmp_path: Path) -> None:
    """Dynamo inlines the calls of submodules, so their hops run in the module that was compiled."""
    torch._dynamo.reset()
    inside, around = Model(), torch.compile(Model(), backend="eager")
    inside.compile(backend="eager")
    expected = digest([inside(inputs()), around(inputs())])
    results: list[Tensor] = []
    hops = hops_of(tmp_path, lambda: results.extend([inside(inputs()), around(inputs())]))
    assert digest(results) == expected
    assert set(modules(hops, "relu", "tanh")) == {"Model", "_orig_mod"}
    alone = torch.compile(Model(), backend="eager", fullgraph=True)
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
            Model()(inputs())
        assert words_of(function)[entry] == python_entry
    with tracer.record(tmp_path / "x.trace", force=True, modules=False):
        assert words_of(function)[entry] == python_entry


def test_modules_live_no_longer_than_without_a_recording(tmp_path: Path) -> None:
    with tracer.record(tmp_path / "x.trace"):
        model = Model()
        model(inputs()).sum().backward()
        part = weakref.ref(model.layers[0])
        gone = weakref.ref(model)
        del model
        gc.collect()
        assert gone() is None
        assert part() is None


def test_it_can_be_left_out(tmp_path: Path, launcher: Launcher) -> None:
    model = Model()
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
    def run() -> list[Tensor]:
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
