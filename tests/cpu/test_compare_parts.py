"""What a comparison is made of, on real tensors and a real dispatcher: checks, references, times, memory."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from lazily import torch

from tracer import overrides
from tracer.compare import reference
from tracer.compare.accuracy import check
from tracer.compare.bounds import Bound, bound_of
from tracer.compare.call_memory import Memory, memory_of
from tracer.compare.cases import CPU, FAMILIES, STRICT, TF32, Case, cases_of
from tracer.compare.measurement import Settings, compare_cases
from tracer.compare.model import CaseResult, Comparison
from tracer.compare.roof import CpuRoof, limit_of
from tracer.compare.spread import Ratio
from tracer.compare.switch import CannotCompareError, Switch
from tracer.compare.timing import measure
from tracer.compare.workload import precision, prepare

SMALL = Case("mm", "mm", ((8, 16), (16, 8)), devices=(CPU,))
OTHER = Case("mm", "mm", ((4, 16), (16, 2)), devices=(CPU,))
LOOSE = Bound(relative=1e-3)
QUICK = Settings(pairs=3, bandwidth=1e10, flops=1e11)
ON_CPU = [case for family in FAMILIES for case in cases_of(family, CPU)]


def compared(*cases: Case, name: str = "tested") -> Comparison:
    return compare_cases("test", cases, Switch([name]), QUICK, lambda text: nullcontext())


def of_mm(function: object) -> None:
    overrides.register("aten::mm", "CPU", function, name="tested")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = torch._C._dispatch_dump_table("aten::mm")
    yield
    assert torch._C._dispatch_dump_table("aten::mm") == before
    if "tested" in overrides.registered():
        overrides.unregister("tested")


# Checks


def test_the_worst_element_is_found() -> None:
    exact = torch.arange(1.0, 13.0, dtype=torch.float64).view(3, 4)
    stock, override = exact.float(), exact.float()
    override[2, 1] += 0.5
    override[0, 0] += 0.25
    found = check("result", LOOSE, stock, override, exact, None)
    assert found.worst is not None
    assert (found.worst.index, found.worst.stock, found.worst.override) == ((2, 1), 10.0, 10.5)
    assert "above the bound of 0.001" in found.wrong
    scaled = check("result", Bound(largest=1e-3, scaled=True), stock, override, exact, exact.abs())
    assert scaled.worst is not None
    assert scaled.worst.index == (0, 0)  # a quarter of 1 is more than half of 10


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_wrong_where_float64_is(value: float) -> None:
    exact = torch.ones(2, 2, dtype=torch.float64)
    override = exact.float()
    override[1, 0] = value
    found = check("result", LOOSE, exact.float(), override, exact, None)
    assert found.wrong
    assert found.worst is not None
    assert found.worst.index == (1, 0)


def test_what_is_not_finite_in_float64_must_be_the_same() -> None:
    exact = torch.tensor([math.inf, math.nan, 1.0], dtype=torch.float64)
    assert not check("result", Bound(largest=1e-6), exact.float(), exact.float(), exact, None).wrong
    other = torch.tensor([-math.inf, math.nan, 1.0])
    assert check("result", Bound(largest=1e-6), exact.float(), other, exact, None).wrong


def test_twice_the_error_of_stock_is_too_much_within_the_bound() -> None:
    exact = torch.ones(100, dtype=torch.float64)
    stock, near, far = ((exact + error) for error in (1e-4, 4e-4, 6e-4))
    assert not check("result", LOOSE, stock, near, exact, None).wrong
    assert ", but stock has 0.0001" in check("result", LOOSE, stock, far, exact, None).wrong


@pytest.mark.parametrize(
    ("override", "what"),
    [
        (lambda: torch.ones(3, 2), "shape (3, 2), but stock has (2, 3)"),
        (lambda: torch.ones(2, 3, dtype=torch.float64), "dtype torch.float64, but stock has torch.float32"),
        (lambda: torch.ones(2, 3, device="meta"), "device meta, but stock has cpu"),
    ],
)
def test_another_form_is_wrong_before_any_element_is_looked_at(
    override: Callable[[], torch.Tensor], what: str
) -> None:
    stock = torch.ones(2, 3)
    assert check("result", LOOSE, stock, override(), stock.double(), None).wrong == what


def test_cat_must_have_the_same_bytes_and_strides() -> None:
    stock = torch.tensor([[0.0, math.nan], [1.0, 2.0]])
    assert not check("result", None, stock, stock.clone(), None, None).wrong
    signed = stock.clone()
    signed[0, 0] = -0.0
    found = check("result", None, stock, signed, None, None)
    assert found.wrong == "1 of 4 elements differ in their bytes"
    assert found.worst is not None
    assert found.worst.index == (0, 0)
    payload = stock.clone()
    payload.view(torch.int32)[0, 1] += 1  # another NaN
    assert check("result", None, stock, payload, None, None).wrong
    assert "strides (1, 2)" in check("result", None, stock, stock.t().contiguous().t(), None, None).wrong


def test_bounds_catch_products_of_too_low_precision() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(64, 512), torch.randn(512, 64)
    exact, scale = reference.product(a, b)
    truncated = [(x.view(torch.int32) & ~0x1FFF).view(torch.float32) for x in (a, b)]  # as TF32 has them
    like_tf32 = torch.mm(*truncated)
    halves = (a.bfloat16() @ b.bfloat16()).float()
    for mode, wrong in ((STRICT, True), (TF32, False)):
        case = Case("mm", "mm", ((64, 512), (512, 64)), mode=mode)
        bound = bound_of(case, "result")
        assert bool(check("result", bound, like_tf32, like_tf32, exact, scale).wrong) == wrong
        assert check("result", bound, halves, halves, exact, scale).wrong


# References and workloads


@pytest.mark.parametrize(("layers", "bidirectional"), [(1, False), (2, True)])
def test_the_gru_written_out_is_that_of_torch(layers: int, bidirectional: bool) -> None:
    torch.manual_seed(0)
    module = torch.nn.GRU(5, 7, layers, bidirectional=bidirectional).double()
    x, h = (
        torch.randn(*shape, dtype=torch.float64)
        for shape in ((4, 3, 5), (layers * (1 + bidirectional), 3, 7))
    )
    x.requires_grad_()
    h.requires_grad_()
    output, last = module(x, h)
    given = torch.randn_like(output), torch.randn_like(last)
    weights = dict(module.named_parameters())
    gradients = torch.autograd.grad((output, last), [x, h, *weights.values()], given)
    exact = reference.gru(weights, x, h, layers, bidirectional, given)
    for name, tensor in zip(exact, (output, last, *gradients), strict=True):
        torch.testing.assert_close(exact[name][0], tensor, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", ON_CPU, ids=lambda case: case.name)
def test_stock_is_right_in_every_case(case: Case) -> None:
    with precision(case):
        workload = prepare(case, CPU)
        results, again = (workload.named(workload.run()) for _ in range(2))
        exact = workload.exact()
    assert list(exact) == list(results)
    for name, (wide, scale) in exact.items():
        found = check(name, bound_of(case, name), results[name], again[name], wide, scale)
        assert not found.wrong, found
    assert workload.work is not None
    assert workload.work.bytes


def test_the_switches_of_precision_are_as_before() -> None:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    for mode in (TF32, STRICT):
        with precision(Case("mm", "mm", ((1, 1), (1, 1)), mode=mode)):
            assert torch.backends.cuda.matmul.allow_tf32 == (mode == TF32)
            assert torch.backends.cudnn.allow_tf32 == (mode == TF32)
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before


# Times and memory


class Toggled:
    """A call that takes so long off and so long on, and what was called in which state.

    It is also the clock that times it: with that of the machine a sleep takes as long as others let it.
    """

    def __init__(self, off_ms: float, on_ms: float) -> None:
        self._ns = {False: int(off_ms * 1e6), True: int(on_ms * 1e6)}
        self._is_on = False
        self._now = 0
        self.calls: list[bool] = []

    def perf_counter_ns(self) -> int:
        return self._now

    def run(self) -> None:
        self.calls.append(self._is_on)
        self._now += self._ns[self._is_on]

    @contextmanager
    def on(self) -> Iterator[None]:
        self._is_on = True
        yield
        self._is_on = False


@pytest.fixture
def toggled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Toggled:
    call = Toggled(*request.param)
    monkeypatch.setattr("tracer.compare.timing.time", call)
    return call


@pytest.mark.parametrize("toggled", [(2, 4)], indirect=True)
def test_samples_are_taken_in_turns_that_change_their_order(toggled: Toggled) -> None:
    times = measure(toggled.run, toggled.on, CPU, pairs=6, seconds=60)
    assert len(times.wall.stock) == len(times.wall.override) == 6
    runs = [on for place, on in enumerate(toggled.calls) if place == 0 or on != toggled.calls[place - 1]]
    # two estimates, then off on, on off, off on...: equal neighbours are one run
    assert runs == [False, True] * 4 + [False]
    assert (set(times.wall.stock), set(times.wall.override)) == ({2e6}, {4e6})
    assert times.host.stock == times.wall.stock
    assert times.gpu.stock == []
    assert times.why_no_gpu == "on the CPU"
    assert gc.isenabled()


@pytest.mark.parametrize("toggled", [(2, 2)], indirect=True)
def test_fewer_pairs_where_the_time_would_not_do(toggled: Toggled) -> None:
    assert len(measure(toggled.run, toggled.on, CPU, pairs=50, seconds=0.01).wall.stock) == 5


@pytest.mark.parametrize("toggled", [(0.01, 0.01)], indirect=True)
def test_short_calls_are_timed_several_times_a_sample(toggled: Toggled) -> None:
    assert measure(toggled.run, toggled.on, CPU, pairs=2, seconds=60).calls > 1


def test_an_override_that_never_runs_takes_as_long_as_stock() -> None:
    of_mm(lambda self, mat2: torch.mm(self, mat2))
    tensors = [torch.randn(64, 512), torch.randn(64, 512)]
    times = measure(lambda: torch.cat(tensors), Switch(["tested"]).on, CPU, pairs=40, seconds=60)
    ratio = Ratio.of(times.wall.stock, times.wall.override)
    assert ratio.low <= 1.1
    assert ratio.high >= 0.9


def test_memory_of_a_call() -> None:
    def run() -> torch.Tensor:
        first = torch.empty(1000)  # 4,000 bytes
        del first
        second = torch.empty(2000)
        third = torch.empty(500)
        del second
        return third

    assert memory_of(run, CPU) == Memory(3, 14_000, 10_000)


def test_memory_of_a_call_says_nothing_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    memory_of(lambda: torch.empty(10), CPU)
    assert capfd.readouterr().err == ""


def test_the_limit_of_this_cpu_is_measured() -> None:
    roof = CpuRoof()
    case = Case("mm", "mm", ((64, 64), (64, 64)))
    limit = limit_of(roof, case, prepare(case, CPU).work)
    assert limit is not None
    assert 1e3 < limit.ns < 1e9  # of 0.5 MFLOP: between 500 TFLOP/s and 0.5 MFLOP/s
    assert limit_of(roof, case, prepare(case, CPU).work) == limit


# Which device


def test_the_device_follows_from_the_keys() -> None:
    of_mm(lambda self, mat2: torch.mm(self, mat2))
    switch = Switch(["tested"])
    assert (switch.device, switch.operators, switch.names) == (CPU, [("aten::mm", "CPU")], ("tested",))
    overrides.register("aten::mm", "SparseCPU", lambda self, mat2: self, name="sparse_only")
    with pytest.raises(CannotCompareError, match="sparse_only is for SparseCPU"):
        Switch(["sparse_only"])
    overrides.unregister("sparse_only")


@pytest.mark.skipif("torch.cuda.is_available()", reason="there is a GPU here")
def test_an_override_for_cuda_needs_a_gpu() -> None:
    with pytest.raises((CannotCompareError, overrides.OverrideError), match="GPU"):
        Switch(["mm"])


# Whole comparisons


def test_an_override_that_is_right() -> None:
    of_mm(lambda self, mat2: torch.mm(self.double(), mat2.double()).float())
    comparison = compared(SMALL, OTHER)
    for result in comparison.cases:
        assert result.passed, result
        assert result.ran == {"aten::mm": 1}
        assert result.repeats
        assert result.memory[1].allocated > result.memory[0].allocated  # type: ignore[union-attr]
        assert result.chains is not None
        stock = result.chains.stock.links
        assert (stock[0].op, stock[0].key) == ("aten::mm", "AutogradCPU")
        assert (stock[0].least, stock[0].most) == (1, 1)
        assert "aten::randn" not in {link.op for link in stock}  # nothing of what came before the call
        ops = [link.op for link in result.chains.override.links]
        assert "aten::_to_copy" in ops
        assert "aten::_to_copy" not in [link.op for link in result.chains.stock.links]
        assert result.chains.override.counts.hops > result.chains.stock.counts.hops
        assert result.limit is not None
    assert comparison.certificate["verdict"].startswith("complete: ")


def test_an_override_that_is_wrong_in_one_case() -> None:
    def wrong(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
        result = torch.mm(self, mat2)
        if self.shape[0] == 4:
            result[3, 1] *= 1.5
        return result

    of_mm(wrong)
    first, second = compared(SMALL, OTHER).cases
    assert first.passed
    assert not second.passed
    (found,) = second.wrong
    assert found.worst is not None
    assert found.worst.index == (3, 1)
    assert found.worst.override == pytest.approx(1.5 * found.worst.stock)
    assert found.worst.exact == pytest.approx(found.worst.stock)


def test_an_override_that_raises_does_not_stop_the_next_case() -> None:
    def raising(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
        if self.shape[0] == 8:
            raise ZeroDivisionError("eight rows")
        return torch.mm(self, mat2)

    of_mm(raising)
    first, second = compared(SMALL, OTHER).cases
    assert "ZeroDivisionError: eight rows" in first.failed
    assert "in raising" in first.failed
    assert first.chains is None
    assert second.passed
    assert second.chains is not None
    assert second.chains.stock.links[0].op == "aten::mm"


def test_what_is_handed_over_is_stock() -> None:
    def choosy(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
        raise overrides.HandOver("never mine")

    of_mm(choosy)
    (result,) = compared(SMALL).cases
    assert result.passed
    assert result.ran == {}
    assert result.handed_over == {"aten::mm": {"never mine": 1}}


def test_results_that_change_from_call_to_call() -> None:
    count = 0

    def restless(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return torch.mm(self, mat2) * (1 + 2**-23 * (count % 2))

    of_mm(restless)
    (result,) = compared(SMALL).cases
    assert result.passed
    assert not result.repeats


def test_gradients_are_compared() -> None:
    """The weights' gradients are products, so an override of mm that loses precision is found there."""
    of_mm(lambda self, mat2: torch.mm(self.bfloat16(), mat2.bfloat16()).float())
    case = next(case for case in cases_of("gru", CPU) if case.backward)
    (result,) = compared(case).cases
    assert {found.output for found in result.wrong} >= {"grad weight_ih_l0", "grad weight_hh_l0"}
    assert "output" not in {found.output for found in result.wrong}


def test_while_another_recording_runs_there_are_times_and_no_chains(tmp_path: Path) -> None:
    import tracer

    of_mm(lambda self, mat2: torch.mm(self, mat2))
    with tracer.record(tmp_path / "other.trace"):
        comparison = compared(SMALL)
    result: CaseResult = comparison.cases[0]
    assert result.wall is not None
    assert result.chains is None
    assert "a recording to" in comparison.remarks[0]
