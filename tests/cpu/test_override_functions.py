"""The function of an override: what it may hand over, raise and return, and where it is refused."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import doubled_mm
import pytest
from doubled_mm import doubled, operands, ran, registered_doubled, table
from lazily import torch

from tracer.overrides import HandOver, OverrideError, names, register, registered, unregister, use
from tracer.overrides.counts import BY_ITSELF
from tracer.overrides.meant import meant_by

_table_as_it_was = doubled_mm._table_as_it_was


def test_calls_are_handed_over_with_a_reason_that_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    a, b = operands()

    @register("aten::mm", "CPU", name="floats")
    def floats(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
        if self.dtype != torch.float32:
            raise HandOver("not float32")
        return torch.mm(self, mat2) + 1

    stock = torch.mm(a.double(), b.double())
    with use("floats"):
        for _ in range(3):
            assert torch.equal(torch.mm(a.double(), b.double()), stock)
        torch.mm(a, b)
    assert registered()["floats"].handed_over() == {"aten::mm": {"not float32": 3, BY_ITSELF: 1}}
    assert ran("floats") == 1
    assert capfd.readouterr().err == "tracer: override floats handed aten::mm over to stock: not float32\n"


@pytest.mark.parametrize("dtype", ["int8", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("number", [3, 2.5, True])
def test_a_number_in_the_place_of_a_tensor_is_handed_over(dtype: str, number: float) -> None:
    """The dispatcher gives remainder's second tensor to an override as a number."""
    numbers = (torch.arange(1, 9) * 0.7).to(getattr(torch, dtype))
    calls: list[Callable[[], torch.Tensor]] = [
        lambda: torch.remainder(numbers, number),
        lambda: torch.remainder(numbers[1], number),
        lambda: torch.remainder(number, numbers.add(1)),
    ]

    @register("aten::remainder.Tensor", "CPU", name="never")
    def never(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        raise HandOver("never")

    stock = [call() for call in calls]
    with use("never"):
        handed = [call() for call in calls]
    assert [(one.dtype, one.tolist()) for one in handed] == [(one.dtype, one.tolist()) for one in stock]


def test_many_reasons_are_counted_together(capfd: pytest.CaptureFixture[str]) -> None:
    @register("aten::neg", "CPU", name="wordy")
    def wordy(self: torch.Tensor) -> torch.Tensor:
        raise HandOver(f"the sum is {float(self.sum())}")

    with use("wordy"):
        for number in range(100):
            assert float(torch.neg(torch.tensor([float(number)]))) == -number
    counted = registered()["wordy"].handed_over()["aten::neg"]
    assert sum(counted.values()) == 100
    assert counted["another reason"] == 100 - (len(counted) - 1)
    assert len(capfd.readouterr().err.splitlines()) < 70


def test_stock_has_the_arguments_that_it_would_have_had() -> None:
    a, b = operands()

    @register("aten::addmm", "CPU", name="never")
    def never(
        self: torch.Tensor, mat1: torch.Tensor, mat2: torch.Tensor, *, beta: float = 1, alpha: float = 1
    ) -> torch.Tensor:
        raise HandOver("never")

    @register("aten::mm.out", "CPU", name="never")
    def never_out(self: torch.Tensor, mat2: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        raise HandOver("never")

    @register("aten::topk", "CPU", name="never")
    def never_topk(self, k, dim=-1, largest=True, sorted=True):  # type: ignore[no-untyped-def]
        raise HandOver("never")

    bias, into = torch.ones(5), torch.empty(3, 5)
    stock, plain = torch.addmm(bias, a, b, beta=0.5, alpha=2), torch.addmm(bias, a, b)
    top = torch.topk(a, 2, largest=False)
    with use("never"):
        assert torch.equal(torch.addmm(bias, a, b, beta=0.5, alpha=2), stock)
        assert torch.equal(torch.addmm(bias, a, b), plain)
        assert torch.mm(a, b, out=into) is into
        got = torch.topk(a, 2, largest=False)
    assert torch.equal(into, a @ b)
    assert torch.equal(got.values, top.values)
    assert torch.equal(got.indices, top.indices)
    assert registered()["never"].handed_over()["aten::topk"] == {"never": 1}


def test_a_function_without_defaults_is_handed_those_of_the_operator() -> None:
    a, b = operands()
    seen: list[tuple] = []

    @register("aten::addmm", "CPU", name="whole")
    def whole(self, mat1, mat2, *, beta, alpha):  # type: ignore[no-untyped-def]
        seen.append((beta, alpha))
        return torch.addmm(self, mat1, mat2, beta=beta, alpha=alpha)

    @register("aten::topk", "CPU", name="whole")
    def topk(self, k, dim, largest, sorted):  # type: ignore[no-untyped-def]
        seen.append((k, dim, largest, sorted))
        return torch.topk(self, k, dim, largest, sorted)

    with use("whole"):
        torch.addmm(torch.ones(5), a, b)
        torch.addmm(torch.ones(5), a, b, alpha=3)
        torch.topk(a, 2)
        torch.topk(a, 2, largest=False)
    assert seen == [(1, 1), (1, 3), (2, -1, True, True), (2, -1, False, True)]


def test_what_it_raises_keeps_its_type_and_traceback_and_names_the_operator() -> None:
    a, b = operands()

    def broken(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
        return {}["no such thing"]  # type: ignore[no-any-return]

    register("aten::mm", "CPU", broken, name="broken")
    stock = torch.mm(a, b)
    leaf = a.clone().requires_grad_()
    with use("broken"):
        for left in (a, leaf):
            with pytest.raises(KeyError, match="no such thing") as caught:
                torch.mm(left, b)
            text = "".join(traceback.format_exception(caught.value))
            assert "in broken" in text
            if hasattr(caught.value, "__notes__"):
                assert text.endswith("raised by the override broken of aten::mm [CPU]\n")
    assert torch.equal(torch.mm(a, b), stock)
    assert ran("broken") == 0


def test_what_it_raises_in_backward_comes_out_of_backward() -> None:
    a, b = operands()
    calls = []

    def broken_later(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) > 1:
            raise ZeroDivisionError("in backward")
        return torch.mm(self, mat2)

    register("aten::mm", "CPU", broken_later, name="later")
    leaf = a.clone().requires_grad_()
    with use("later"):
        result = torch.mm(leaf, b).sum()
        with pytest.raises(ZeroDivisionError, match="in backward"):
            result.backward()
    result.backward()
    assert torch.equal(leaf.grad, torch.ones(3, 5) @ b.t())


@pytest.mark.parametrize(
    ("operator", "result", "text"),
    [
        ("aten::mm", lambda a: None, "returned NoneType, but the operator returns Tensor"),
        ("aten::mm", lambda a: (a, a), "returned tuple, but the operator returns Tensor"),
        ("aten::topk", lambda a: a, "returned Tensor, but the operator returns Tensor and Tensor"),
        ("aten::topk", lambda a: (a,), "returned tuple, but the operator returns Tensor and Tensor"),
    ],
)
def test_a_result_of_another_type_is_refused(operator: str, result: Callable, text: str) -> None:
    a, b = operands()
    register(operator, "CPU", lambda *arguments, **named: result(a), name="strange")
    instead = r'; to leave a call to stock: raise tracer.overrides.HandOver\("why"\)$'
    said = f"override strange of {operator} .CPU. {text}{instead}"
    with use("strange"), pytest.raises(OverrideError, match=said):
        torch.mm(a, b) if operator == "aten::mm" else torch.topk(a, 1)
    assert ran("strange", operator) == 0


@pytest.mark.parametrize(
    ("operator", "key", "text"),
    [
        ("aten::mmm", "CPU", "no operator aten::mmm; did you mean aten::mm"),
        ("mm", "CPU", "no operator mm; did you mean aten::mm, aten::mm.dtype"),
        ("aten::add", "CPU", "no operator aten::add; did you mean aten::add.Scalar"),
        ("aten::mm", "GPU", "'GPU' is not a dispatch key; give one such as 'CPU' or 'CUDA'"),
        ("aten::mm", None, "None is not a dispatch key"),
        ("aten::mm", "AutogradCPU", "\\(below autograd\\), not AutogradCPU"),
        ("aten::mm", "Meta", "\\(below autograd\\), not Meta"),
        ("aten::mm", "FuncTorchBatched", "\\(below autograd\\), not FuncTorchBatched"),
        ("aten::mm", "CompositeImplicitAutograd", "\\(below autograd\\), not CompositeImplicitAutograd"),
        ("aten::mm", "AutocastCPU", "\\(below autograd\\), not AutocastCPU"),
        (
            "aten::gru.input",
            "CPU",
            "aten::gru.input is composite: .* backward would fail or be silently wrong",
        ),
        ("aten::matmul", "CPU", "aten::matmul is composite"),
        ("aten::_cudnn_rnn", "CPU", "aten::_cudnn_rnn has no kernel at CPU in this torch"),
    ],
)
def test_where_no_override_can_stand(operator: object, key: object, text: str) -> None:
    with pytest.raises(OverrideError, match=text):
        register(operator, key, lambda *arguments, **named: None, name="x")
    assert "x" not in registered()


def test_a_function_of_torch_is_not_an_operator() -> None:
    with pytest.raises(OverrideError, match="is not an operator; give its name, such as 'aten::mm'"):
        register(torch.mm, "CPU", lambda *arguments, **named: None, name="x")
    assert "x" not in registered()


def test_a_composite_operator_with_an_autograd_kernel_of_its_own_may_be_overridden() -> None:
    a, _ = operands()

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(context, x):  # type: ignore[no-untyped-def]
            with torch._C._AutoDispatchBelowAutograd():
                return torch.ops.tracer_override_composite.f(x)

        @staticmethod
        def backward(context, grad):  # type: ignore[no-untyped-def]
            return grad * 2

    library = torch.library.Library("tracer_override_composite", "DEF")
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: x * 2, "CompositeImplicitAutograd")
    with pytest.raises(OverrideError, match="tracer_override_composite::f is composite"):
        register("tracer_override_composite::f", "CPU", lambda x: x + x, name="f")
    library.impl("f", Double.apply, "Autograd")
    register("tracer_override_composite::f", "CPU", lambda x: x + x, name="f")
    leaf = a.clone().requires_grad_()
    with use("f"):
        torch.ops.tracer_override_composite.f(leaf).sum().backward()
    assert torch.equal(leaf.grad, torch.full((3, 4), 2.0))
    assert ran("f", "tracer_override_composite::f") == 1
    library._destroy()


def test_an_overload_and_a_key_may_be_given_as_torch_has_them() -> None:
    register(torch.ops.aten.mm.default, torch._C.DispatchKey.CPU, doubled)
    register("aten::mm.default", "CPU", doubled, name="other")
    assert registered()["doubled"].operators == registered()["other"].operators == [("aten::mm", "CPU")]


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (
            lambda self: self,
            r"too many positional arguments; write it as def addmm\(self, mat1, mat2, \*, beta=1",
        ),
        (lambda self, mat1, mat2: self, "got an unexpected keyword argument 'beta'"),
        (lambda self, mat1, mat2, extra, *, beta=1, alpha=1: self, "missing a required argument: 'extra'"),
        (lambda self, mat2, mat1, *, beta=1, alpha=1: self, "has mat2, but the operator has mat1"),
        (7, "7 is not callable; give a function"),
    ],
)
def test_a_function_that_cannot_take_the_arguments_is_refused(function: object, text: str) -> None:
    with pytest.raises(OverrideError, match=text):
        register("aten::addmm", "CPU", function, name="x")
    assert "x" not in registered()


def test_an_operator_that_takes_other_arguments_is_refused() -> None:
    text = r"aten::mm\(.* does not match the operator; give one that takes and returns"
    with pytest.raises(OverrideError, match=text):
        register("aten::addmm", "CPU", torch.ops.aten.mm, name="x")
    assert "x" not in registered()


def test_names_that_are_refused() -> None:
    for name, text in (
        ("mm", "mm is built in; give yours another name"),
        ("force", "force is a mode, not a name"),
        ("a:b", "'a:b' is not an override name"),
    ):
        with pytest.raises(OverrideError, match=text):
            register("aten::mm", "CPU", doubled, name=name)
    with pytest.raises(OverrideError, match="'<lambda>' is not an override name"):
        register("aten::mm", "CPU", lambda self, mat2: self)
    with pytest.raises(OverrideError, match=r"unknown override nope; choose mm, gru, cat"):
        use("nope")
    with pytest.raises(OverrideError, match="no override given; give one"):
        use()


def test_names_of_modules_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands()
    (tmp_path / "kernels_of_test.py").write_text(
        "import torch, tracer\n"
        "@tracer.overrides.register('aten::mm', 'CPU')\n"
        "def same(self, mat2): return torch.mm(self, mat2) * 2\n"
        "@tracer.overrides.register('aten::mm', 'CPU', name='first')\n"
        "@tracer.overrides.register('aten::mm', 'CPU', name='second')\n"
        "def twice(self, mat2): return self\n"
        "tracer.overrides.register('aten::mm', 'CPU', lambda self, mat2: mat2, name='by-name')\n"
        "def loose(self, mat2): return self\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "kernels_of_test.py"
    stock = torch.mm(a, b)
    with use("kernels_of_test:same"):
        assert torch.equal(torch.mm(a, b), stock * 2)
    with use("kernels_of_test:by-name:force"):
        assert torch.equal(torch.mm(a, b), b)
    for name, text in (
        ("kernels_of_test:twice", "is registered as second and first; give one of these names"),
        (
            "kernels_of_test:loose",
            'write above it: @tracer.overrides.register."NAMESPACE::OPERATOR", "CPU", name="loose".',
        ),
        ("kernels_of_test:mm", "module kernels_of_test has no function mm"),  # not the built-in one
        ("kernels_of_test:gone", "module kernels_of_test has no function gone and registers no override of"),
        ("nothing_of_the_kind:gone", "no module nothing_of_the_kind here; check its name"),
        (f"{tmp_path}/gone.py:gone", "no file .*gone.py with an override; check its name"),
    ):
        with pytest.raises(OverrideError, match=text):
            use(name)
    unregister("same")
    with use(f"{path}:same"), use(f"{path}:same"):  # the file is imported once
        assert torch.equal(torch.mm(a, b), stock * 2)


def test_one_of_several_names_that_cannot_be_used_leaves_none_on() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU: the built-in override can be used")
    before = table()
    registered_doubled()
    both = use("doubled", "mm:force")
    with pytest.raises(OverrideError, match="need a GPU"):
        both.__enter__()
    assert table() == before
    assert not registered()["doubled"].is_on


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        ("my_tanh", "aten::tanh"),
        ("triton_bmm_2", "aten::bmm"),
        ("fast_add", "aten::add.Tensor"),
        ("group_norm_bf16", "aten::native_group_norm"),
        ("log_softmax", "aten::_log_softmax"),
        ("mine", ""),
        ("__", ""),
    ],
)
def test_the_operator_that_a_function_is_meant_for(function: str, operator: str) -> None:
    assert meant_by(function) == operator


def test_a_function_without_a_decorator_is_told_its_operator(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def slow_erf(self): return self\ndef other(self): return self\n")
    said = 'does not say which operator it is for; write above it: @tracer.overrides.register("'
    with pytest.raises(OverrideError) as raised:
        names.find(f"{tmp_path / 'own.py'}:slow_erf")
    assert str(raised.value).endswith(f'{said}aten::erf", "CPU", name="slow_erf")')
    with pytest.raises(OverrideError, match=r'register\("NAMESPACE::OPERATOR", "CPU", name="other"'):
        names.find(f"{tmp_path / 'own.py'}:other")
