"""The GRU override on a GPU: right, the same each time, and gone when it is off."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator

import pytest
from gru_reference import (
    PRECISIONS,
    STRICT,
    TF32,
    Sample,
    Shape,
    check,
    precision,
    random_shape,
    relative_errors,
    type_of,
)
from lazily import nn, torch
from override_calls import LEFT_BY_AUTO, native

from tracer import overrides

FORWARD, BACKWARD = "aten::_cudnn_rnn", "aten::_cudnn_rnn_backward"
SMALL = Shape(steps=4, batch=6, input=10, hidden=24)
SHAPES = 1000


def table() -> tuple[str, str]:
    return torch._C._dispatch_dump_table(FORWARD), torch._C._dispatch_dump_table(BACKWARD)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    gc.collect()  # reserves that a traceback holds
    before = table()
    native().reset_counts("gru")
    yield
    gc.collect()
    native().pin_gru_plan("forward", None)
    native().pin_gru_plan("backward", None)
    native().pin_gru_step_tile(-1)
    assert table()[0] == before[0]
    if native().live_reserves() == 0:
        assert table() == before


def forced() -> overrides.use:
    return overrides.use("gru:force")


def ran(operator: str = FORWARD) -> int:
    return int(native().ran("gru")[operator])


def reasons(operator: str = FORWARD) -> dict[str, int]:
    return dict(native().handed_over("gru")[operator])


def same_bits(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


# ---- the right numbers -------------------------------------------------------------------------


@pytest.mark.parametrize("start", range(0, SHAPES, 100))
def test_random_shapes_agree_with_float64(start: int) -> None:
    """Gradients of every fourth, and the same bits in a second run."""
    for seed in range(start, start + 100):
        sample = Sample(random_shape(random.Random(seed)), PRECISIONS[seed % 4], seed)
        before = ran(), ran(BACKWARD)
        with forced():
            if seed % 16 < 4:
                got, again = sample.gradients(), sample.gradients()
                assert ran(BACKWARD) == before[1] + 2, reasons(BACKWARD)
            else:
                got, again = sample.forward(), sample.forward()
            assert ran() == before[0] + 2, (sample.shape, reasons())
        check(sample, got, sample.expected())
        assert same_bits(got, again), sample.shape


LARGE = [
    Shape(32, 64, 256, 512),
    Shape(32, 64, 256, 512, bidirectional=True),
    Shape(1, 64, 1536, 512),
    Shape(1, 128, 1536, 512),
    Shape(1, 1, 1536, 512),
    Shape(32, 32, 256, 256),
    Shape(20, 33, 300, 500, layers=2),
    Shape(10, 128, 512, 1024),
    Shape(5, 7, 40, 768, bidirectional=True),
]


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_no_less_exact_than_twice_stock(shape: Shape, name: str) -> None:
    sample = Sample(shape, name)
    expected = sample.expected()
    stock = relative_errors(sample.gradients(), expected)
    with forced():
        got = sample.gradients()
    assert ran() == ran(BACKWARD) == 1
    check(sample, got, expected)
    floor = {STRICT: 1e-6, TF32: 1e-4}.get(name, torch.finfo(type_of(name)).eps / 2)
    for tensor, mine, theirs in zip(sample.names(), relative_errors(got, expected), stock, strict=True):
        assert mine <= 2 * theirs + floor, f"{tensor}: {mine:.2e}, stock {theirs:.2e}"


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("hidden", [16, 40, 128, 512])
def test_every_plan(hidden: int, name: str) -> None:
    """Each way to spread a sequence over clusters that fits into shared memory."""
    sample = Sample(Shape(3, 20, 24, hidden), name)
    expected = sample.expected()
    spelled = {STRICT: "float32"}.get(name, name)
    tried = 0
    for which in ("forward", "backward"):
        for plan in native().gru_plans(which, spelled, hidden):
            native().pin_gru_plan(which, plan)
            with forced():
                check(sample, sample.gradients(), expected)
            tried += 1
        native().pin_gru_plan(which, None)
    assert tried >= 2 or torch.cuda.get_device_capability() != (9, 0)


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("tile", range(7))
def test_every_tile_of_a_single_step(tile: int, name: str) -> None:
    native().pin_gru_step_tile(tile)
    for shape in (
        Shape(1, 37, 70, 45, bidirectional=True),
        Shape(1, 64, 1536, 512),
        Shape(
            1, 131, 72, 104, bidirectional=True
        ),  # rows of whole 16 bytes, two tiles of sequences, fewer slabs than blocks
        Shape(2, 5, 8, 600),
    ):
        sample = Sample(shape, name)
        with forced():
            check(sample, sample.gradients(), sample.expected())


def test_tf32_is_read_from_the_switch_of_cudnn() -> None:
    shape = Shape(8, 16, 64, 128)
    with forced():
        one, other = Sample(shape, STRICT).forward(), Sample(shape, TF32).forward()
    assert 1e-6 < (one[0] - other[0]).abs().max().item() < 5e-3


def test_strides_are_those_of_stock() -> None:
    for shape in (
        SMALL,
        Shape(4, 6, 10, 24, batch_first=True),
        Shape(1, 6, 10, 24, layers=2, batch_first=True),
    ):
        sample = Sample(shape, STRICT)
        stock = sample.gradients()
        with forced():
            got = sample.gradients()
        assert [t.stride() for t in got[:4]] == [t.stride() for t in stock[:4]]


# ---- what is handed over -----------------------------------------------------------------------


def packed(module: nn.Module, x: torch.Tensor) -> object:
    return module(nn.utils.rnn.pack_padded_sequence(x, torch.tensor([4, 3, 3, 2, 1, 1])))


HANDED_OVER: list[tuple[str, Callable[[], nn.Module], Callable[[nn.Module, torch.Tensor], object], str]] = [
    ("not a GRU", lambda: nn.LSTM(10, 24), lambda m, x: m(x), "float32"),
    ("not a GRU", lambda: nn.RNN(10, 24), lambda m, x: m(x), "float32"),
    ("not a GRU", lambda: nn.LSTM(10, 24, proj_size=8), lambda m, x: m(x), "float32"),
    ("a packed sequence", lambda: nn.GRU(10, 24), packed, "float32"),
    (
        "dropout between layers in training",
        lambda: nn.GRU(10, 24, 2, dropout=0.5),
        lambda m, x: m(x),
        "float32",
    ),
    (
        "a type other than float32, bfloat16 and float16",
        lambda: nn.GRU(10, 24),
        lambda m, x: m(x),
        "float64",
    ),
]


@pytest.mark.parametrize(("reason", "make", "call", "kind"), HANDED_OVER)
def test_what_it_cannot_do_goes_to_stock(
    reason: str, make: Callable[[], nn.Module], call: Callable[[nn.Module, torch.Tensor], object], kind: str
) -> None:
    dtype = getattr(torch, kind)
    module, x = make().to("cuda", dtype), torch.randn(4, 6, 10, device="cuda", dtype=dtype)
    with forced():
        call(module, x)
    assert reasons() == {reason: 1}
    assert ran() == 0


def test_auto_hands_over_what_was_not_measured() -> None:
    sample = Sample(SMALL, STRICT)
    stock = sample.forward()
    with overrides.use("gru"):
        got = sample.forward()
    assert ran() + sum(reasons().get(reason, 0) for reason in LEFT_BY_AUTO) == 1
    torch.testing.assert_close(got, stock, atol=1e-5, rtol=1e-5)


def test_dropout_outside_of_training_and_in_one_layer_is_ours() -> None:
    x = torch.randn(4, 6, 10, device="cuda")
    with forced():
        nn.GRU(10, 24, 2, dropout=0.5).cuda().eval()(x)
        with pytest.warns(UserWarning, match="dropout"):
            module = nn.GRU(10, 24, 1, dropout=0.5)
        module.cuda()(x)
    assert ran() == 2


def raised_by(run: Callable[[], object]) -> tuple[type[BaseException], str]:
    with pytest.raises(RuntimeError) as caught:
        run()
    return caught.type, str(caught.value)


def errors(sample: Sample) -> list[tuple[type[BaseException], str]]:
    """Of states for another batch, of a backward pass outside of training, and of a second derivative."""
    x, weights = sample.x.clone().requires_grad_(), list(sample.module.parameters())
    states = sample.hx[:, :2]
    found = [raised_by(lambda: torch._VF.gru(x, states, weights, True, 1, 0.0, True, False, False))]
    output, _ = sample.module.eval()(x, sample.hx)
    found.append(raised_by(output.sum().backward))
    output, _ = sample.module.train()(x, sample.hx)
    (first,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    return [*found, raised_by(first.sum().backward)]


def test_the_errors_of_stock_stay() -> None:
    sample = Sample(SMALL, STRICT)
    stock = errors(sample)
    with forced():
        assert errors(sample) == stock
    assert reasons() == {"sizes that stock refuses": 1}
    assert reasons(BACKWARD) == {"a backward pass outside of training, which stock refuses": 1}


# ---- switching ---------------------------------------------------------------------------------


def test_off_leaves_no_trace_after_the_backward_pass() -> None:
    if native().live_reserves():
        pytest.skip("a reserve of an earlier test may come back from the CPU")
    before = table()
    sample = Sample(SMALL, STRICT)
    x = sample.x.clone().requires_grad_()
    with forced():
        during = table()
        assert during[0] != before[0]
        assert during[1] != before[1]
        output, _ = sample.module(x, sample.hx)
    assert table()[0] == before[0]
    assert table()[1] == during[1]  # a reserve of ours is alive
    assert native().live_reserves() == 1
    output.sum().backward()
    assert ran(BACKWARD) == 1
    del output
    assert native().live_reserves() == 0
    assert table() == before


def test_on_only_in_the_backward_pass() -> None:
    sample = Sample(SMALL, STRICT)
    x = sample.x.clone().requires_grad_()
    output, _ = sample.module(x, sample.hx)
    with forced():
        output.sum().backward()
    assert reasons(BACKWARD) == {"a reserve that the stock kernel made": 1}


def test_a_graph_that_is_kept_gives_the_same_twice() -> None:
    sample = Sample(SMALL, STRICT)
    x = sample.x.clone().requires_grad_()
    with forced():
        output, _ = sample.module(x, sample.hx)
    (one,) = torch.autograd.grad(output, x, sample.grad_output, retain_graph=True)
    (other,) = torch.autograd.grad(output, x, sample.grad_output)
    assert torch.equal(one, other)
    assert ran(BACKWARD) == 2


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    sample = Sample(Shape(4, 6, 10, 24, hy_gradient=False), STRICT)
    x = sample.x.clone().requires_grad_()
    with forced(), precision(STRICT):
        output = checkpoint(lambda t: sample.module(t, sample.hx)[0], x, use_reentrant=reentrant)
        output.backward(sample.grad_output)
    expected = sample.expected()
    assert x.grad is not None
    assert (ran(), ran(BACKWARD)) == (2, 1)
    torch.testing.assert_close(output.double(), expected[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(x.grad.double(), expected[2], atol=1e-4, rtol=1e-4)


def test_tensors_that_wait_on_the_cpu() -> None:
    """The reserve has gone and comes back as a copy: the backward pass has to stay for it."""
    sample = Sample(Shape(4, 6, 10, 24, hy_gradient=False), STRICT)
    x = sample.x.clone().requires_grad_()
    with precision(STRICT):
        with forced(), torch.autograd.graph.save_on_cpu():
            output, _ = sample.module(x, sample.hx)
        (got,) = torch.autograd.grad(output, x, sample.grad_output)
    assert ran(BACKWARD) == 1
    torch.testing.assert_close(got.double(), sample.expected()[2], atol=1e-4, rtol=1e-4)


def test_gradcheck_of_what_is_handed_over() -> None:
    """float64 goes to stock, through the override."""
    module = nn.GRU(3, 4).to("cuda", torch.float64)
    x = torch.randn(3, 2, 3, device="cuda", dtype=torch.float64, requires_grad=True)
    with forced():
        assert torch.autograd.gradcheck(lambda t: module(t)[0], (x,), nondet_tol=1e-12)
    assert ran() == 0
    assert sum(reasons().values()) > 10


# ---- where it runs -----------------------------------------------------------------------------


def test_inference_mode_no_grad_and_eval() -> None:
    sample = Sample(SMALL, STRICT)
    expected, alive = sample.expected(), native().live_reserves()
    with forced():
        with torch.inference_mode(), precision(STRICT):
            check(sample, list(sample.module(sample.x, sample.hx)), expected)
        sample.module.eval()
        check(sample, sample.forward(), expected)
        assert native().live_reserves() == alive
    assert ran() == 2


def test_autocast() -> None:
    """Its rule for GRUs casts to float16, whichever type was asked for: the types are those of stock."""
    sample = Sample(SMALL, STRICT)

    def run() -> list[torch.Tensor]:
        x, hx = (tensor.clone().requires_grad_() for tensor in (sample.x, sample.hx))
        with torch.autocast("cuda", torch.bfloat16):
            results = sample.module(x, hx)
        given = [sample.grad_output.to(results[0].dtype), sample.grad_hy.to(results[1].dtype)]
        gradients = torch.autograd.grad(results, [x, hx, *sample.module.parameters()], given)
        return [*(result.detach() for result in results), *gradients]

    stock = run()
    with forced():
        got = run()
    assert ran() == ran(BACKWARD) == 1, (reasons(), reasons(BACKWARD))
    assert [tensor.dtype for tensor in got] == [tensor.dtype for tensor in stock]
    assert [tensor.shape for tensor in got] == [tensor.shape for tensor in stock]
    expected, floor = sample.expected(), torch.finfo(stock[0].dtype).eps / 2
    both = (relative_errors(tensors, expected) for tensors in (got, stock))
    for tensor, mine, theirs in zip(sample.names(), *both, strict=True):
        assert mine <= 2 * theirs + floor, f"{tensor}: {mine:.2e}, stock {theirs:.2e}"


def test_it_is_no_concern_of_fake_tensors() -> None:
    """The operator itself: nn.GRU asks for addresses, which fake tensors have none of."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with forced(), FakeTensorMode():
        shapes = ((4, 6, 10), (1, 6, 24), (72, 10), (72, 24), (72,), (72,))
        x, hx, *weights = (torch.empty(shape, device="cuda") for shape in shapes)
        buffer = torch.empty(sum(weight.numel() for weight in weights), device="cuda")
        output, hy, *_ = torch.ops.aten._cudnn_rnn(
            *(x, weights, 4, buffer, hx, None),
            *(3, 24, 0, 1, False, 0.0, True, False, [], None),  # a GRU of 24 in one layer, in training
        )
    assert output.shape == (4, 6, 24)
    assert hy.shape == (1, 6, 24)
    assert ran() == 0
    assert reasons() == {}


def test_compiled() -> None:
    sample = Sample(SMALL, STRICT)
    with forced(), precision(STRICT):
        compiled = torch.compile(lambda x, h: sample.module(x, h)[0] * 2, backend="aot_eager")
        got = compiled(sample.x, sample.hx)
    torch.testing.assert_close(got.double(), sample.expected()[0] * 2, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", [Shape(1, 64, 40, 64), Shape(8, 32, 40, 64), Shape(3, 8, 16, 600)], ids=str)
def test_captured_in_a_graph(shape: Shape) -> None:
    sample = Sample(shape, STRICT)
    x = sample.x.clone()

    def run() -> list[torch.Tensor]:
        with precision(STRICT):
            y = x.detach().requires_grad_()
            output, hy = sample.module(y, sample.hx)
            return [
                output.detach(),
                *torch.autograd.grad([output, hy], [y], [sample.grad_output, sample.grad_hy]),
            ]

    with forced():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            run()
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = run()
        for seed in (1, 2):
            torch.manual_seed(seed)
            x.copy_(torch.randn_like(x))
            graph.replay()
            assert same_bits(captured, run())
    del captured, graph


def test_on_several_streams_at_once() -> None:
    """As many clusters as there is room for wait for others; each sequence is its own."""
    samples = [Sample(Shape(30, 64, 64, 512), TF32, seed) for seed in range(3)]
    with forced():
        alone = [sample.forward() for sample in samples]
        streams = [torch.cuda.Stream() for _ in samples]
        torch.cuda.synchronize()
        for _ in range(20):
            together = []
            for stream, sample in zip(streams, samples, strict=True):
                with torch.cuda.stream(stream):
                    together.append(sample.forward())
            torch.cuda.synchronize()
            assert all(same_bits(a, b) for a, b in zip(alone, together, strict=True))


def test_a_thousand_times_the_same_bits() -> None:
    sample = Sample(Shape(6, 40, 32, 256), TF32)
    with forced():
        first = sample.forward()
        differing = sum(not same_bits(first, sample.forward()) for _ in range(1000))
    assert differing == 0


def test_deterministic_mode() -> None:
    sample = Sample(SMALL, STRICT)
    torch.use_deterministic_algorithms(True)
    try:
        with forced():
            check(sample, sample.forward(), sample.expected())
    finally:
        torch.use_deterministic_algorithms(False)
    assert ran() == 1


@pytest.mark.skipif("torch.cuda.device_count() < 2", reason="one GPU")
def test_on_another_device_than_the_current_one() -> None:
    sample = Sample(SMALL, STRICT, device="cuda:1")
    with forced():
        check(sample, sample.gradients(), sample.expected())
    assert ran() == ran(BACKWARD) == 1
    assert torch.cuda.current_device() == 0
