"""Programs that torch compiles, exports or interprets: what the dispatcher still sees, and from where."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from lazily import nn, torch
from programs import at, recorded, values, way, ways


def line_of(function: object, offset: int) -> str:
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno + offset}"


# ---- TorchScript ---------------------------------------------------------------------------------


def script() -> list[torch.Tensor]:
    @torch.jit.script
    def power(x: torch.Tensor, times: int) -> torch.Tensor:
        for _ in range(times):
            if bool(x.sum() > 0):
                x = torch.mm(x, x)
            else:
                x = x.neg()
        return x

    x = torch.linspace(-1, 0.5, 9).view(3, 3).requires_grad_()
    y = power(x, 4)
    y.sum().backward()
    return [y.detach(), x.grad]


def test_script(tmp_path: Path) -> None:
    """The interpreter calls operators as Python does: outermost, at the line that called the script."""
    hops = recorded(tmp_path, script)
    products = at(hops, "aten::mm").filter(pl.col("backward_node").is_null())
    assert values(products, "source") == [line_of(script, 11)]
    assert way(hops, "aten::mm", "CPU") == ["aten::mm [AutogradCPU]", "-> aten::mm [CPU]"]
    assert way(hops, "aten::_local_scalar_dense", "CPU") == [  # bool() of the script
        "aten::item [AutogradCPU]",
        "aten::_local_scalar_dense [AutogradCPU]",
        "-> aten::_local_scalar_dense [CPU]",
    ]
    # linspace(-1, 0.5) sums to less than nought: it is negated, and then stays above
    forward = hops.filter(pl.col("backward_node").is_null() & pl.col("parent").is_null())
    taken = [op for op in forward["op"].cast(pl.String) if op in ("aten::mm", "aten::neg")]
    assert taken == ["aten::neg", "aten::mm", "aten::mm", "aten::mm"]
    assert {"MmBackward0", "NegBackward0"} <= set(values(hops, "backward_node"))


def script_with_its_own_backward() -> list[torch.Tensor]:
    @torch.jit.script
    def gate(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.mm(x, w)) * x

    x = torch.linspace(-1, 1, 9).view(3, 3)
    grads = []
    for _ in range(3):  # the first run profiles, the others have a graph of their own for the backward
        w = torch.ones(3, 3, requires_grad=True)
        y = gate(x, w)
        y.sum().backward()
        grads.append(w.grad)
    return grads


def test_script_with_its_own_backward(tmp_path: Path) -> None:
    """From the second run on one node runs a compiled backward graph, op calls of its own in it."""
    hops = recorded(tmp_path, script_with_its_own_backward)
    graph = hops.filter(pl.col("backward_node").cast(pl.String).str.contains("DifferentiableGraphBackward"))
    assert {"aten::mm", "aten::mul.Tensor", "aten::t"} <= set(values(graph, "op"))
    assert "aten::tanh_backward" not in values(graph, "op"), "the script's own formula: (1 - y * y) * grad"
    assert len(at(graph, "aten::mm", "CPU")) == 2, "one in each run but the first"
    assert len(at(hops, "aten::tanh_backward", "CPU")) == 1, "in the first run alone"


def test_the_backward_of_a_script_has_no_hop_that_made_it(tmp_path: Path) -> None:
    hops = recorded(tmp_path, script_with_its_own_backward)
    graph = hops.filter(pl.col("backward_node").cast(pl.String).str.contains("DifferentiableGraphBackward"))
    assert values(graph, "forward_hop") == [None]


def traced() -> list[torch.Tensor]:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter))
    program = torch.jit.trace(model, torch.ones(2, 3), check_trace=False)
    return [program(torch.linspace(0, 1, 6).view(2, 3))]


def test_trace(tmp_path: Path) -> None:
    """While torch traces, ops pass the key Tracer first; the traced program runs without it."""
    hops = recorded(tmp_path, traced)
    called = ["aten::addmm [AutogradCPU]", "-> aten::addmm [CPU]"]
    assert ways(hops, "aten::addmm", "CPU") == [
        ["aten::linear [Tracer]", "-> aten::linear [AutogradCPU]", *called],
        ["aten::linear [AutogradCPU]", *called],
    ]
    assert values(at(hops, "aten::tanh", "Tracer"), "kernel") == ["torch::TraceType::tanh"]
    while_tracing, running = values(at(hops, "aten::linear"), "source")
    assert while_tracing == line_of(traced, 5)
    assert running == line_of(traced, 6)


# ---- torch.export --------------------------------------------------------------------------------


def exported() -> list[torch.Tensor]:
    from own_models import Branching

    torch.manual_seed(0)
    model = Branching()
    x = torch.linspace(0, 1, 6).view(2, 3)
    program = torch.export.export(model, (x,))
    module = program.module()
    with torch.no_grad():
        return [module(x), module(-x), model.linear(x).relu()]


def test_export(tmp_path: Path) -> None:
    """Exporting runs the model through Python's dispatcher; the exported program runs from generated code."""
    from own_models import Branching

    hops = recorded(tmp_path, exported)
    exporting = at(hops, "aten::linear", "PythonDispatcher")
    assert values(exporting, "kernel") == ["fallback: pythonDispatcherFallback"]
    assert values(exporting, "source")[0] == line_of(Branching.forward, 1)
    assert "AutogradMeta" in values(at(hops, "aten::detach"), "key")
    generated, own = values(at(hops, "aten::addmm", "CPU"), "source")
    assert "eval_with_key" in generated
    assert own == line_of(exported, 9)
    assert ways(hops, "aten::addmm", "CPU") == [
        ["aten::linear [CPU]", "aten::addmm [CPU]"],  # cond runs its branches below autograd
        ["aten::linear [AutogradCPU]", "aten::addmm [AutogradCPU]", "-> aten::addmm [CPU]"],
    ]
    branch = at(hops, "aten::sin", "CPU")
    assert len(branch) == 1, "the branch that -x takes"
    assert "eval_with_key" in values(branch, "source")[0]


# ---- compiled autograd ---------------------------------------------------------------------------


def compiled_autograd() -> list[torch.Tensor]:
    torch._dynamo.reset()
    weight = torch.linspace(-1, 1, 9).view(3, 3).requires_grad_()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        y = torch.mm(weight, weight).tanh()
        y.sum().backward()
    return [weight.grad]


def test_compiled_autograd(tmp_path: Path) -> None:
    """The backward is captured, compiled and run from Python: no node of autograd's engine runs it."""
    hops = recorded(tmp_path, compiled_autograd)
    assert "PythonDispatcher" in values(at(hops, "aten::tanh_backward"), "key"), "while the graph is made"
    ran = at(hops, "aten::tanh_backward", "CPU")
    assert len(ran) == 1
    assert way(hops, "aten::tanh_backward", "CPU") == [
        "aten::tanh_backward [AutogradCPU]",
        "-> aten::tanh_backward [CPU]",
    ]
    assert "eval_with_key" in ran["source"].cast(pl.String)[0]
    assert ran["backward_node"].null_count() == 1
    products = at(hops, "aten::mm", "CPU")
    assert len(products) == 3, "one forward, two backward"
    assert values(products, "source")[0] == line_of(compiled_autograd, 4)


def test_the_engine_runs_what_is_not_compiled(tmp_path: Path) -> None:
    """The same program without compiled autograd, to tell what it changes."""

    def plain() -> list[torch.Tensor]:
        weight = torch.linspace(-1, 1, 9).view(3, 3).requires_grad_()
        torch.mm(weight, weight).tanh().sum().backward()
        return [weight.grad]

    hops = recorded(tmp_path, plain)
    assert values(at(hops, "aten::tanh_backward"), "backward_node") == ["TanhBackward0"]
    assert "PythonDispatcher" not in values(hops, "key")
