"""mm and addmm with the override on, against float64 and against stock."""

from __future__ import annotations

import math
import random as python_random
from collections.abc import Iterator

import pytest
from lazily import torch
from override_calls import (
    DEVICE,
    LEFT_BY_AUTO,
    all_ran,
    dispatch_tables,
    dtype_of,
    handed_over,
    largest_error,
    native,
    random,
    relative_error,
    switched_on,
)

DTYPES = ["torch.float32", "torch.bfloat16", "torch.float16"]
LAYOUTS = ["NN", "NT", "TN", "TT"]  # of a and b; T: stored transposed, as the weight of nn.Linear is


def has_warp_groups() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    """fp32 is fp32, unless a test says otherwise; no plan is pinned."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before
    native().pin_mm_plan(None)


def stored(rows: int, columns: int, transposed: bool, dtype: torch.dtype, seed: int) -> torch.Tensor:
    if transposed:
        return random(columns, rows, dtype=dtype, seed=seed).t()
    return random(rows, columns, dtype=dtype, seed=seed)


def operands(
    m: int, k: int, n: int, layout: str, dtype: torch.dtype, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    return stored(m, k, layout[0] == "T", dtype, 2 * seed), stored(
        k, n, layout[1] == "T", dtype, 2 * seed + 1
    )


def check_product(result: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, tf32: bool = False) -> None:
    """fp32: 4 2^-24 sqrt(K) of the magnitudes and 2e-6 in the norm; TF32 1e-3, bf16 3e-3, fp16 4e-4.

    `tf32`: whether fp32 may be rounded so.
    """
    exact = a.double() @ b.double()
    assert result.dtype == a.dtype
    assert result.stride() == (b.shape[1], 1)
    if a.dtype == torch.float32 and not tf32:
        magnitude = a.double().abs() @ b.double().abs()
        assert largest_error(result, exact, magnitude) <= 4 * 2**-24 * math.sqrt(a.shape[1])
        bound = 2e-6
    else:
        bound = {torch.float32: 1e-3, torch.bfloat16: 3e-3, torch.float16: 4e-4}[a.dtype]
    # One number may be a small difference of large ones: the norm says little of few.
    if result.numel() >= 64:
        assert relative_error(result, exact) <= bound


@pytest.mark.parametrize("dtype", DTYPES, indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("m", [1, 3, 4, 7, 16, 24, 50, 64, 100, 128])
def test_every_plan_computes_the_product(m: int, layout: str, dtype: torch.dtype) -> None:
    for k, n in ((192, 160), (77, 133)):
        a, b = operands(m, k, n, layout, dtype)
        plans = native().mm_plans(a, b)
        assert native().mm_plan(a, b) in plans
        for plan in plans:
            native().pin_mm_plan(plan)
            with all_ran("mm", 2, "aten::mm"):
                result = torch.mm(a, b)
                again = torch.mm(a, b)
            check_product(result, a, b)
            assert torch.equal(result, again), plan


@pytest.mark.parametrize("dtype", DTYPES, indirect=True)
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 1536, 5893), (8, 1536, 5893), (64, 1536, 5893), (128, 1536, 5893), (3200, 512, 1), (1, 4096, 4096)],
)
def test_large_products(m: int, k: int, n: int, dtype: torch.dtype) -> None:
    """And as their gradients: dX = dY W, where the weight has another layout. That of one column is an
    outer product, of which both sides are long: it is handed over."""
    for layout in ("NT", "NN"):
        a, b = operands(m, k, n, layout, dtype)
        with all_ran("mm", 1):
            result = torch.mm(a, b)
        check_product(result, a, b)
    gradient, weight = random(m, n, dtype=dtype, seed=3), random(n, k, dtype=dtype, seed=4)
    large = handed_over("mm", "aten::mm", "large: both sides above 128")
    with large if min(m, k) > 128 else all_ran("mm", 1):
        result = torch.mm(gradient, weight)
    check_product(result, gradient, weight)


@pytest.mark.skipif("not has_warp_groups()", reason="needs a GPU of compute capability 9.0")
@pytest.mark.parametrize("tf32", [False, True], ids=["strict", "tf32"])
@pytest.mark.parametrize("dtype", DTYPES, indirect=True)
@pytest.mark.parametrize("layout", ["NN", "NT"])
def test_warp_groups_reuse_their_stages(layout: str, dtype: torch.dtype, tf32: bool) -> None:
    """Many more slabs of the inner dimension than fit into shared memory at once, the last one in part."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    for m in (1, 8, 13, 32, 64, 100, 128):
        a, b = operands(m, 8 * 1037, 200, layout, dtype)
        plans = [plan for plan in native().mm_plans(a, b) if "-groups " in plan]
        assert len(plans) == 4, "split in 1, 2, 4 and 8 parts"
        for plan in plans:
            native().pin_mm_plan(plan)
            with all_ran("mm", 2, "aten::mm"):
                result = torch.mm(a, b)
                again = torch.mm(a, b)
            check_product(result, a, b, tf32=tf32)
            assert torch.equal(result, again), plan


@pytest.mark.skipif("not has_warp_groups()", reason="needs a GPU of compute capability 9.0")
def test_a_line_that_is_read_again_and_again_is_not_for_warp_groups() -> None:
    a, b = operands(1, 512, 2048, "NT", torch.bfloat16)
    assert any("-groups " in plan for plan in native().mm_plans(a, b))
    a = a.expand(8, 512)
    assert not any("-groups " in plan for plan in native().mm_plans(a, b))
    with all_ran("mm", 1, "aten::mm"):
        result = torch.mm(a, b)
    check_product(result, a, b)


def test_a_thousand_random_products() -> None:
    """Sizes, layouts, padding, offsets and dtypes at random; every plan's turn comes."""
    choose = python_random.Random(5)
    seen = set()
    for i in range(1000):
        short, long = (
            choose.randint(1, choose.choice([4, 16, 128])),
            choose.randint(1, choose.choice([20, 300, 2000])),
        )
        k = choose.randint(1, choose.choice([16, 130, 700]))
        if choose.random() < 0.3:  # lines of whole 16 bytes, which the copy engine brings to warp groups
            k, short, long = -k // 8 * -8, -short // 8 * -8, -long // 8 * -8
        m, n = (short, long) if choose.random() < 0.6 else (long, short)
        dtype, layout = dtype_of(choose.choice(DTYPES)), choose.choice(LAYOUTS)
        pad, offset = choose.choice([0, 0, 1, 8]), choose.choice([0, 0, 0, 1, 4])
        a, b = operands(m + pad, k + pad, n + pad, layout, dtype, seed=i)
        if pad:
            a, b = a[:m, :k], b[:k, :n]
        if offset:
            room = torch.empty(b.numel() * 2 + offset + b.stride(0) + b.stride(1), dtype=dtype, device=DEVICE)
            strides = (n, 1) if layout[1] == "N" else (1, k)
            b = room[offset:].as_strided((k, n), strides).copy_(b)
        plan = choose.choice(native().mm_plans(a, b))
        native().pin_mm_plan(plan)
        seen.add(plan.split(" split")[0])
        with all_ran("mm", 1):
            result = torch.mm(a, b)
        try:
            check_product(result, a, b)
        except AssertionError as error:
            raise AssertionError(f"{plan}: ({m}, {k}) @ ({k}, {n}) {layout} {dtype}") from error
    methods = {plan.split()[0] for plan in seen}
    groups = {"3xtf32-groups", "bf16-groups", "fp16-groups"} if has_warp_groups() else set()
    assert methods == {"dot", "ffma", "3xtf32", "bf16", "fp16", "direct"} | groups


@pytest.mark.parametrize("m", [2, 8, 40])
def test_addmm_scales_and_broadcasts(m: int) -> None:
    k, n = 120, 70
    shapes = [(n,), (1, n), (m, n), (m, 1), (1, 1), (1,), ()]
    for dtype in map(dtype_of, DTYPES):
        a, b = operands(m, k, n, "NT", dtype)
        for shape in shapes:
            bias = random(*shape, dtype=dtype, seed=7)
            for beta, alpha in ((1, 1), (0.5, -2.0), (0, 1.5), (1, 0)):
                with all_ran("mm", 1, "aten::addmm"):
                    result = torch.addmm(bias, a, b, beta=beta, alpha=alpha)
                exact = torch.addmm(bias.double(), a.double(), b.double(), beta=beta, alpha=alpha)
                bound = {torch.float32: 2e-6, torch.bfloat16: 3e-3, torch.float16: 4e-4}[dtype]
                assert relative_error(result, exact) <= bound


def test_a_bias_that_is_not_used_is_not_read() -> None:
    a, b = operands(4, 32, 16, "NT", torch.float32)
    bias = torch.full((16,), math.nan, device=DEVICE)
    with all_ran("mm", 1):
        result = torch.addmm(bias, a, b, beta=0)
    assert result.isfinite().all()


def test_linear_runs_it() -> None:
    layer = torch.nn.Linear(96, 200).to(DEVICE)
    x = random(5, 96)
    with all_ran("mm", 1, "aten::addmm"):
        result = layer(x)
    exact = x.double() @ layer.weight.double().t() + layer.bias.double()
    assert relative_error(result, exact) <= 2e-6


@pytest.mark.parametrize("special", [math.inf, -math.inf, math.nan, 3e38, 1e-40])
def test_numbers_that_are_not_ordinary(special: float) -> None:
    """Infinities and NaN come out where fp32 sums have them, with every plan; so does what overflows."""
    for layout in ("NT", "NN"):
        a, b = operands(12, 100, 90, layout, torch.float32)
        a[3, 7] = special
        if special != 3e38:  # sums of two of them may overflow in one order and not in another
            b[9, 5] = special
        expected = torch.mm(a.double(), b.double()).float()
        for plan in native().mm_plans(a, b):
            native().pin_mm_plan(plan)
            with all_ran("mm", 1):
                result = torch.mm(a, b)
            assert torch.equal(result.isnan(), expected.isnan()), plan
            assert torch.equal(result.isinf(), expected.isinf()), plan
            finite = expected.isfinite()
            assert torch.allclose(result[finite], expected[finite], rtol=1e-4, atol=1e-4), plan


def test_a_wide_range_of_exponents() -> None:
    generator = torch.Generator().manual_seed(1)
    scale = [
        torch.randint(-30, 31, shape, generator=generator).to(DEVICE) for shape in ((16, 256), (256, 100))
    ]
    a, b = (torch.ldexp(random(*s.shape, seed=i), s) for i, s in enumerate(scale))
    for plan in native().mm_plans(a, b):
        native().pin_mm_plan(plan)
        with all_ran("mm", 1):
            result = torch.mm(a, b)
        check_product(result, a, b)


def test_tf32_where_it_is_allowed() -> None:
    """allow_tf32 and fp32_precision are read at each call."""
    a, b = operands(32, 512, 300, "NT", torch.float32)
    exact = a.double() @ b.double()
    with all_ran("mm", 2):
        strict = torch.mm(a, b)
        torch.backends.cuda.matmul.allow_tf32 = True
        assert native().mm_plan(a, b).startswith("tf32")
        allowed = torch.mm(a, b)
    check_product(allowed, a, b, tf32=True)
    assert relative_error(strict, exact) < 1e-6 < 1e-5 < relative_error(allowed, exact)


@pytest.mark.parametrize(
    ("reason", "a", "b"),
    [
        ("a dtype other than float32, bfloat16 and float16", (4, 8, "float64"), (8, 5, "float64")),
        ("large: both sides above 128", (129, 8, "float32"), (8, 129, "float32")),
        ("an empty matrix", (4, 0, "float32"), (0, 5, "float32")),
        ("an empty matrix", (0, 8, "float32"), (8, 5, "float32")),
    ],
)
def test_what_is_handed_over(reason: str, a: tuple, b: tuple) -> None:
    first, second = (random(rows, columns, dtype=dtype_of(name)) for rows, columns, name in (a, b))
    expected = torch.mm(first, second)
    with handed_over("mm", "aten::mm", reason):
        result = torch.mm(first, second)
    assert torch.equal(result, expected)


def test_a_matrix_without_a_stride_of_one_is_handed_over() -> None:
    a, b = random(100, 64), random(64, 400)[:, ::2]
    expected = torch.mm(a, b)
    with handed_over("mm", "aten::mm", "a matrix with no stride of 1"):
        assert torch.equal(torch.mm(a, b), expected)
    a = random(8, 128)[:, ::2]  # the narrow one may have any strides
    with all_ran("mm", 1):
        result = torch.mm(a, random(64, 200))
    check_product(result, a, random(64, 200))


def test_errors_are_those_of_stock() -> None:
    def messages() -> list[str]:
        out = []
        for a, b in (
            (random(3, 4), random(5, 6)),
            (random(3, 4), random(4, 6, dtype=torch.float16)),
            (random(3, 4)[0], random(4, 6)),
        ):
            with pytest.raises(RuntimeError) as caught:
                torch.mm(a, b)
            out.append(str(caught.value))
        return out

    expected = messages()
    with switched_on("mm"):
        assert messages() == expected


def test_out_variants() -> None:
    a, b = operands(6, 64, 90, "NT", torch.float32)
    out = torch.empty(6, 90, device=DEVICE)
    with all_ran("mm", 1, "aten::mm.out"):
        assert torch.mm(a, b, out=out) is out
    check_product(out, a, b)
    transposed = torch.empty(90, 6, device=DEVICE).t()
    with all_ran("mm", 1, "aten::mm.out"):
        torch.mm(a, b, out=transposed)
    assert torch.equal(out, transposed)
    wide = torch.full((6, 100), 7.0, device=DEVICE)
    with all_ran("mm", 1, "aten::mm.out"):
        torch.mm(a, b, out=wide[:, 5:95])
    assert torch.equal(wide[:, 5:95], out)
    assert (wide[:, :5] == 7).all()
    assert (wide[:, 95:] == 7).all()
    bias = random(90, seed=9)
    with all_ran("mm", 1, "aten::addmm.out"):
        torch.addmm(bias, a, b, out=out)
    assert relative_error(out, a.double() @ b.double() + bias.double()) <= 2e-6
    expected = out.double() + a.double() @ b.double()
    with all_ran("mm", 1, "aten::addmm.out"):  # out is self
        torch.addmm(out, a, b, out=out)
    assert relative_error(out, expected) <= 2e-6


def test_out_that_cannot_be_written_directly() -> None:
    a = random(8, 8)
    with handed_over("mm", "aten::mm.out", "out shares memory with an input"):
        torch.mm(a.clone(), a, out=a)
    with handed_over("mm", "aten::mm.out", "out of another size"):
        torch.mm(a, a, out=torch.empty(0, device=DEVICE))
    with handed_over("mm", "aten::mm.out", "out with no stride of 1"):
        torch.mm(a, a, out=torch.empty(8, 16, device=DEVICE)[:, ::2])


def test_auto_goes_by_what_was_measured() -> None:
    """Whatever the table says: a call runs or is handed over for that reason, and large ones never run."""
    a, b = operands(4, 64, 80, "NT", torch.float32)
    expected = torch.mm(a, b)
    with switched_on("mm", forced=False) as overrides:
        result = torch.mm(a, b)
        ran, reasons = overrides.ran("mm")["aten::mm"], overrides.handed_over("mm")["aten::mm"]
    assert (ran, reasons) in ((1, {}), *((0, {reason: 1}) for reason in LEFT_BY_AUTO))
    assert torch.allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_off_leaves_no_trace(recwarn: pytest.WarningsRecorder) -> None:
    a, b = operands(4, 64, 80, "NT", torch.float32)
    before, expected = dispatch_tables("mm"), torch.mm(a, b)
    for _ in range(3):
        with all_ran("mm", 1):
            assert dispatch_tables("mm") != before
            torch.mm(a, b)
        assert dispatch_tables("mm") == before
    assert torch.equal(torch.mm(a, b), expected)
    assert not recwarn.list


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown built-in override \"mmm\"; choose cat.*mm"):
        native().install("mmm", True)


def test_gradients() -> None:
    """Backward multiplies with it too; double goes through it to stock, so gradcheck can be asked."""
    x, weight, bias = random(6, 40), random(30, 40, seed=1), random(30, seed=2)
    inputs = [t.requires_grad_() for t in (x, weight, bias)]
    with all_ran("mm", 3):
        torch.addmm(bias, x, weight.t()).square().sum().backward()
    exact = [t.detach().double().requires_grad_() for t in inputs]
    torch.addmm(exact[2], exact[0], exact[1].t()).square().sum().backward()
    for ours, theirs in zip(inputs, exact, strict=True):
        assert relative_error(ours.grad, theirs.grad) <= 2e-6
    double = [random(*shape).double().requires_grad_() for shape in ((3,), (2, 4), (4, 3))]
    with switched_on("mm"):
        assert torch.autograd.gradcheck(torch.addmm, double)
        assert torch.autograd.gradgradcheck(torch.addmm, double)


def test_retain_graph_checkpoint_and_no_grad() -> None:
    from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

    layer = torch.nn.Linear(32, 48).to(DEVICE)
    x = random(5, 32).requires_grad_()
    with all_ran("mm", 9):
        loss = layer(x).square().sum()  # 1
        loss.backward(retain_graph=True)  # 2
        first = x.grad.clone()
        x.grad = None
        loss.backward()  # 2
        assert torch.equal(x.grad, first)
        x.grad = None
        # Else recomputing ends where the inputs of the product are known, before the product itself.
        with set_checkpoint_early_stop(False):
            checkpoint(layer, x, use_reentrant=False).square().sum().backward()  # 2 forward, 2 backward
    assert torch.equal(x.grad, first)
    with all_ran("mm", 2):
        with torch.no_grad():
            assert not layer(x).requires_grad
        with torch.inference_mode():
            assert layer(x).is_inference()


def test_autocast_multiplies_in_two_bytes() -> None:
    a, b = operands(8, 64, 100, "NT", torch.float32)
    with all_ran("mm", 1), torch.autocast(torch.device(DEVICE).type, dtype=torch.bfloat16):
        result = torch.mm(a, b)
    assert result.dtype == torch.bfloat16
    check_product(result, a.bfloat16(), b.bfloat16())


def test_vmap_and_forward_mode() -> None:
    a, b = random(3, 4, 20), random(20, 30)
    with switched_on("mm"):
        batched = torch.vmap(torch.mm, in_dims=(0, None))(a, b)
        value, tangent = torch.func.jvp(lambda x: torch.mm(x, b), (a[0],), (a[1],))
    assert torch.allclose(batched, a @ b, rtol=1e-4, atol=1e-4)
    assert torch.allclose(value, a[0] @ b, rtol=1e-4, atol=1e-4)
    assert torch.allclose(tangent, a[1] @ b, rtol=1e-4, atol=1e-4)


def test_fake_tensors_do_not_reach_it() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with switched_on("mm") as overrides:
        with FakeTensorMode():
            result = torch.mm(torch.empty(4, 8, device=DEVICE), torch.empty(8, 16, device=DEVICE))
        assert sum(overrides.ran("mm").values()) == 0
    assert result.shape == (4, 16)


def test_compiled_code_gives_the_same() -> None:
    layer, x = torch.nn.Linear(64, 96).to(DEVICE), random(8, 64)
    expected = layer(x)
    with switched_on("mm"):
        result = torch.compile(layer, fullgraph=True)(x)
    assert torch.allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_captured_in_a_graph() -> None:
    a, b = operands(16, 512, 700, "NT", torch.float32)
    a64 = operands(64, 512, 700, "NT", torch.float32)[0]
    with all_ran("mm", 4):
        torch.mm(a, b), torch.mm(a64, b)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured, captured64 = torch.mm(a, b), torch.mm(a64, b)
    a.copy_(random(16, 512, seed=11))
    graph.replay()
    check_product(captured, a, b)
    check_product(captured64, a64, b)


def test_on_the_current_stream() -> None:
    """The product waits for what its own stream does before, and only for that."""
    a, b = operands(16, 512, 700, "NT", torch.float32)
    later = random(16, 512, seed=12)
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    with all_ran("mm", 2):
        results = []
        for stream in streams:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(20_000_000)
                x = a.clone()
                x.copy_(later)
                results.append(torch.mm(x, b))
    torch.cuda.synchronize()
    for result in results:
        check_product(result, later, b)


def test_on_the_device_of_its_tensors() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    a, b = (t.to("cuda:1") for t in operands(16, 512, 700, "NT", torch.float32))
    with all_ran("mm", 1):
        result = torch.mm(a, b)
    assert result.device == torch.device("cuda:1")
    assert torch.cuda.current_device() == 0
    check_product(result, a, b)
    with pytest.raises(RuntimeError), handed_over("mm", "aten::mm", "tensors of several devices"):
        torch.mm(a, b.to("cuda:0"))


def test_deterministic_algorithms_change_nothing() -> None:
    a, b = operands(16, 512, 700, "NT", torch.float32)
    with all_ran("mm", 2):
        expected = torch.mm(a, b)
        torch.use_deterministic_algorithms(True)
        try:
            assert torch.equal(torch.mm(a, b), expected)
        finally:
            torch.use_deterministic_algorithms(False)
