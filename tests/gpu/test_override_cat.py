"""cat with the override on: the bytes, strides and errors of stock."""

from __future__ import annotations

import random as python_random

import pytest
from lazily import torch
from override_calls import (
    DEVICE,
    LEFT_BY_AUTO,
    all_ran,
    dispatch_tables,
    dtype_of,
    handed_over,
    native,
    random,
    switched_on,
)

DTYPES = [
    "torch.float32",
    "torch.bfloat16",
    "torch.float64",
    "torch.int64",
    "torch.int16",
    "torch.uint8",
    "torch.bool",
    "torch.complex64",
]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Its bytes: NaN payloads and the sign of zero count."""
    return tensor.contiguous().view(torch.uint8) if tensor.dim() else tensor


def bytes_of(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """A tensor of random bits, NaN and infinities among them."""
    count = 1
    for size in shape:
        count *= size
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool().to(DEVICE)
    raw = torch.randint(0, 256, (count * dtype.itemsize,), generator=generator, dtype=torch.uint8)
    return raw.view(dtype).reshape(shape).to(DEVICE)


def check(tensors: list[torch.Tensor], dim: int) -> None:
    expected = torch.cat(tensors, dim)
    with all_ran("cat", 1, "aten::cat"):
        result = torch.cat(tensors, dim)
    assert result.shape == expected.shape
    assert result.stride() == expected.stride()
    assert torch.equal(bits(result), bits(expected))


@pytest.mark.parametrize("dtype", DTYPES, indirect=True)
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_same_bytes(dim: int, dtype: torch.dtype) -> None:
    widths = (3, 1, 8, 5)
    shape = [4, 6, 7]
    pieces = []
    for i, width in enumerate(widths):
        size = list(shape)
        size[dim] = width
        pieces.append(bytes_of(*size, dtype=dtype, seed=i))
    check(pieces, dim)


def test_a_thousand_random_cats() -> None:
    choose = python_random.Random(3)
    for i in range(1000):
        dims = choose.randint(1, 5)
        dim = choose.randrange(dims)
        shape = [choose.randint(1, choose.choice([3, 9, 40 if dims < 4 else 5])) for _ in range(dims)]
        dtype = dtype_of(choose.choice(DTYPES))
        pieces = []
        for j in range(choose.choice([2, 2, 3, 4, 5, 17, 64])):
            shape[dim] = choose.randint(1, choose.choice([2, 8, 60]))
            piece = bytes_of(*shape, dtype=dtype, seed=100 * i + j)
            if choose.random() < 0.3:  # rows of a wider tensor, where that is what a row is
                wider = list(shape)
                wider[0 if dim == 0 else dim] += choose.randint(1, 4)
                start = wider[dim] - shape[dim]
                piece = bytes_of(*wider, dtype=dtype, seed=i).narrow(dim, start, shape[dim])
            pieces.append(piece)
        check(pieces, dim)


@pytest.mark.parametrize("dtype", DTYPES[:2], indirect=True)
@pytest.mark.parametrize(
    ("shapes", "dim"),
    [
        ([(4096, 4096)] * 2, 0),
        ([(4096, 4096)] * 2, 1),
        ([(4096, 4097)] * 2, 1),
        ([(64, 512)] * 4, 1),
        ([(20000, 301), (20000, 6), (20000, 7)], 1),
        ([(3, 1001, 513)] * 3, 2),
        ([(1 << 20, 1)] * 5, 1),
    ],
)
def test_large_results(shapes: list[tuple[int, ...]], dim: int, dtype: torch.dtype) -> None:
    check([random(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)], dim)


def test_results_beyond_four_gigabytes() -> None:
    """Positions need more than 32 bits."""

    def bytes_there(*shape: int) -> torch.Tensor:
        return torch.randint(0, 256, shape, dtype=torch.uint8, device=DEVICE)

    check([bytes_there(1 << 31), bytes_there((1 << 31) + 13)], 0)
    check([bytes_there(1 << 16, 40_000), bytes_there(1 << 16, 40_001)], 1)


def test_offsets_that_are_not_aligned() -> None:
    room = bytes_of(4000, dtype=torch.uint8)
    for offsets in ((1, 2, 3), (0, 5, 9), (8, 4, 2), (15, 16, 17)):
        check([room[offset : offset + 1000] for offset in offsets], 0)
        check([room[offset : offset + 1000].view(10, 100) for offset in offsets], 1)


def test_empty_tensors_are_left_out() -> None:
    """1-D ones whatever the others' shape, as stock does, and those of width 0."""
    a, b, nothing = random(4, 5), random(4, 3), torch.empty(0, device=DEVICE)
    check([nothing, a, nothing, b], 1)
    check([a, torch.empty(4, 0, device=DEVICE), b], 1)


@pytest.mark.parametrize(
    ("reason", "tensors", "dim"),
    [
        ("one tensor", lambda: [random(4, 5)], 0),
        ("mixed dtypes", lambda: [random(4, 5), random(4, 5).double()], 0),
        ("more than 64 tensors", lambda: [random(2, 2)] * 65, 0),
        ("no elements", lambda: [torch.empty(0, device=DEVICE)] * 2, 0),
        ("no elements", lambda: [torch.empty(0, 5, device=DEVICE)] * 2, 0),
        ("channels-last memory", lambda: [random(2, 3, 4, 5).to(memory_format=torch.channels_last)] * 2, 1),
        ("tensors that are not rows of contiguous runs", lambda: [random(4, 5).t(), random(5, 4)], 1),
        ("tensors that are not rows of contiguous runs", lambda: [random(4, 6)[:, :5], random(4, 5)], 0),
    ],
)
def test_what_is_handed_over(reason: str, tensors: object, dim: int) -> None:
    pieces = tensors()
    expected = torch.cat(pieces, dim)
    with handed_over("cat", "aten::cat", reason):
        result = torch.cat(pieces, dim)
    assert result.stride() == expected.stride()
    assert torch.equal(result, expected)


def test_errors_are_those_of_stock() -> None:
    def messages() -> list[str]:
        out = []
        for pieces, dim in (
            ([random(4, 5), random(3, 6)], 0),
            ([random(4, 5), random(4)], 0),
            ([random(4, 5)] * 2, 2),
            ([random(4)[0]] * 2, 0),
        ):
            with pytest.raises((RuntimeError, IndexError)) as caught:
                torch.cat(pieces, dim)
            out.append(str(caught.value))
        return out

    expected = messages()
    with switched_on("cat"):
        assert messages() == expected


def test_out_variant() -> None:
    pieces = [random(6, 7), random(6, 9)]
    expected = torch.cat(pieces, 1)
    out = torch.empty(6, 16, device=DEVICE)
    with all_ran("cat", 1, "aten::cat.out"):
        assert torch.cat(pieces, 1, out=out) is out
    assert torch.equal(out, expected)
    room = torch.zeros(6 * 16 + 2, device=DEVICE)
    with all_ran("cat", 1, "aten::cat.out"):
        torch.cat(pieces, 1, out=room[1:97].view(6, 16))  # not aligned
    assert torch.equal(room[1:97].view(6, 16), expected)
    assert room[0] == 0
    assert room[97] == 0
    with handed_over("cat", "aten::cat.out", "out of another size"):
        torch.cat(pieces, 1, out=torch.empty(0, device=DEVICE))
    with handed_over("cat", "aten::cat.out", "out that is not contiguous"):
        torch.cat(pieces, 1, out=torch.empty(16, 6, device=DEVICE).t())
    with pytest.raises(RuntimeError), handed_over("cat", "aten::cat.out", "out shares memory with an input"):
        torch.cat([out, out], 1, out=out.view(-1)[:96].view(6, 16))


def test_gradients() -> None:
    a, b = (random(3, 4, seed=i).double().requires_grad_() for i in range(2))
    with all_ran("cat", 1):
        result = torch.cat([a, b], 1)
    result.square().sum().backward()
    assert torch.equal(a.grad, 2 * a.detach())
    assert torch.equal(b.grad, 2 * b.detach())
    with switched_on("cat"):
        assert torch.autograd.gradcheck(lambda *t: torch.cat(t, 1), (a, b))
        assert torch.autograd.gradgradcheck(lambda *t: torch.cat(t, 1), (a, b))


def test_modes() -> None:
    """inference_mode, autocast, vmap and fake tensors give what they give without it."""
    a, b = random(4, 5), random(4, 6)
    expected = torch.cat([a, b], 1)
    with all_ran("cat", 3):
        with torch.inference_mode():
            assert torch.cat([a, b], 1).is_inference()
        with torch.autocast(torch.device(DEVICE).type, dtype=torch.bfloat16):
            assert torch.equal(torch.cat([a, b], 1), expected)
        batched = torch.vmap(lambda x, y: torch.cat([x, y], 0))(a, b)
    assert torch.equal(batched, expected)
    from torch._subclasses.fake_tensor import FakeTensorMode

    with switched_on("cat") as overrides:
        with FakeTensorMode():
            fake = torch.cat([torch.empty(2, 3, device=DEVICE)] * 2)
        assert sum(overrides.ran("cat").values()) == 0
    assert fake.shape == (4, 3)


def test_compiled_code_gives_the_same() -> None:
    a, b = random(4, 5), random(4, 6)
    with switched_on("cat"):
        result = torch.compile(lambda x, y: torch.cat([x, y], 1), fullgraph=True)(a, b)
    assert torch.equal(result, torch.cat([a, b], 1))


def test_off_leaves_no_trace(recwarn: pytest.WarningsRecorder) -> None:
    before = dispatch_tables("cat")
    for _ in range(3):
        with all_ran("cat", 1):
            assert dispatch_tables("cat") != before
            torch.cat([random(2, 3)] * 2)
        assert dispatch_tables("cat") == before
    assert not recwarn.list


def test_auto_goes_by_what_was_measured() -> None:
    pieces = [random(64, 512)] * 2
    with switched_on("cat", forced=False) as overrides:
        result = torch.cat(pieces, 1)
        ran, reasons = overrides.ran("cat")["aten::cat"], overrides.handed_over("cat")["aten::cat"]
    assert (ran, reasons) in ((1, {}), *((0, {reason: 1}) for reason in LEFT_BY_AUTO))
    assert torch.equal(result, torch.cat(pieces, 1))


def test_captured_in_a_graph() -> None:
    a, b = random(64, 513), random(64, 100)
    with all_ran("cat", 2):
        torch.cat([a, b], 1)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = torch.cat([a, b], 1)
    a.copy_(random(64, 513, seed=5))
    graph.replay()
    assert torch.equal(captured, torch.cat([a, b], 1))


def test_on_the_current_stream() -> None:
    a, b, later = random(64, 513), random(64, 100), random(64, 513, seed=4)
    torch.cuda.synchronize()
    with all_ran("cat", 1), torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(20_000_000)
        x = a.clone()
        x.copy_(later)
        result = torch.cat([x, b], 1)
    torch.cuda.synchronize()
    assert torch.equal(result, torch.cat([later, b], 1))


def test_known_names() -> None:
    assert native().operators("cat") == [("aten::cat", "CUDA"), ("aten::cat.out", "CUDA")]
