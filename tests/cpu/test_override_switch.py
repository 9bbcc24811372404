"""Overrides on the CPU: registering, switching on and off, handing over, and what stays stock."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import doubled_mm
import pytest
from doubled_mm import doubled, operands, ran, registered_doubled, table
from lazily import torch

from tracer import overrides
from tracer.overrides import HandOver, OverrideError, register, registered, unregister, use
from tracer.overrides.counts import BY_ITSELF

_table_as_it_was = doubled_mm._table_as_it_was


# ---- on and off --------------------------------------------------------------------------------------


def test_it_runs_while_it_is_on_and_not_after() -> None:
    a, b = operands()
    stock = torch.mm(a, b)
    assert registered_doubled() is doubled
    assert torch.equal(torch.mm(a, b), stock)
    with use("doubled"):
        assert torch.equal(torch.mm(a, b), stock * 2)
        assert torch.equal(a @ b, stock * 2)
        changed = table()[0]
        (line,) = (line for line in changed.splitlines() if line.startswith("CPU: "))
        assert line.startswith(f"CPU: registered at override doubled, {doubled_mm.__file__}:")
    assert torch.equal(torch.mm(a, b), stock)
    assert (ran("doubled"), registered()["doubled"].handed_over()) == (2, {"aten::mm": {BY_ITSELF: 2}})
    assert registered()["doubled"].operators == [("aten::mm", "CPU")]


def test_no_other_entry_of_the_table_changes() -> None:
    before = dict(line.split(": ", 1) for line in table()[0].splitlines())
    registered_doubled()
    with use("doubled"):
        after = dict(line.split(": ", 1) for line in table()[0].splitlines())
    assert [key for key in after if after[key] != before[key]] == ["CPU"]


def test_blocks_nest_in_any_way() -> None:
    a, b = operands()
    stock = torch.mm(a, b)
    registered_doubled()
    register("aten::mm", "CPU", lambda self, mat2: torch.mm(self, mat2) * 3, name="tripled")
    twice = use("doubled")

    def factor() -> float:
        return round(float((torch.mm(a, b) / stock)[0, 0]), 3)

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
    a, b = operands()
    from torch.utils.flop_counter import FlopCounterMode

    stock = torch.mm(a, b)
    registered_doubled()
    register("aten::mm", "CPU", lambda self, mat2: torch.mm(self, mat2) * 3, name="tripled")
    with use("doubled"):
        with use("tripled"):
            pass
        with FlopCounterMode(display=False) as flops:
            assert torch.equal(torch.mm(a, b), stock * 2)
            at_cpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
            assert torch.equal(torch.ops.aten.mm.default.redispatch(at_cpu, a, b), stock * 2)
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
    a, b = operands()

    @register("aten::mm", "CPU", name="never")
    def never(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
        raise HandOver("never")

    register("aten::mm", "CPU", TwoOperators(), name="two")
    stock = torch.mm(a, b)
    with use("two"):
        assert torch.equal(torch.mm(a, b), stock * 3)
        with use("never"):
            assert torch.equal(torch.mm(a, b), stock)
            assert torch.equal(torch.neg(a), a)
        assert torch.equal(torch.mm(a, b), stock * 3)
    assert torch.equal(torch.mm(a, b), stock)
    assert torch.equal(torch.neg(a), -a)


def test_an_exception_in_the_block_switches_it_off() -> None:
    before = table()
    registered_doubled()
    with pytest.raises(KeyError), use("doubled"):
        raise KeyError
    assert table() == before


def test_one_that_cannot_be_installed_leaves_the_one_beneath_on() -> None:
    class Failing:
        operators = (("aten::mm", "CPU"),)

        def install(self) -> None:
            raise RuntimeError("no such card")

        def remove(self) -> None:
            pass

        def ran(self) -> dict:
            return {}

        def handed_over(self) -> dict:
            return {}

    a, b = operands()
    stock = torch.mm(a, b)
    registered_doubled()
    register("aten::mm", "CPU", Failing(), name="failing")
    with use("doubled"):
        with pytest.raises(
            OverrideError, match=r"cannot override aten::mm \[CPU\]: RuntimeError: no such card"
        ):
            use("failing").__enter__()
        assert torch.equal(torch.mm(a, b), stock * 2)
        assert [name for name, override in registered().items() if override.is_on] == ["doubled"]
    assert torch.equal(torch.mm(a, b), stock)


def test_used_as_a_decorator() -> None:
    a, b = operands()
    stock = torch.mm(a, b)
    registered_doubled()

    @use("doubled")
    def product() -> torch.Tensor:
        return torch.mm(a, b)

    assert torch.equal(product(), stock * 2)
    assert torch.equal(product(), stock * 2)
    assert torch.equal(torch.mm(a, b), stock)


def test_several_operators_under_one_name() -> None:
    a, b = operands()

    @register("aten::mm", "CPU", name="both")
    def mm(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
        return torch.mm(self, mat2) + 1

    @register("aten::neg", "CPU", name="both")
    def neg(self: torch.Tensor) -> torch.Tensor:
        return self.clone()

    assert sorted(registered()["both"].operators) == [("aten::mm", "CPU"), ("aten::neg", "CPU")]
    product = torch.mm(a, b)
    with use("both"):
        assert torch.equal(torch.mm(a, b), product + 1)
        assert torch.equal(torch.neg(a), a)
    assert registered()["both"].ran() == {"aten::mm": 1, "aten::neg": 1}
    registered()["both"].reset_counts()
    assert registered()["both"].ran() == {"aten::mm": 0, "aten::neg": 0}


def test_registering_anew_takes_the_place_of_the_old_function_once_it_is_off() -> None:
    a, b = operands()
    registered_doubled()
    with use("doubled"), pytest.raises(OverrideError, match="doubled is enabled; disable it before"):
        registered_doubled()
    with use("doubled"), pytest.raises(OverrideError, match="doubled is enabled; disable it first"):
        unregister("doubled")
    register("aten::mm", "CPU", lambda self, mat2: torch.mm(self, mat2) * 7, name="doubled")
    stock = torch.mm(a, b)
    with use("doubled"):
        assert torch.equal(torch.mm(a, b), stock * 7)


def test_nothing_is_warned_of() -> None:
    a, b = operands()
    registered_doubled()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with use("doubled"):
            torch.mm(a, b)
    assert said == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with use("doubled"):
            torch.mm(a, b)
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
    a, b = operands()
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.impl("mm", lambda self, mat2: torch.full((1, 1), 5.0), "CPU")
    registered_doubled()
    try:
        with use("doubled"):
            assert float(torch.mm(a, b)) == 10
        assert float(torch.mm(a, b)) == 5
    finally:
        library._destroy()


def test_all_threads_run_it() -> None:
    a, b = operands()
    stock = torch.mm(a, b)
    registered_doubled()
    results: list[bool] = []

    def work() -> None:
        results.extend(torch.equal(torch.mm(a, b), stock * 2) for _ in range(300))

    with use("doubled"):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [True] * 1200
    assert ran("doubled") == 1200


def test_a_forked_child_has_it_and_switches_it_off_alone() -> None:
    a, b = operands()
    stock = torch.mm(a, b)
    registered_doubled()
    with use("doubled") as switched:
        torch.mm(a, b)
        child = os.fork()
        if child == 0:
            ok = torch.equal(torch.mm(a, b), stock * 2)
            switched.__exit__(None, None, None)
            ok = ok and torch.equal(torch.mm(a, b), stock)
            with use("doubled"):
                ok = ok and torch.equal(torch.mm(a, b), stock * 2)
            os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert torch.equal(torch.mm(a, b), stock * 2)


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


# ---- what goes wrong in the function -----------------------------------------------------------------


# ---- what is refused ---------------------------------------------------------------------------------


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
    a, b = operands()
    registered_doubled()
    leaf = a.clone().requires_grad_()
    with use("doubled"):
        result = torch.mm(leaf, b).sum()
    result.backward()
    assert torch.equal(leaf.grad, torch.ones(3, 5) @ b.t())
    assert ran("doubled") == 1


def test_modes_and_transforms_of_torch() -> None:
    a, b = operands()
    stock = torch.mm(a, b)
    registered_doubled()
    with use("doubled"):
        with torch.inference_mode():
            assert torch.equal(torch.mm(a, b), stock * 2)
            assert torch.mm(a, b).is_inference()
        with torch.no_grad():
            assert torch.equal(torch.mm(a.requires_grad_(False), b), stock * 2)
        batch = torch.stack([a, a + 1])
        mapped = torch.func.vmap(lambda a: torch.mm(a, b))(batch)
        assert mapped.shape == (2, 3, 5)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            half = torch.mm(a, b)
        assert half.dtype == torch.bfloat16
        assert torch.allclose(half.float(), stock * 2, rtol=0.02, atol=0.02)
        tangent = torch.func.jvp(lambda a: torch.mm(a, b), (a,), (torch.ones_like(a),))[1]
        assert torch.equal(tangent, torch.ones_like(a) @ b)


def test_tensors_without_data_never_come_to_it() -> None:
    a, b = operands()
    registered_doubled()
    with use("doubled"):
        assert torch.mm(a.to("meta"), b.to("meta")).shape == (3, 5)
        with torch._subclasses.FakeTensorMode() as mode:
            fake = torch.mm(mode.from_tensor(a), mode.from_tensor(b))
        assert tuple(fake.shape) == (3, 5)
    assert ran("doubled") == 0


def test_torch_compile_traces_past_it() -> None:
    a, b = operands()
    stock = torch.mm(a, b).relu()
    registered_doubled()
    with use("doubled"):
        compiled = torch.compile(lambda a, b: torch.mm(a, b).relu(), backend="aot_eager", fullgraph=True)
        assert torch.equal(compiled(a, b), (stock * 2).relu())
    assert torch.equal(compiled(a, b), stock)
    assert ran("doubled") == 1


def test_the_package_is_found_from_tracer() -> None:
    import tracer

    assert tracer.overrides is overrides
    assert "overrides" in dir(tracer)
