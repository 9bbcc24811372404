"""Every hop of every op call, at every key that runs a kernel, on every thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from lazily import nn, pytree, torch
from recorded import chain, hops_of, keys_of

import tracer
from tracer.trace.bytes import format as fmt


@pytest.mark.promise("tracer.record", "docs/api.md#a-trace-as-tables")
def test_matmul_goes_the_whole_way(tmp_path: Path) -> None:
    a = torch.randn(3, 4, requires_grad=True)
    b = torch.randn(4, 5)
    hops = hops_of(tmp_path, lambda: torch.matmul(a, b))
    assert chain(hops)[:4] == [
        ("aten::matmul", "AutogradCPU", "call"),
        ("aten::mm", "AutogradCPU", "call"),
        ("aten::mm", "ADInplaceOrView", "redispatch"),
        ("aten::mm", "CPU", "redispatch"),
    ] or chain(hops)[:3] == [
        ("aten::matmul", "AutogradCPU", "call"),
        ("aten::mm", "AutogradCPU", "call"),
        ("aten::mm", "CPU", "redispatch"),
    ]
    mm = hops.filter((pl.col("op") == "aten::mm") & (pl.col("key") == "CPU")).row(0, named=True)
    assert mm["kernel"] == "wrapper_CPU_mm"
    assert "RegisterCPU" in mm["registered_at"]
    assert mm["rule"] == "kernel"
    assert mm["raised"] is False
    assert mm["open"] is False
    assert mm["end_ns"] > mm["start_ns"] > 0
    matmul = hops.row(0, named=True)
    assert mm["self_ns"] <= mm["end_ns"] - mm["start_ns"] <= matmul["end_ns"] - matmul["start_ns"]


def test_inputs_are_shapes_strides_types_and_devices(tmp_path: Path) -> None:
    a = torch.randn(3, 4, requires_grad=True)
    b = torch.randn(5, 4, dtype=torch.float32).t()
    with tracer.record(tmp_path / "t.trace"):
        torch.mm(a, b)
    trace = tracer.load(tmp_path / "t.trace")
    first = trace.hops.row(0, named=True)
    rows = trace.signatures.filter(pl.col("id") == first["inputs"]).sort("position").to_dicts()
    assert [(row["position"], row["shape"], row["stride"]) for row in rows] == [
        (0, [3, 4], [4, 1]),
        (1, [4, 5], [1, 4]),
    ]
    assert [row["requires_grad"] for row in rows] == [True, False]
    assert {row["dtype"] for row in rows} == {"torch.float32"}
    assert {row["device"] for row in rows} == {"cpu"}
    assert {row["layout"] for row in rows} == {"torch.strided"}


def test_inputs_say_what_requires_grad(tmp_path: Path) -> None:
    leaf, plain, later = torch.ones(4, requires_grad=True), torch.ones(4), torch.ones(4)
    view_of_later = later.view(2, 2)
    later.requires_grad_()  # in newer torch its view requires it then, too
    tensors = [leaf, plain, leaf * 2, leaf.detach(), leaf.view(2, 2), plain.view(2, 2), later, view_of_later]
    with tracer.record(tmp_path / "t.trace"):
        for tensor in tensors:
            torch.neg(tensor)
    trace = tracer.load(tmp_path / "t.trace")
    said = dict(zip(trace.signatures["id"], trace.signatures["requires_grad"], strict=True))
    inputs = trace.hops.filter((pl.col("op") == "aten::neg") & pl.col("parent").is_null())["inputs"]
    assert [said[number] for number in inputs] == [tensor.requires_grad for tensor in tensors]
    assert {True, False} == set(said.values())


def inputs_of(trace: tracer.Trace, op: str) -> list[list[dict[str, Any]]]:
    """For each outermost hop of an op its tensor arguments, by position."""
    hops = trace.hops.filter(pl.col("parent").is_null() & (pl.col("op") == op))
    described = {id: rows.sort("position").to_dicts() for (id,), rows in trace.signatures.group_by("id")}
    return [described[inputs] for inputs in hops["inputs"]]


def test_no_two_inputs_are_taken_for_each_other(tmp_path: Path) -> None:
    shapes = [
        (),
        (0,),
        (1,),
        (2,),
        (3,),
        (1, 1),
        (3, 1),
        (1, 3),
        (2, 3),
        (3, 2),
        (0, 3),
        (2, 1, 1),
        (2, 3, 4),
        (5, 1, 1, 1),
    ]
    tensors = [torch.ones(shape) for shape in shapes] + [
        torch.ones(3, 2).t(),
        torch.ones(4, 3, 2).permute(2, 1, 0),
    ]
    tensors += [torch.ones((), dtype=torch.bool), torch.ones(6)[::2], torch.ones(1).expand(3)]
    pairs = [(a, b) for a in tensors for b in tensors]
    with tracer.record(tmp_path / "t.trace"):
        for a, b in pairs:
            torch.equal(a, b)
    recorded = inputs_of(tracer.load(tmp_path / "t.trace"), "aten::equal")
    assert [[(row["shape"], row["stride"], row["dtype"]) for row in rows] for rows in recorded] == [
        [(list(each.shape), list(each.stride()), str(each.dtype)) for each in pair] for pair in pairs
    ]


def test_thousands_of_inputs_that_differ_in_single_numbers_are_told_apart(tmp_path: Path) -> None:
    numbers = [(size, stride) for size in (1, 2, 3) for stride in (0, 1, 2, 3)]
    tensors = [torch.empty_strided((m, n), (s, t)) for m, s in numbers for n, t in numbers]
    pairs = [(a, b) for a in tensors for b in tensors]
    with tracer.record(tmp_path / "t.trace"):
        for a, b in pairs:
            torch.is_same_size(a, b)
    recorded = inputs_of(tracer.load(tmp_path / "t.trace"), "aten::is_same_size")
    assert [[(*row["shape"], *row["stride"]) for row in rows] for rows in recorded] == [
        [(*each.shape, *each.stride()) for each in pair] for pair in pairs
    ]


def test_a_tensor_that_answers_in_a_way_of_its_own_is_not_taken_for_a_plain_one(tmp_path: Path) -> None:
    # These have the dispatch keys of a plain tensor.
    plain = torch.ones(2)
    own_layout = torch.Tensor._make_subclass(torch.Tensor, torch.ones(2), False, dispatch_layout=True)
    own_device = torch.Tensor._make_subclass(torch.Tensor, torch.ones(2), False, dispatch_device=True)
    with tracer.record(tmp_path / "t.trace"):
        for tensor in (plain, own_layout, own_device, plain):
            torch.is_same_size(plain, tensor)
    recorded = inputs_of(tracer.load(tmp_path / "t.trace"), "aten::is_same_size")
    facts = [tuple(second[name] for name in ("shape", "device", "layout")) for _, second in recorded]
    known = ([2], "cpu", "torch.strided")
    assert facts == [known, ([2], "cpu", None), ([2], None, "torch.strided"), known]


def test_names_that_differ_in_single_letters_are_told_apart(tmp_path: Path) -> None:
    names = [f"{one}{'-' * length}{other}" for length in range(40) for one in "0123" for other in "0123"]
    x = torch.ones(2)
    with tracer.record(tmp_path / "t.trace"):
        for name in names:
            with torch.profiler.record_function(name):
                x.exp()
    hops = tracer.load(tmp_path / "t.trace").hops
    outermost = hops.filter(pl.col("parent").is_null() & (pl.col("op") == "aten::exp"))
    assert outermost["range"].cast(pl.String).to_list() == names


def test_tensor_lists_and_boxed_calls_have_inputs(tmp_path: Path) -> None:
    a, b = torch.randn(2, 3), torch.randn(4, 3)
    with tracer.record(tmp_path / "t.trace"):
        torch.cat([a, b])
        torch.ops.aten.index.Tensor(a, [None, torch.tensor([0, 2])])
    trace = tracer.load(tmp_path / "t.trace")
    for op, shapes in (("aten::cat", [[2, 3], [4, 3]]), ("aten::index.Tensor", [[2, 3], [2]])):
        hop = trace.hops.filter(pl.col("op") == op).row(0, named=True)
        assert trace.signatures.filter(pl.col("id") == hop["inputs"])["shape"].to_list() == shapes


def test_no_shapes_and_no_source(tmp_path: Path) -> None:
    hops = hops_of(tmp_path, lambda: torch.ones(2) + 1, shapes=False, source=False)
    assert len(hops) > 2
    assert hops["inputs"].null_count() == len(hops)
    assert hops["source"].null_count() == len(hops)


def test_source_is_the_line_of_the_caller(tmp_path: Path) -> None:
    linear = nn.Linear(3, 3)
    x = torch.randn(2, 3)
    line = test_source_is_the_line_of_the_caller.__code__.co_firstlineno + 5
    with tracer.record(tmp_path / "t.trace"):
        linear(x)  # through nn/modules: those frames are torch's own
    hops = tracer.load(tmp_path / "t.trace").hops
    assert hops.row(0, named=True)["source"] == f"{__file__}:{line}"


def test_source_below_many_frames_of_torch_that_c_calls(tmp_path: Path) -> None:
    """From Python 3.12 on, each call of Python from C has a frame beside the one of the function."""
    names: dict[str, Any] = {"torch": torch}
    text = "def run(depth):\n    sorted([depth - 1], key=run) if depth else torch.ones(2)\n    return 0\n"
    exec(compile(text, str(Path(torch.__file__).parent / "made.py"), "exec"), names)
    line = test_source_below_many_frames_of_torch_that_c_calls.__code__.co_firstlineno + 7
    with tracer.record(tmp_path / "t.trace"):
        names["run"](100)
    assert set(tracer.load(tmp_path / "t.trace").hops["source"]) == {f"{__file__}:{line}"}


def test_source_in_generators_and_comprehensions(tmp_path: Path) -> None:
    line = test_source_in_generators_and_comprehensions.__code__.co_firstlineno + 4

    def generate() -> Iterator[torch.Tensor]:
        yield torch.neg(x)
        yield from (torch.exp(x) for _ in range(2))

    x = torch.ones(2)
    with tracer.record(tmp_path / "t.trace"):
        for tensor in generate():
            tensor.sin()
        [y.cos() for y in [x]]
        sorted([x], key=torch.tan)
    hops = tracer.load(tmp_path / "t.trace").hops.filter(kind="call")
    places = {"neg": 0, "exp": 1, "sin": 6, "cos": 7, "tan": 8}
    lines = {op: {f"{__file__}:{line + place}"} for op, place in places.items()}
    found = {op: set(hops.filter(pl.col("op").cast(pl.String) == f"aten::{op}")["source"]) for op in lines}
    assert found == lines


def backward_of(tmp_path: Path) -> pl.DataFrame:
    weight = torch.randn(4, 4, requires_grad=True)
    x = torch.randn(2, 4)
    with tracer.record(tmp_path / "t.trace"):
        y = torch.mm(x, weight)
        z = y.relu()
        z.sum().backward()
    return tracer.load(tmp_path / "t.trace").hops


def test_backward_hops_link_to_the_forward_hop_and_line(tmp_path: Path) -> None:
    hops = backward_of(tmp_path)
    first = backward_of.__code__.co_firstlineno
    backward = hops.filter(
        pl.col("backward_node").is_not_null()
        & pl.col("backward_node").cast(pl.String).str.contains("MmBackward0")
    )
    assert len(backward) > 0
    for hop in backward.iter_rows(named=True):
        forward = hops.filter(pl.col("id") == hop["forward_hop"]).row(0, named=True)
        assert (forward["op"], forward["key"]) == ("aten::mm", "AutogradCPU")
        assert hop["source"].endswith(f":{first + 4}")
        assert hop["called_from"].endswith(f":{first + 6}")
    relu = hops.filter(pl.col("backward_node").cast(pl.String).str.contains("ReluBackward0")).row(
        0, named=True
    )
    assert relu["source"].endswith(f":{first + 5}")


def test_backward_nodes_of_python_functions(tmp_path: Path) -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    x = torch.ones(3, requires_grad=True)
    hops = hops_of(tmp_path, lambda: Double.apply(x).sum().backward())
    names = hops["backward_node"].cast(pl.String).drop_nulls().unique().to_list()
    assert any("DoubleBackward" in name for name in names)


def test_record_function_names_ranges(tmp_path: Path) -> None:
    def run() -> None:
        with torch.profiler.record_function("outer"):
            torch.ones(2)
            with torch.profiler.record_function("inner"):
                torch.zeros(2)
        torch.rand(2)

    hops = hops_of(tmp_path, run)
    ranges = {
        row["op"]: row["range"]
        for row in hops.iter_rows(named=True)
        if row["op"] in ("aten::ones", "aten::zeros", "aten::rand")
    }
    assert ranges == {"aten::ones": "outer", "aten::zeros": "inner", "aten::rand": None}


def _in_mode() -> None:
    class Counting(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Counting():
        torch.ones(2) + 1


def _wrapped() -> torch.Tensor:
    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, inner: torch.Tensor) -> torch.Tensor:
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner: torch.Tensor) -> None:
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            bare = pytree.tree_map(lambda t: t.inner if isinstance(t, Wrapped) else t, (args, kwargs or {}))
            return pytree.tree_map(
                lambda t: Wrapped(t) if isinstance(t, torch.Tensor) else t, func(*bare[0], **bare[1])
            )

    return Wrapped(torch.ones(2))


def _autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.mm(torch.ones(2, 2), torch.ones(2, 2))


def _functionalize() -> None:
    torch.func.functionalize(lambda x: x.add_(1))(torch.ones(2))


def _nested() -> None:
    torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]) + 1


@pytest.mark.parametrize(
    ("run", "keys"),
    [
        (lambda: torch.ones(2), {"BackendSelect", "CPU"}),
        (lambda: torch.ones(2, requires_grad=True).view(2), {"AutogradCPU", "ADInplaceOrView"}),
        (_autocast, {"AutocastCPU"}),
        (_functionalize, {"Functionalize"}),
        (lambda: torch.vmap(torch.sin)(torch.ones(3)), {"FuncTorchBatched"}),
        (
            lambda: torch.func.grad(lambda x: x.sin().sum())(torch.ones(3)),
            {"FuncTorchDynamicLayerFrontMode", "FuncTorchDynamicLayerBackMode"},
        ),
        (
            lambda: torch.vmap(torch.func.grad(torch.sin))(torch.ones(3)),
            {"FuncTorchBatched", "FuncTorchDynamicLayerFrontMode"},
        ),
        (
            lambda: torch.func.jvp(torch.sin, (torch.ones(3),), (torch.ones(3),)),
            {"FuncTorchDynamicLayerFrontMode"},
        ),
        (_in_mode, {"Python", "CPU"}),
        (lambda: _wrapped() + 1, {"Python", "CPU"}),
        (lambda: torch.ones(2, dtype=torch.cfloat).conj() + 1, {"Conjugate"}),
        (lambda: torch.ones(2, dtype=torch.cfloat).conj().imag + 1, {"Negative"}),
        (lambda: torch._efficientzerotensor(2) + torch.ones(2), {"ZeroTensor"}),
        (lambda: torch.ones(2, device="meta") + 1, {"Meta"}),
        (lambda: torch.eye(3).to_sparse() * 2, {"SparseCPU"}),
        (
            lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8).dequantize(),
            {"QuantizedCPU"},
        ),
        (_nested, {"NestedTensorCPU"}),
    ],
)
def test_keys(tmp_path: Path, run, keys: set[str]) -> None:
    assert keys <= keys_of(hops_of(tmp_path, run))


def test_every_thread(tmp_path: Path) -> None:
    def run() -> None:
        threads = [threading.Thread(target=lambda: [torch.ones(2) for _ in range(10)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    hops = hops_of(tmp_path, run)
    counts = hops.filter((pl.col("op") == "aten::ones") & (pl.col("kind") == "call")).group_by("thread").len()
    assert counts["len"].sum() == 40
    assert 1 <= len(counts) <= 4


def test_exceptions_are_marked_on_each_hop_they_leave(tmp_path: Path) -> None:
    def run() -> None:
        with pytest.raises(RuntimeError):
            torch.mm(torch.ones(2, 3), torch.ones(2, 3))
        torch.ones(1)

    hops = hops_of(tmp_path, run)
    assert set(hops.filter(pl.col("raised"))["op"].cast(pl.String)) == {"aten::mm"}
    assert hops.filter(pl.col("op") == "aten::ones")["raised"].to_list().count(True) == 0
    assert hops["open"].sum() == 0


@pytest.mark.promise("tracer.record", "docs/how_it_works.md")
def test_operators_and_kernels_registered_while_recording(tmp_path: Path) -> None:
    with tracer.record(tmp_path / "t.trace"):
        with torch.library._scoped_library("tracertest", "FRAGMENT") as library:
            library.define("late(Tensor x) -> Tensor")
            library.impl("late", lambda x: x + 1, "CPU")
            torch.ops.tracertest.late(torch.ones(2))
        with torch.library._scoped_library("aten", "IMPL") as library:
            library.impl("mul.Tensor", lambda a, b: torch.full((2,), 7.0), "CPU")
            assert torch.mul(torch.ones(2), torch.ones(2))[0] == 7
        assert torch.mul(torch.ones(2), torch.ones(2))[0] == 1
    trace = tracer.load(tmp_path / "t.trace")
    late = trace.hops.filter(pl.col("op") == "tracertest::late")
    assert "CPU" in set(late["key"].cast(pl.String))
    assert any("test_capture.py:" in kernel for kernel in late["kernel"].cast(pl.String))
    mul = (
        trace.hops.filter((pl.col("op") == "aten::mul.Tensor") & (pl.col("key") == "CPU"))["kernel"]
        .cast(pl.String)
        .to_list()
    )
    assert len(mul) == 2
    assert "test_capture.py:" in mul[0]
    assert mul[1] == "wrapper_CPU_mul_Tensor"
    assert trace.certificate["rearmed"] > 0
    assert not trace.certificate["lost_entries"]


@pytest.mark.promise("tracer.record", "docs/cost.md", "docs/trace_format.md")
def test_hops_cost_at_most_56_bytes_and_one_mm_fits_64_kib(tmp_path: Path) -> None:
    a = torch.ones(2, 2)
    with tracer.record(tmp_path / "one.trace") as one:
        torch.mm(a, a)
    with tracer.record(tmp_path / "many.trace", shapes=False, source=False) as many:
        for _ in range(20_000):
            torch.mm(a, a)
    assert (tmp_path / "one.trace").stat().st_size <= 64 * 1024
    assert one.summary is not None
    assert many.summary is not None
    fixed = (tmp_path / "one.trace").stat().st_size
    size = (tmp_path / "many.trace").stat().st_size
    headers = fmt.CHUNK_HEADER.size * (1 + size // 2**20)  # of the chunks of 1 MiB that hops lie in
    assert size <= 56 * many.summary.hops + fixed + headers
