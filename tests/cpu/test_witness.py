"""The op calls of a trace are those that torch's own profiler and dispatch modes report in the same run."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import polars as pl
import pytest
from lazily import nn, torch
from op_samples import run_samples

import tracer

sys.path.append(str(Path(__file__).parents[2] / "examples"))

Step = Callable[[], None]
Calls = list[tuple[int, str]]  # how many op calls enclose it, full name of the operator; in order of start


# ---- three models --------------------------------------------------------------------------------


def convolution() -> Step:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Dropout(0.1),
        nn.Flatten(),
        nn.Linear(36, 5),
    )
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)
    images, labels = torch.randn(2, 3, 8, 8), torch.tensor([1, 4])
    return training_step(optimiser, lambda: nn.functional.cross_entropy(model(images), labels))


def transformer() -> Step:
    model = nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, batch_first=True)
    optimiser = torch.optim.AdamW(model.parameters())
    words = torch.randn(2, 5, 8)
    return training_step(optimiser, lambda: model(words).square().mean())


def seq2seq() -> Step:
    from seq2seq_gru import Seq2Seq, batch_of

    model = Seq2Seq(vocabulary=7, hidden=8)
    optimiser = torch.optim.Adam(model.parameters())
    numbers, targets = batch_of(2, 3, 7)

    def loss() -> torch.Tensor:
        logits = model(numbers, targets, teacher_forcing=True)
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return training_step(optimiser, loss)


MODELS = [convolution, transformer, seq2seq]


def training_step(optimiser: torch.optim.Optimizer, loss: Callable[[], torch.Tensor]) -> Step:
    """Two steps behind a first one, which makes the optimiser's state and is done here."""

    def step() -> None:
        for _ in range(2):
            optimiser.zero_grad()
            loss().backward()
            nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], 1.0)
            optimiser.step()

    step()
    return step


# ---- programs in which kernels call their own operator again, or are called boxed ----------------


def autocast() -> Step:
    step = transformer()

    def run() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            step()

    return run


def mode() -> Step:
    from logging_mode import Logging

    step = transformer()

    def run() -> None:
        with Logging():
            step()

    return run


def vmap_of_grad() -> Step:
    weight, words = torch.randn(4, 4), torch.randn(3, 4)
    gradient = torch.func.grad(lambda weight, word: (word @ weight).tanh().sum())
    return lambda: (
        torch.vmap(gradient, in_dims=(None, 0))(weight, words),
        torch.vmap(lambda word: word[1:].expand(2, 3).narrow(0, 0, 1).roll(1))(words),
    )


def functionalize() -> Step:
    def change(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y.view(-1)[:2].add_(1).clamp_(max=2)
        y.t().mul_(2)
        return y

    return lambda: torch.func.functionalize(change)(torch.randn(3, 3))


def conjugated() -> Step:
    a = torch.randn(3, 3, dtype=torch.cfloat)
    return lambda: (torch.mm(a.conj(), a.conj().imag + a).sin_(), a.conj().add_(a), a.mH.exp().cumsum(0))


def meta_and_sparse() -> Step:
    a = torch.randn(3, 3)
    return lambda: (
        torch.nn.functional.softmax(a.to("meta"), -1),
        a.to_sparse() @ a,
        torch.sparse.sum(a.to_sparse() * 2),
        torch._efficientzerotensor((3, 3)) + a,
        torch.linalg.svd(a),
        torch.nested.nested_tensor([a, a[:2]]).relu() + 1,
    )


def boxed_calls() -> Step:
    a = torch.randn(3, 3, requires_grad=True)
    graph = torch.jit.trace(lambda x: torch.relu(x @ x).cumsum(0) + torch.zeros(3), (torch.ones(3, 3),))
    graph(a)
    graph(a)

    def run() -> None:
        a.grad = None
        graph(a).sum().backward()
        torch.ops.aten.addmm.default(a, a, a).sum().backward()
        torch.ops.aten.index.Tensor(a, [None, torch.tensor([0, 2])])

    return run


def under_a_mode() -> Step:
    """The Python dispatcher passes calls on at its own key."""
    from torch._dispatch.python import enable_python_dispatcher
    from torch.utils._python_dispatch import TorchDispatchMode

    class Passes(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, arguments=(), keywords=None):
            return op(*arguments, **keywords or {})

    def run() -> None:
        with Passes(), enable_python_dispatcher():
            a = torch.randn(3, 3, requires_grad=True)
            (a.erf() @ a).logsumexp(1).sum().backward()

    return run


def exported() -> Step:
    net = nn.Sequential(nn.Linear(4, 3), nn.Softplus())
    batch = torch.export.Dim("batch")
    return lambda: torch.export.export(net, (torch.randn(5, 4),), dynamic_shapes=({0: batch},)).module()(
        torch.randn(2, 4)
    )


def made_by_fx() -> Step:
    from torch.fx.experimental.proxy_tensor import make_fx

    gradient = torch.func.grad(lambda x: (x.cumsum(0) * x.atan()).sum())
    return lambda: make_fx(gradient, tracing_mode="symbolic")(torch.randn(4))


def compiled() -> Step:
    weight = torch.randn(3, 3, requires_grad=True)

    def step() -> None:
        torch._dynamo.reset()
        function = torch.compile(
            lambda x: (x @ weight).tanh().var(1), backend="aot_eager_decomp_partition", dynamic=True
        )
        function(torch.randn(4, 3)).sum().backward()

    return step


COMPILERS = [under_a_mode, exported, made_by_fx, compiled]
PROGRAMS = [autocast, mode, vmap_of_grad, functionalize, conjugated, meta_and_sparse, boxed_calls]


# ---- what tracer saw -----------------------------------------------------------------------------


def traced_calls(hops: pl.DataFrame, leave_out: set[str] = frozenset()) -> dict[int, Calls]:
    """The op calls of each thread; those of operators in `leave_out` do not count as enclosing either."""
    level: dict[int, int] = {}
    calls: dict[int, Calls] = {}
    columns = hops.select("id", "parent", "thread", pl.col("kind", "op").cast(pl.String))
    for hop in columns.iter_rows(named=True):
        enclosing = level.get(hop["parent"], 0)
        counts = hop["kind"] == "call" and hop["op"].partition(".")[0] not in leave_out
        if counts:
            calls.setdefault(hop["thread"], []).append((enclosing, hop["op"]))
        level[hop["id"]] = enclosing + counts
    return calls


# ---- what torch says -----------------------------------------------------------------------------


class String(ctypes.Structure):
    """std::string of libstdc++."""

    _fields_ = (("text", ctypes.c_char_p), ("size", ctypes.c_size_t), ("local", ctypes.c_char * 16))


class OperatorName(ctypes.Structure):
    """c10::OperatorName."""

    _fields_ = (("name", String), ("overload", String))


def unobserved_operators() -> set[str]:
    """Operators that the profiler never reports: c10's list, asked by the function that reads it."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    is_observed = library["_ZN3c1017ObservedOperators10isObservedERKNS_12OperatorNameE"]
    is_observed.restype = ctypes.c_bool

    def observed(name: str) -> bool:
        text = name.encode()
        return is_observed(ctypes.byref(OperatorName(String(text, len(text)), String(b"", 0))))

    return {name for name in (name.partition(".")[0] for name in operators()) if not observed(name)}


def skipped_operators() -> set[str]:
    """Operators of which the profiler leaves out calls: prims, which torch.library.custom_op makes.

    Since torch 2.14 a call of their overload (torch.ops.prims.add.default, which torch._refs.add calls) goes
    through a dispatcher for Python objects, where the profiler is not asked. One of the packet
    (torch.ops.prims.add) does not.
    """
    names = (name for name in operators() if name.startswith("prims::"))
    overloads = (getattr(torch.ops.prims, name.removeprefix("prims::")).default for name in names)
    return {each.name() for each in overloads if getattr(each, "_pyobj_dispatcher", None) is not None}


def operators() -> set[str]:
    return set(torch._C._dispatch_get_all_op_names())


def profiled_calls(profiler: torch.profiler.profile, leave_out: set[str]) -> dict[int, Calls]:
    """The op calls of each of torch's threads, nested by time. Ranges and autograd nodes are no operators."""
    known = operators() - leave_out
    events = []
    for event in profiler.profiler.kineto_results.events():
        name = f"{event.name()}.{event.overload_name()}".rstrip(".")
        if name in known:
            events.append((event.start_thread_id(), event.start_ns(), -event.end_ns(), name))
    calls: dict[int, Calls] = {}
    open_until: dict[int, list[int]] = {}
    for thread, start, negative_end, name in sorted(events):
        ends = open_until.setdefault(thread, [])
        while ends and ends[-1] <= start:
            ends.pop()
        calls.setdefault(thread, []).append((len(ends), name))
        ends.append(-negative_end)
    return calls


# ---- both ----------------------------------------------------------------------------------------


def in_threads(steps: Iterable[Step]) -> None:
    threads = [threading.Thread(target=step) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def profiled_and_traced(folder: Path, run: Step) -> tuple[list[Calls], list[Calls]]:
    """The op calls of each thread, as the profiler and as tracer saw them, the longest first."""
    from torch.profiler import ProfilerActivity, profile

    config = torch._C._profiler._ExperimentalConfig(profile_all_threads=True, capture_overload_names=True)
    with (
        tracer.record(folder / "witness.trace"),
        profile(activities=[ProfilerActivity.CPU], experimental_config=config) as profiler,
    ):
        run()
    skipped = skipped_operators()
    profiled = profiled_calls(profiler, skipped)
    traced = traced_calls(tracer.load(folder / "witness.trace").hops, unobserved_operators() | skipped)
    return (
        sorted(profiled.values(), key=len, reverse=True),
        sorted(traced.values(), key=len, reverse=True),
    )


def first_difference(expected: Calls, found: Calls) -> str:
    for index, pair in enumerate(zip(expected, found, strict=False)):
        if pair[0] != pair[1]:
            return f"call {index}: profiler {expected[index : index + 4]}, tracer {found[index : index + 4]}"
    return "" if len(expected) == len(found) else f"{len(expected)} calls, tracer has {len(found)}"


def test_unobserved_operators_are_told_apart() -> None:
    unobserved = unobserved_operators()
    assert "profiler::_record_function_exit" in unobserved
    assert "aten::mm" not in unobserved
    assert len(unobserved) < 20


@pytest.mark.promise("tracer.record", "docs/reliability.md")
@pytest.mark.parametrize("model", MODELS)
def test_profiler(tmp_path: Path, model: Callable[[], Step]) -> None:
    (expected,), (found,) = profiled_and_traced(tmp_path, model())
    assert len(expected) > 200
    assert not first_difference(expected, found)


def test_profiler_on_every_thread(tmp_path: Path) -> None:
    steps = [model() for model in MODELS]
    expected, found = profiled_and_traced(tmp_path, lambda: in_threads(steps))
    assert len(expected) == len(found) == len(MODELS)
    assert [first_difference(*pair) for pair in zip(expected, found, strict=True)] == [""] * len(MODELS)


@pytest.mark.parametrize("program", PROGRAMS + COMPILERS)
def test_profiler_where_calls_look_like_redispatches(tmp_path: Path, program: Callable[[], Step]) -> None:
    (expected,), (found,) = profiled_and_traced(tmp_path, program())
    assert len(expected) > 5
    assert not first_difference(expected, found)


def test_calls_that_the_profiler_skips(tmp_path: Path) -> None:
    """An operator of torch.library.custom_op, called in both ways: tracer has both calls in every release."""
    from torch.profiler import ProfilerActivity, profile

    a = torch.ones(2, device="meta")
    add = torch.ops.prims.add
    add.default(a, a)  # what is done once is done
    with tracer.record(tmp_path / "both.trace"), profile(activities=[ProfilerActivity.CPU]) as profiler:
        add.default(a, a)
        add(a, a)
    inside = ["aten::empty_permuted", "aten::empty", "aten::as_strided"]
    (found,) = traced_calls(tracer.load(tmp_path / "both.trace").hops).values()
    called = [(0, "prims::add"), (1, "aten::empty_permuted"), (2, "aten::empty"), (2, "aten::as_strided")]
    assert [(depth, op.partition(".")[0]) for depth, op in found] == called * 2
    first = inside if "prims::add" in skipped_operators() else ["prims::add", *inside]
    assert [event.name for event in profiler.events()] == [*first, "prims::add", *inside]


@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.slow)])
def test_profiler_over_the_operator_database(tmp_path: Path, every: int) -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    (expected,), (found,) = profiled_and_traced(
        tmp_path, lambda: run_samples(op_db[::every], samples=1, dtypes=2)
    )
    print(f"{len(expected):,} op calls")
    assert len(expected) > 10 * len(op_db) / every
    assert not first_difference(expected, found)


@pytest.mark.parametrize("model", MODELS + PROGRAMS)
def test_without_the_profiler_the_calls_are_the_same(tmp_path: Path, model: Callable[[], Step]) -> None:
    """A profiler sends all calls through the dispatcher's slow path, so the other one is compared here."""
    step = model()
    (_,), (expected,) = profiled_and_traced(tmp_path, step)
    with tracer.record(tmp_path / "alone.trace"):
        step()
    left_out = unobserved_operators() | skipped_operators()
    (found,) = traced_calls(tracer.load(tmp_path / "alone.trace").hops, left_out).values()
    assert not first_difference(expected, found)


@pytest.mark.parametrize("model", MODELS)
def test_dispatch_mode(tmp_path: Path, model: Callable[[], Step]) -> None:
    from logging_mode import Logging

    step = model()
    with tracer.record(tmp_path / "mode.trace"), Logging() as mode:
        step()
    hops = tracer.load(tmp_path / "mode.trace").hops
    found = hops.filter(pl.col("key") == "Python")["op"].cast(pl.String).to_list()
    assert len(found) > 100
    assert found == mode.dispatched
    assert set(mode.direct) <= {"aten::detach"}
