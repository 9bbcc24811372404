"""Which nn.Module was being called at each hop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
from lazily import Lazily, nn, torch
from module_names import inputs, modules
from recorded import hops_of

import tracer

models = Lazily("own_models")


def forward(hops: pl.DataFrame) -> pl.DataFrame:
    return hops.filter(pl.col("backward_node").is_null())


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


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "own": (lambda: models.Model(), lambda: (inputs(),)),
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


@pytest.mark.promise("tracer.record", "docs/record.md#which-module-and-whose-call-module-and---stack")
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
    model = models.Model()
    hops = hops_of(tmp_path, lambda: model(inputs()))
    roots = hops.with_columns(root=pl.when(pl.col("parent").is_null()).then("id").forward_fill())
    assert roots.group_by("root").agg(pl.col("module").n_unique())["module"].max() == 1
    assert hops["module"].is_not_null().sum() > len(modules(hops))


@pytest.mark.promise("tracer.record", "docs/record.md#which-module-and-whose-call-module-and---stack")
def test_backward_hops_have_the_module_of_their_forward_hop(tmp_path: Path) -> None:
    model = models.Model()
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
            self.block = models.Block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
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
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([models.Block(), models.Block()])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
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
        models.Model().half()
        torch.ones(2).cos()

    assert set(modules(hops_of(tmp_path, run))) == {None}


def test_modules_without_a_parent_are_called_by_their_class(tmp_path: Path) -> None:
    hidden = [nn.Tanh()]

    class Hides(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.Sigmoid()(hidden[0](x)).relu()

    hops = hops_of(tmp_path, lambda: (nn.GRU(2, 2)(torch.ones(1, 1, 2)), Hides()(inputs())))
    assert modules(hops, "gru.input") == ["GRU"]
    assert modules(hops, "tanh", "sigmoid", "relu") == ["Tanh", "Sigmoid", "Hides"]


def test_one_module_under_two_parents_goes_by_the_one_that_calls_it(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = models.Block(), models.Block()
            self.decoder.inner = self.encoder.inner
            self.first = self.second = self.encoder.inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.decoder(self.encoder(x)))

    model = Tied()
    hops = hops_of(tmp_path, lambda: model(inputs()))
    # one parent has it under two names, which are not told apart: the first, as in named_modules()
    assert modules(hops, "linear") == ["encoder.inner", "decoder.inner", "first"]


def test_a_module_that_is_handed_down_goes_by_the_model_that_has_it(tmp_path: Path) -> None:
    class Applies(nn.Module):
        def forward(self, module: nn.Module, x: torch.Tensor) -> torch.Tensor:
            return module(nn.Sigmoid()(x))

    class Hands(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.applies = Applies()
            self.shared = nn.Sequential(nn.Tanh(), nn.Sigmoid())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(10):
                x = self.applies(self.shared, x)
            return x

    model = Hands()
    hops = hops_of(tmp_path, lambda: model(inputs()))
    assert modules(hops, "tanh", "sigmoid") == ["Sigmoid", "shared.0", "shared.1"] * 10


def test_methods_and_functions_around_a_module_say_where_it_stands(tmp_path: Path) -> None:
    model = models.Model()

    def evaluate(model: models.Model) -> torch.Tensor:
        return model.layers[0](inputs())

    class Trainer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = model

        def training_step(self) -> torch.Tensor:
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
            self.block = models.Block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with tracer.record(tmp_path / "inside.trace", force=True):
                return self.block(x)

    model = Records()
    for _ in range(2):
        model(inputs())
        hops = tracer.load(tmp_path / "inside.trace").hops
        assert modules(hops, "linear", "relu") == ["block.inner", "block"]


def test_models_with_the_same_paths_are_told_apart(tmp_path: Path) -> None:
    class Other(models.Model):
        pass

    first, second, loss = models.Model(), Other(), nn.MSELoss()
    hops = hops_of(tmp_path, lambda: loss(first(inputs()), second(inputs())))
    assert modules(hops, "relu", "exp") == [
        *("Model.layers.0", "Model.layers.1", "Model"),
        *("Other.layers.0", "Other.layers.1", "Other"),
    ]
    assert modules(hops, "mse_loss") == ["MSELoss"]


def test_a_class_and_a_name_are_not_exchanged(tmp_path: Path) -> None:
    def parent(name: str, child: str) -> nn.Module:
        def run(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
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

        def forward(self, x: torch.Tensor) -> torch.Tensor:
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

        def forward(self, x: torch.Tensor) -> torch.Tensor:
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
