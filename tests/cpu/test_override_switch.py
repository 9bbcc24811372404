"""Overrides on the CPU: registering, switching on and off, handing over, and what stays stock."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tracer import overrides
from tracer.overrides import HandOver, OverrideError, register, registered, unregister, use
from tracer.overrides.counts import BY_ITSELF

A = torch.linspace(-1, 1, 12).view(3, 4)
B = torch.linspace(2, 3, 20).view(4, 5)


@pytest.fixture(autouse=True)
def _table_as_it_was() -> Iterator[None]:
    """Each test leaves the dispatcher and the registry as it found them."""
    watched = ("aten::mm", "aten::addmm", "aten::mm.out", "aten::neg", "aten::topk")
    before = {name: table(name) for name in watched}
    yield
    for name in set(registered()) - {"mm", "gru", "cat"}:
        unregister(name)
    assert {name: table(name) for name in watched} == before
    torch._C._dispatch_check_all_invariants()


def table(operator: str = "aten::mm") -> tuple[str, str]:
    """What each key runs, and everything that is registered."""
    return torch._C._dispatch_dump_table(operator), torch._C._dispatch_dump(operator)


def doubled(self: Tensor, mat2: Tensor) -> Tensor:
    """Twice the product: to be told from stock."""
    return torch.mm(self, mat2) * 2  # inside the override aten::mm is stock's


def registered_doubled(name: str = "doubled") -> Callable:
    return register("aten::mm", "CPU", doubled, name=name)


def ran(name: str, operator: str = "aten::mm") -> int:
    return registered()[name].ran()[operator]


# ---- on and off --------------------------------------------------------------------------------------


def test_it_runs_while_it_is_on_and_not_after() -> None:
    stock = torch.mm(A, B)
    assert registered_doubled() is doubled
    assert torch.equal(torch.mm(A, B), stock)
    with use("doubled"):
        assert torch.equal(torch.mm(A, B), stock * 2)
        assert torch.equal(A @ B, stock * 2)
        changed = table()[0]
        (line,) = (line for line in changed.splitlines() if line.startswith("CPU: "))
        assert line.startswith(f"CPU: registered at override doubled, {__file__}:")
    assert torch.equal(torch.mm(A, B), stock)
    assert (ran("doubled"), registered()["doubled"].handed_over()) == (2, {"aten::mm": {BY_ITSELF: 2}})
    assert registered()["doubled"].operators == [("aten::mm", "CPU")]


def test_no_other_entry_of_the_table_changes() -> None:
    before = dict(line.split(": ", 1) for line in table()[0].splitlines())
    registered_doubled()
    with use("doubled"):
        after = dict(line.split(": ", 1) for line in table()[0].splitlines())
    assert [key for key in after if after[key] != before[key]] == ["CPU"]


def test_blocks_nest_in_any_way() -> None:
    stock = torch.mm(A, B)
    registered_doubled()
    register("aten::mm", "CPU", lambda self, mat2: torch.mm(self, mat2) * 3, name="tripled")
    twice = use("doubled")

    def factor() -> float:
        return round(float((torch.mm(A, B) / stock)[0, 0]), 3)

    with twice:
        with use("tripled"), twice:
            assert factor() == 2
            with use("tripled:force", "doubled:auto"):
                assert factor() == 2
            with use("doubled", "tripled"):
                assert factor() == 3
            assert registered()["tripled"].is_on
        assert factor() == 2
        assert not registered()["tripled"].is_on
    first, second = use("doubled"), use("tripled")
    first.__enter__()
    second.__enter__()
    assert factor() == 3
    first.__exit__(None, None, None)  # not the last one that was entered
    assert factor() == 3
    second.__exit__(None, None, None)
    assert factor() == 1


def test_one_beneath_another_runs_again_under_a_dispatch_mode_too() -> None:
    # torch keeps a table of its own of Python kernels for calls under a TorchDispatchMode
    from torch.utils.flop_counter import FlopCounterMode

    stock = torch.mm(A, B)
    registered_doubled()
    register("aten::mm", "CPU", lambda self, mat2: torch.mm(self, mat2) * 3, name="tripled")
    with use("doubled"):
        with use("tripled"):
            pass
        with FlopCounterMode(display=False) as flops:
            assert torch.equal(torch.mm(A, B), stock * 2)
            at_cpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
            assert torch.equal(torch.ops.aten.mm.default.redispatch(at_cpu, A, B), stock * 2)
        assert flops.get_total_flops() >= 2 * 3 * 4 * 5


class TwoOperators:
    """Kernels that register themselves, as an extension's do; aten::mm three times stock's."""

    operators = (("aten::mm", "CPU"), ("aten::neg", "CPU"))

    def install(self) -> None:
        stock = torch.library.get_kernel("aten::mm", "CPU")

        def mm(keys, self, mat2):  # type: ignore[no-untyped-def]
            return stock.call_boxed(keys, self, mat2) * 3

        self._library = torch.library.Library("aten", "IMPL")
        self._library.impl("mm", mm, "CPU", with_keyset=True)
        self._library.impl("neg", lambda self: self.clone(), "CPU")

    def remove(self) -> None:
        self._library._destroy()

    def ran(self) -> dict[str, int]:
        return {}

    def handed_over(self) -> dict[str, dict[str, int]]:
        return {}


def test_an_override_over_a_part_of_another_hands_over_to_stock_and_not_to_that() -> None:
    @register("aten::mm", "CPU", name="never")
    def never(self: Tensor, mat2: Tensor) -> Tensor:
        raise HandOver("never")

    register("aten::mm", "CPU", TwoOperators(), name="two")
    stock = torch.mm(A, B)
    with use("two"):
        assert torch.equal(torch.mm(A, B), stock * 3)
        with use("never"):
            assert torch.equal(torch.mm(A, B), stock)
            assert torch.equal(torch.neg(A), A)
        assert torch.equal(torch.mm(A, B), stock * 3)
    assert torch.equal(torch.mm(A, B), stock)
    assert torch.equal(torch.neg(A), -A)


def test_an_exception_in_the_block_switches_it_off() -> None:
    before = table()
    registered_doubled()
    with pytest.raises(KeyError), use("doubled"):
        raise KeyError
    assert table() == before


def test_used_as_a_decorator() -> None:
    stock = torch.mm(A, B)
    registered_doubled()

    @use("doubled")
    def product() -> Tensor:
        return torch.mm(A, B)

    assert torch.equal(product(), stock * 2)
    assert torch.equal(product(), stock * 2)
    assert torch.equal(torch.mm(A, B), stock)


def test_several_operators_under_one_name() -> None:
    @register("aten::mm", "CPU", name="both")
    def mm(self: Tensor, mat2: Tensor) -> Tensor:
        return torch.mm(self, mat2) + 1

    @register("aten::neg", "CPU", name="both")
    def neg(self: Tensor) -> Tensor:
        return self.clone()

    assert sorted(registered()["both"].operators) == [("aten::mm", "CPU"), ("aten::neg", "CPU")]
    product = torch.mm(A, B)
    with use("both"):
        assert torch.equal(torch.mm(A, B), product + 1)
        assert torch.equal(torch.neg(A), A)
    assert registered()["both"].ran() == {"aten::mm": 1, "aten::neg": 1}
    registered()["both"].reset_counts()
    assert registered()["both"].ran() == {"aten::mm": 0, "aten::neg": 0}


def test_registering_anew_takes_the_place_of_the_old_function_once_it_is_off() -> None:
    registered_doubled()
    with use("doubled"), pytest.raises(OverrideError, match="doubled is enabled; disable it before"):
        registered_doubled()
    with use("doubled"), pytest.raises(OverrideError, match="doubled is enabled; disable it first"):
        unregister("doubled")
    register("aten::mm", "CPU", lambda self, mat2: torch.mm(self, mat2) * 7, name="doubled")
    stock = torch.mm(A, B)
    with use("doubled"):
        assert torch.equal(torch.mm(A, B), stock * 7)


def test_nothing_is_warned_of() -> None:
    registered_doubled()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with use("doubled"):
            torch.mm(A, B)
    assert said == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with use("doubled"):
            torch.mm(A, B)
    assert not torch._C._get_warnAlways()


def test_torch_warns_once_in_a_process_and_that_is_left_to_the_script(tmp_path: Path) -> None:
    """Builds with CUDA, from torch 2.13 on, use it up on import: they give none without tracer either."""
    registering = "tracer.overrides.register('aten::mm', 'CPU', lambda self, mat2: self, name='own')"
    switching = "with tracer.overrides.use('own'): pass"

    def said(before: str, inside: str) -> str:
        program = (
            "import torch, tracer, warnings\n"
            f"{before}\n"
            "with warnings.catch_warnings(record=True) as said:\n"
            "    warnings.simplefilter('always')\n"
            f"    {inside}\n"
            "    print(len(said))\n"
            "    torch.library.Library('aten', 'IMPL').impl('mm', lambda self, mat2: self, 'CPU')\n"
            "    print(['Overriding a previously registered kernel' in str(one.message) for one in said])\n"
        )
        command = [sys.executable, "-c", program]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout

    bare = said("", "pass")
    assert bare in ("0\n[True]\n", "0\n[]\n")
    assert said(registering, switching) == bare


def test_it_stands_over_a_kernel_that_the_script_registered() -> None:
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.impl("mm", lambda self, mat2: torch.full((1, 1), 5.0), "CPU")
    registered_doubled()
    try:
        with use("doubled"):
            assert float(torch.mm(A, B)) == 10
        assert float(torch.mm(A, B)) == 5
    finally:
        library._destroy()


def test_all_threads_run_it() -> None:
    stock = torch.mm(A, B)
    registered_doubled()
    results: list[bool] = []

    def work() -> None:
        results.extend(torch.equal(torch.mm(A, B), stock * 2) for _ in range(300))

    with use("doubled"):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [True] * 1200
    assert ran("doubled") == 1200


def test_a_forked_child_has_it_and_switches_it_off_alone() -> None:
    stock = torch.mm(A, B)
    registered_doubled()
    with use("doubled") as switched:
        torch.mm(A, B)
        child = os.fork()
        if child == 0:
            ok = torch.equal(torch.mm(A, B), stock * 2)
            switched.__exit__(None, None, None)
            ok = ok and torch.equal(torch.mm(A, B), stock)
            with use("doubled"):
                ok = ok and torch.equal(torch.mm(A, B), stock * 2)
            os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert torch.equal(torch.mm(A, B), stock * 2)


def test_forking_while_another_thread_switches() -> None:
    registered_doubled()
    stop = threading.Event()

    def switch() -> None:
        while not stop.is_set():
            with use("doubled"):
                pass

    thread = threading.Thread(target=switch)
    thread.start()
    statuses = []
    for _ in range(20):
        child = os.fork()
        if child == 0:
            with use("doubled"):
                os._exit(0)
        statuses.append(os.waitpid(child, 0)[1])
    stop.set()
    thread.join()
    assert statuses == [0] * 20


# ---- handing over ------------------------------------------------------------------------------------


def test_calls_are_handed_over_with_a_reason_that_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    @register("aten::mm", "CPU", name="floats")
    def floats(self: Tensor, mat2: Tensor) -> Tensor:
        if self.dtype != torch.float32:
            raise HandOver("not float32")
        return torch.mm(self, mat2) + 1

    stock = torch.mm(A.double(), B.double())
    with use("floats"):
        for _ in range(3):
            assert torch.equal(torch.mm(A.double(), B.double()), stock)
        torch.mm(A, B)
    assert registered()["floats"].handed_over() == {"aten::mm": {"not float32": 3, BY_ITSELF: 1}}
    assert ran("floats") == 1
    assert capfd.readouterr().err == "tracer: override floats handed aten::mm over to stock: not float32\n"


def test_many_reasons_are_counted_together(capfd: pytest.CaptureFixture[str]) -> None:
    @register("aten::neg", "CPU", name="wordy")
    def wordy(self: Tensor) -> Tensor:
        raise HandOver(f"the sum is {float(self.sum())}")

    with use("wordy"):
        for number in range(100):
            assert float(torch.neg(torch.tensor([float(number)]))) == -number
    counted = registered()["wordy"].handed_over()["aten::neg"]
    assert sum(counted.values()) == 100
    assert counted["another reason"] == 100 - (len(counted) - 1)
    assert len(capfd.readouterr().err.splitlines()) < 70


def test_stock_has_the_arguments_that_it_would_have_had() -> None:
    @register("aten::addmm", "CPU", name="never")
    def never(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        raise HandOver("never")

    @register("aten::mm.out", "CPU", name="never")
    def never_out(self: Tensor, mat2: Tensor, *, out: Tensor) -> Tensor:
        raise HandOver("never")

    @register("aten::topk", "CPU", name="never")
    def never_topk(self, k, dim=-1, largest=True, sorted=True):  # type: ignore[no-untyped-def]
        raise HandOver("never")

    bias, into = torch.ones(5), torch.empty(3, 5)
    stock, plain = torch.addmm(bias, A, B, beta=0.5, alpha=2), torch.addmm(bias, A, B)
    top = torch.topk(A, 2, largest=False)
    with use("never"):
        assert torch.equal(torch.addmm(bias, A, B, beta=0.5, alpha=2), stock)
        assert torch.equal(torch.addmm(bias, A, B), plain)
        assert torch.mm(A, B, out=into) is into
        got = torch.topk(A, 2, largest=False)
    assert torch.equal(into, A @ B)
    assert torch.equal(got.values, top.values)
    assert torch.equal(got.indices, top.indices)
    assert registered()["never"].handed_over()["aten::topk"] == {"never": 1}


def test_a_function_without_defaults_is_handed_those_of_the_operator() -> None:
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
        torch.addmm(torch.ones(5), A, B)
        torch.addmm(torch.ones(5), A, B, alpha=3)
        torch.topk(A, 2)
        torch.topk(A, 2, largest=False)
    assert seen == [(1, 1), (1, 3), (2, -1, True, True), (2, -1, False, True)]


# ---- what goes wrong in the function -----------------------------------------------------------------


def test_what_it_raises_keeps_its_type_and_traceback_and_names_the_operator() -> None:
    def broken(self: Tensor, mat2: Tensor) -> Tensor:
        return {}["no such thing"]  # type: ignore[no-any-return]

    register("aten::mm", "CPU", broken, name="broken")
    stock = torch.mm(A, B)
    leaf = A.clone().requires_grad_()
    with use("broken"):
        for left in (A, leaf):
            with pytest.raises(KeyError, match="no such thing") as caught:
                torch.mm(left, B)
            text = "".join(traceback.format_exception(caught.value))
            assert "in broken" in text
            if hasattr(caught.value, "__notes__"):
                assert text.endswith("raised by the override broken of aten::mm [CPU]\n")
    assert torch.equal(torch.mm(A, B), stock)
    assert ran("broken") == 0


def test_what_it_raises_in_backward_comes_out_of_backward() -> None:
    calls = []

    def broken_later(self: Tensor, mat2: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) > 1:
            raise ZeroDivisionError("in backward")
        return torch.mm(self, mat2)

    register("aten::mm", "CPU", broken_later, name="later")
    leaf = A.clone().requires_grad_()
    with use("later"):
        result = torch.mm(leaf, B).sum()
        with pytest.raises(ZeroDivisionError, match="in backward"):
            result.backward()
    result.backward()
    assert torch.equal(leaf.grad, torch.ones(3, 5) @ B.t())


@pytest.mark.parametrize(
    ("operator", "result", "text"),
    [
        ("aten::mm", None, "returned NoneType, but the operator returns Tensor"),
        ("aten::mm", (A, A), "returned tuple, but the operator returns Tensor"),
        ("aten::topk", A, "returned Tensor, but the operator returns Tensor and Tensor"),
        ("aten::topk", (A,), "returned tuple, but the operator returns Tensor and Tensor"),
    ],
)
def test_a_result_of_another_type_is_refused(operator: str, result: object, text: str) -> None:
    register(operator, "CPU", lambda *arguments, **named: result, name="strange")
    with use("strange"), pytest.raises(OverrideError, match=f"override strange of {operator} .CPU. {text}"):
        torch.mm(A, B) if operator == "aten::mm" else torch.topk(A, 1)
    assert ran("strange", operator) == 0


# ---- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "key", "text"),
    [
        ("aten::mmm", "CPU", "no operator aten::mmm; did you mean aten::mm"),
        ("mm", "CPU", "no operator mm; did you mean aten::mm, aten::mm.dtype"),
        ("aten::add", "CPU", "no operator aten::add; did you mean aten::add.Scalar"),
        (torch.mm, "CPU", "is not an operator; give its name, such as 'aten::mm'"),
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


def test_a_composite_operator_with_an_autograd_kernel_of_its_own_may_be_overridden() -> None:
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
    leaf = A.clone().requires_grad_()
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
        (torch.ops.aten.mm, r"aten::mm\(.* does not match the operator; give one that takes and returns"),
        (7, "7 is not callable; give a function"),
    ],
)
def test_a_function_that_cannot_take_the_arguments_is_refused(function: object, text: str) -> None:
    with pytest.raises(OverrideError, match=text):
        register("aten::addmm", "CPU", function, name="x")
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
    stock = torch.mm(A, B)
    with use("kernels_of_test:same"):
        assert torch.equal(torch.mm(A, B), stock * 2)
    with use("kernels_of_test:by-name:force"):
        assert torch.equal(torch.mm(A, B), B)
    for name, text in (
        ("kernels_of_test:twice", "is registered as second and first; give one of these names"),
        (
            "kernels_of_test:loose",
            'write above it: @tracer.overrides.register."aten::mm", "CPU", name="loose".',
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
        assert torch.equal(torch.mm(A, B), stock * 2)


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


# ---- what stays stock --------------------------------------------------------------------------------


def test_autograd_goes_through_it() -> None:
    register("aten::mm", "CPU", lambda self, mat2: torch.mm(self, mat2), name="plain")
    left = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    right = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    with use("plain"):
        assert type(torch.mm(left, right).grad_fn).__name__ == "MmBackward0"
        before = ran("plain")
        assert torch.autograd.gradcheck(torch.mm, (left, right), check_forward_ad=True)
        assert torch.autograd.gradgradcheck(torch.mm, (left, right))
    assert ran("plain") - before > 50


def test_off_between_forward_and_backward() -> None:
    registered_doubled()
    leaf = A.clone().requires_grad_()
    with use("doubled"):
        result = torch.mm(leaf, B).sum()
    result.backward()
    assert torch.equal(leaf.grad, torch.ones(3, 5) @ B.t())
    assert ran("doubled") == 1


def test_modes_and_transforms_of_torch() -> None:
    stock = torch.mm(A, B)
    registered_doubled()
    with use("doubled"):
        with torch.inference_mode():
            assert torch.equal(torch.mm(A, B), stock * 2)
            assert torch.mm(A, B).is_inference()
        with torch.no_grad():
            assert torch.equal(torch.mm(A.requires_grad_(False), B), stock * 2)
        batch = torch.stack([A, A + 1])
        mapped = torch.func.vmap(lambda a: torch.mm(a, B))(batch)
        assert mapped.shape == (2, 3, 5)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            half = torch.mm(A, B)
        assert half.dtype == torch.bfloat16
        assert torch.allclose(half.float(), stock * 2, rtol=0.02, atol=0.02)
        tangent = torch.func.jvp(lambda a: torch.mm(a, B), (A,), (torch.ones_like(A),))[1]
        assert torch.equal(tangent, torch.ones_like(A) @ B)


def test_tensors_without_data_never_come_to_it() -> None:
    registered_doubled()
    with use("doubled"):
        assert torch.mm(A.to("meta"), B.to("meta")).shape == (3, 5)
        with FakeTensorMode() as mode:
            fake = torch.mm(mode.from_tensor(A), mode.from_tensor(B))
        assert tuple(fake.shape) == (3, 5)
    assert ran("doubled") == 0


def test_torch_compile_traces_past_it() -> None:
    stock = torch.mm(A, B).relu()
    registered_doubled()
    with use("doubled"):
        compiled = torch.compile(lambda a, b: torch.mm(a, b).relu(), backend="aot_eager", fullgraph=True)
        assert torch.equal(compiled(A, B), (stock * 2).relu())
    assert torch.equal(compiled(A, B), stock)
    assert ran("doubled") == 1


def test_the_package_is_found_from_tracer() -> None:
    import tracer

    assert tracer.overrides is overrides
    assert "overrides" in dir(tracer)
