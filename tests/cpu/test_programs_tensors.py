"""Programs on tensors that take another way: nested, quantised, conjugated, inside modes and transforms."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from lazily import nn, torch
from programs import at, recorded, values, way, ways

MODE = "[PythonTLSSnapshot]"  # the key that remembers which modes are on


# ---- nested tensors ------------------------------------------------------------------------------


def ragged(layout: torch.layout, requires_grad: bool = False) -> torch.Tensor:
    rows = [torch.ones(2, 3), torch.linspace(0, 1, 12).view(4, 3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a prototype
        return torch.nested.nested_tensor(rows, layout=layout, requires_grad=requires_grad)


def jagged() -> list[torch.Tensor]:
    weight = torch.linspace(-1, 1, 6).view(3, 2).requires_grad_()
    y = torch.matmul(ragged(torch.jagged, requires_grad=True), weight).relu()
    y.values().sum().backward()
    return [y.values().detach(), y.offsets(), weight.grad]


def test_jagged(tmp_path: Path) -> None:
    """A jagged tensor is a Python subclass: its op becomes one op on the values of all rows."""
    hops = recorded(tmp_path, jagged)
    entered = [f"aten::matmul {MODE}", "-> aten::matmul [AutogradNestedTensor]", "-> aten::matmul [Python]"]
    forward, *backward = ways(hops, "aten::mm", "CPU")
    assert forward == [*entered, "aten::matmul [CPU]", "aten::mm [CPU]"]
    assert backward, "matmul_backward of rows"
    assert all(taken[0] == f"aten::matmul_backward {MODE}" for taken in backward)
    assert all("aten::matmul [Python]" in taken for taken in backward), "a subclass in a subclass"
    assert values(at(hops, "aten::matmul", "AutogradNestedTensor"), "kernel") == [
        "torch::autograd::VariableType::matmul"
    ]


def nested_strided() -> list[torch.Tensor]:
    y = torch.nn.functional.linear(ragged(torch.strided), torch.linspace(-1, 1, 6).view(2, 3))
    return [torch.nested.to_padded_tensor(y, 0.5)]


def test_nested_strided(tmp_path: Path) -> None:
    """The older nested tensor has kernels in C++ at keys of its own."""
    hops = recorded(tmp_path, nested_strided)
    assert way(hops, "aten::mm", "CPU") == [
        "aten::linear [AutogradNestedTensor]",
        "-> aten::linear [NestedTensorCPU]",
        "aten::linear [CPU]",
        "aten::matmul [CPU]",
        "aten::mm [CPU]",
    ]
    assert "NestedTensorCPU" in values(at(hops, "aten::linear", "NestedTensorCPU"), "kernel")[0]
    assert way(hops, "aten::to_padded_tensor", "NestedTensorCPU") == [
        "aten::nested_to_padded_tensor [AutogradNestedTensor]",
        "aten::to_padded_tensor [AutogradNestedTensor]",
        "-> aten::to_padded_tensor [NestedTensorCPU]",
    ]


# ---- quantised tensors ---------------------------------------------------------------------------


def quantised() -> list[torch.Tensor]:
    weight = torch.quantize_per_tensor(torch.linspace(-1, 1, 6).view(2, 3), 0.1, 0, torch.qint8)
    x = torch.quantize_per_tensor(torch.linspace(-1, 1, 12).view(4, 3), 0.1, 3, torch.quint8)
    packed = torch.ops.quantized.linear_prepack(weight, torch.zeros(2))
    y = torch.ops.quantized.linear(x, packed, 0.1, 2)
    return [y, y.dequantize()]


@pytest.mark.skipif("torch.backends.quantized.engine == 'none'", reason="this torch has no quantised kernels")
def test_quantised(tmp_path: Path) -> None:
    """Its operators are of torch's quantized library, behind a boxed fallback, and take packed weights."""
    hops = recorded(tmp_path, quantised)
    assert way(hops, "quantized::linear", "QuantizedCPU") == [
        "quantized::linear [AutogradCPU]",
        "-> quantized::linear [QuantizedCPU]",
    ]
    assert values(at(hops, "quantized::linear"), "kernel") == [
        "fallback: autograd_fallback",
        "at::native::QLinearInt8<false>::run",
    ]
    assert way(hops, "aten::_empty_affine_quantized", "QuantizedCPU") == [
        "quantized::linear [AutogradCPU]",
        "-> quantized::linear [QuantizedCPU]",
        "aten::_empty_affine_quantized [BackendSelect]",
        "-> aten::_empty_affine_quantized [QuantizedCPU]",
    ]
    assert ways(hops, "aten::quantize_per_tensor", "CPU"), "from a plain tensor"
    assert ways(hops, "aten::dequantize.self", "QuantizedCPU"), "back to a plain tensor"


# ---- views that are conjugated or negated later --------------------------------------------------


def conjugated() -> list[torch.Tensor]:
    a = torch.view_as_complex(torch.linspace(-1, 1, 16).view(2, 4, 2))
    b = torch.view_as_complex(torch.linspace(2, 3, 16).view(4, 2, 2))
    return [torch.mm(a, b.conj()), b.conj().imag.exp(), torch.add(a.conj(), 1), b.conj()]


def test_conjugated(tmp_path: Path) -> None:
    """`conj` makes a view; the op that meets it resolves it, at a key of its own or in its kernel."""
    hops = recorded(tmp_path, conjugated)
    assert way(hops, "aten::add.Tensor", "CPU") == [
        "aten::add.Tensor [AutogradCPU]",
        "-> aten::add.Tensor [Conjugate]",
        "-> aten::add.Tensor [CPU]",
    ]
    assert values(at(hops, "aten::add.Tensor", "Conjugate"), "kernel") == [
        "fallback: at::native::conjugateFallback"
    ]
    assert way(hops, "aten::exp", "CPU") == [
        "aten::exp [AutogradCPU]",
        "-> aten::exp [Negative]",
        "-> aten::exp [CPU]",
    ]
    resolved = [taken[:-1] for taken in ways(hops, "aten::clone", "CPU")]
    assert ["aten::exp [AutogradCPU]", "-> aten::exp [Negative]"] in resolved
    assert ["aten::add.Tensor [AutogradCPU]", "-> aten::add.Tensor [Conjugate]"] in resolved
    # mm knows conjugated operands itself, and has no hop at Conjugate
    assert ["aten::mm [AutogradCPU]", "-> aten::mm [CPU]", "aten::resolve_conj [CPU]"] in resolved
    assert values(at(hops, "aten::mm"), "key") == ["AutogradCPU", "CPU"]
    assert len(at(hops, "aten::_conj", "CPU")) == 5, "four of the program, one in imag"


# ---- dispatch modes ------------------------------------------------------------------------------


def in_two_modes() -> list[torch.Tensor]:
    class Doubling(torch.utils._python_dispatch.TorchDispatchMode):
        """Makes every matrix product twice as large."""

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            return torch.mul(out, 2.0) if func is torch.ops.aten.mm.default else out

    weight = torch.linspace(-1, 1, 9).view(3, 3).requires_grad_()
    with Doubling(), Doubling():
        y = torch.matmul(weight, weight)
        y.sum().backward()
    return [y.detach(), weight.grad]


def test_dispatch_modes(tmp_path: Path) -> None:
    """What a mode calls stands inside the hop at Python, once for each mode that is on."""
    hops = recorded(tmp_path, in_two_modes)
    entered = [
        f"aten::matmul {MODE}",
        "-> aten::matmul [AutogradCPU]",
        f"aten::mm {MODE}",
        "-> aten::mm [AutogradCPU]",
        "-> aten::mm [Python]",
    ]
    forward, *backward = ways(hops, "aten::mm", "CPU")
    assert forward[:5] == entered
    assert forward[5:] == ["aten::mm [Python]", "aten::mm [CPU]"], "the outer mode, then no mode"
    assert [taken[:3] for taken in backward] == [entered[2:]] * 2
    products = [taken for taken in ways(hops, "aten::mul.Tensor", "CPU") if taken[0] == entered[0]]
    assert products == [
        [*forward[:-1], "aten::mul.Tensor [CPU]"],  # of the outer mode, which sees what the inner one calls
        [*entered, "aten::mul.Tensor [Python]", "aten::mul.Tensor [CPU]"],  # of the inner mode
    ]


# ---- torch.func ----------------------------------------------------------------------------------


def per_sample_gradients() -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, parameters, (x,)).tanh().sum()

    x = torch.linspace(0, 1, 12).view(4, 3)
    grads = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(dict(model.named_parameters()), x)
    return [grads["weight"], grads["bias"]]


LEVEL = ["[FuncTorchDynamicLayerFrontMode]", "[AutogradCPU]", "[FuncTorchDynamicLayerBackMode]"]
BATCHED = ["[FuncTorchDynamicLayerFrontMode]", "[FuncTorchBatched]", "[FuncTorchDynamicLayerBackMode]"]


@pytest.mark.parametrize("op", ["aten::tanh", "aten::tanh_backward"])
def test_per_sample_gradients(tmp_path: Path, op: str) -> None:
    """An op passes the transforms from the inside out: grad, vmap, then the tensor itself."""
    hops = recorded(tmp_path, per_sample_gradients)
    keys = [step.rpartition(" ")[2] for step in way(hops, op, "CPU")]
    assert keys == [*LEVEL, *BATCHED, "[AutogradCPU]", "[CPU]"]
    batched = at(hops, op, "FuncTorchBatched")
    assert len(batched) == 1, "one op for all samples"


def hessian() -> list[torch.Tensor]:
    w = torch.linspace(-1, 1, 4)
    return [torch.func.hessian(lambda x: (x.sin() * w).sum())(torch.linspace(0, 1, 4))]


def test_hessian(tmp_path: Path) -> None:
    """Forward over reverse: the derivative of `cos`, made while `cos` runs, stands inside of it."""
    hops = recorded(tmp_path, hessian)
    nested = [taken for taken in ways(hops, "aten::sin", "CPU") if taken[0].startswith("aten::cos ")]
    assert nested, ways(hops, "aten::sin", "CPU")
    ops = [step.removeprefix("-> ").partition(" ")[0] for step in nested[0]]
    assert ops == sorted(ops), "cos, and in it sin"
    assert nested[0].count("aten::sin [AutogradCPU]") == 2, "at the transform's level and at the tensor's"
    front = at(hops, "aten::sin", "FuncTorchDynamicLayerFrontMode")
    assert values(front, "kernel") == ["fallback: at::functorch::dynamicLayerFrontFallback"]
    assert values(front, "rule") == ["backend fallback"]
