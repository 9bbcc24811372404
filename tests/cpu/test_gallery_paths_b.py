"""More entries of examples/gallery: devices, timing, one's own kernels, sparsity, parts of a translator."""

from __future__ import annotations

import importlib.util
import itertools
import re
import runpy
import shutil
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest
from launching import Launcher
from lazily import torch
from programs import at, values, way, ways, whole

import tracer
from tracer.trace.certificate.verdict import NOT_JOINED

pytestmark = pytest.mark.gallery

GALLERY = Path(__file__).resolve().parents[2] / "examples" / "gallery"
AUTOGRAD = "torch::autograd::VariableType::"


@dataclass(frozen=True)
class Entry:
    """One script of the gallery, recorded: its output and its hops."""

    name: str
    out: str
    trace: tracer.Trace

    @cached_property
    def hops(self) -> pl.DataFrame:
        return self.trace.hops.with_columns(pl.col("op", "key", "kind", "kernel", "source").cast(pl.String))

    def on(self, text: str) -> pl.DataFrame:
        """The forward hops of the only line of the script that holds the text."""
        lines = (GALLERY / f"{self.name}.py").read_text().splitlines()
        (number,) = [number for number, line in enumerate(lines, 1) if text in line]
        of_line = pl.col("source").str.ends_with(f"{self.name}.py:{number}")
        return self.hops.filter(of_line & pl.col("backward_node").is_null())

    def numbers(self, pattern: str) -> list[float]:
        """What the groups of the pattern, which is there once, hold in the output."""
        (found,) = re.findall(pattern, self.out)
        return [float(text.replace(",", "")) for text in ([found] if isinstance(found, str) else found)]


def shown(hops: pl.DataFrame) -> list[str]:
    """`op [key]` of each hop in the order they were entered, `-> ` where it was redispatched."""
    return [
        f"{'-> ' if kind == 'redispatch' else ''}{op} [{key}]"
        for op, key, kind in hops.select("op", "key", "kind").rows()
    ]


def outermost(hops: pl.DataFrame) -> list[str]:
    return hops.filter(pl.col("parent").is_null())["op"].to_list()


def calls(hops: pl.DataFrame) -> Counter[str]:
    """Op calls by operator."""
    return Counter(hops.filter(pl.col("kind") == "call")["op"].to_list())


@pytest.fixture
def launch(launcher: Launcher) -> Launcher:
    launcher.environment["CUDA_VISIBLE_DEVICES"] = ""  # the ways of a GPU are tested in tests/gpu
    return launcher


def recorded(
    launch: Launcher, name: str, *arguments: str, options: tuple[str, ...] = (), lacks: str = ""
) -> Entry:
    run = launch.record("-o", "entry.trace", *options, str(GALLERY / f"{name}.py"), *arguments)
    assert run.status == 0, run.err
    return Entry(name, run.out, whole(tracer.load(launch.folder / "entry.trace"), lacks))


def module(name: str) -> ModuleType:
    """The script, imported: its main() does not run."""
    spec = importlib.util.spec_from_file_location(f"gallery_{name}", GALLERY / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


# ---- devices -------------------------------------------------------------------------------------


def test_no_cuda(launch: Launcher) -> None:
    """Python refuses before any op; the operator itself is refused where it is dispatched."""
    entry = recorded(launch, "no_cuda")
    assert "is_available(): False" in entry.out
    assert "device_count(): 0" in entry.out
    assert "runs on cpu: [[2.0, 2.0], [2.0, 2.0]]" in entry.out
    for refused in ("get_device_name()", 'x.to("cuda")', 'device="cuda")'):
        assert re.search(re.escape(refused) + r": (AssertionError|RuntimeError): \S", entry.out)
    assert len(entry.on("""attempt('x.to("cuda")'""")) == 0
    assert len(entry.on("attempt('torch.ones(2")) == 0
    operator = entry.on('attempt("the operator')
    assert shown(operator)[0] == "aten::empty.memory_format [BackendSelect]"
    assert operator["raised"].all()
    assert way(entry.hops, "aten::mm", "CPU")[-1] == "-> aten::mm [CPU]"


def test_device_facts(launch: Launcher) -> None:
    """A view has no memory and keeps that of the whole; making memory is a hop, giving it back none."""
    entry = recorded(launch, "device_facts")
    mebibytes = {
        name.strip(): float(text) for name, text in re.findall(r"(.+?) +([+-][\d.]+) MiB", entry.out)
    }
    assert mebibytes["empty"] == pytest.approx(0, abs=8)
    assert mebibytes["filled"] == pytest.approx(64, abs=8)
    assert mebibytes["transposed, first row"] == pytest.approx(64, abs=8)
    assert mebibytes["a copy in bf16"] == pytest.approx(96, abs=8)
    assert mebibytes["matrix deleted, row kept"] == pytest.approx(96, abs=8)
    assert mebibytes["row deleted"] == pytest.approx(32, abs=8)
    assert mebibytes["all deleted"] == pytest.approx(0, abs=8)
    assert shown(entry.on("matrix = torch.empty(")) == [
        "aten::empty.memory_format [BackendSelect]",
        "-> aten::empty.memory_format [CPU]",
    ]
    assert not any("empty" in hop for hop in shown(entry.on("row = matrix.t()[0]")))
    for deleted in ("del matrix", "del row", "del half"):
        assert len(entry.on(deleted)) == 0


def test_placement(launch: Launcher) -> None:
    """What changes is a _to_copy to the new place, what does not is one hop."""
    entry = recorded(launch, "placement")
    assert "x.to('cpu') is x: True\nx.to(torch.float32) is x: True\n" in entry.out
    assert shown(entry.on("x.to(torch.float32) is x")) == ["aten::to.dtype [AutogradCPU]"]
    assert shown(entry.on("half = x.to(torch.bfloat16)")) == [
        "aten::to.dtype [AutogradCPU]",
        "aten::_to_copy [AutogradCPU]",
        "-> aten::_to_copy [BackendSelect]",
        "-> aten::_to_copy [CPU]",
        "aten::empty_strided [BackendSelect]",
        "-> aten::empty_strided [CPU]",
        "aten::copy_ [CPU]",
    ]
    for moved in ("there = x.to(OTHER)", "both = x.to(OTHER, torch.bfloat16)"):
        assert shown(entry.on(moved))[-4:] == [
            "-> aten::_to_copy [Meta]",
            "aten::empty_strided [BackendSelect]",
            "-> aten::empty_strided [Meta]",
            "aten::copy_ [Meta]",
        ]
    assert "both: meta, torch.bfloat16" in entry.out
    assert "parameter by parameter: ['meta']" in entry.out
    mixed = entry.on("torch.add(x, there)")
    assert shown(mixed)[:2] == ["aten::add.Tensor [AutogradMeta]", "-> aten::add.Tensor [Meta]"]
    assert mixed["raised"].all()
    assert "two devices in one op: " in entry.out


def test_matmul_by_device_and_dtype(launch: Launcher) -> None:
    """The key is the device's and not the dtype's; a dtype without code raises below it."""
    entry = recorded(launch, "matmul_devices")
    products = entry.on("torch.matmul(a, a)")
    on_cpu, on_meta = at(products, "aten::mm", "CPU"), at(products, "aten::mm", "Meta")
    assert (len(on_cpu), len(on_meta)) == (5 * 6 + 1, 5 * 7)
    assert values(on_cpu, "kernel") == ["wrapper_CPU_mm"]
    assert values(on_meta, "kernel")[0].startswith("torch._meta_registrations.meta_mm")
    assert on_cpu["raised"].to_list() == [False] * 30 + [True]
    assert re.search(r"cpu +bool +.*not implemented for 'Bool'", entry.out)
    assert len(on_cpu["inputs"].unique()) == 7, "a signature for each dtype"
    assert len(re.findall(r"[\d,]+ us", entry.out)) == 6 + 7


# ---- timing, and kernels of one's own --------------------------------------------------------------


def test_a_clock_is_a_process_of_the_timers(launch: Launcher) -> None:
    entry = recorded(launch, "three_timers", "clock")
    for name in ("first call", "warm call", "warm call, waited for"):
        assert entry.numbers(rf'"time.time\(\), {name}": ([\d.]+)')[0] > 0
    square = at(entry.hops, "aten::square")
    assert len(square) == 3 + 3 * 5, "timed, and to warm up"


@pytest.mark.slow
def test_three_timers(launch: Launcher) -> None:
    """Each way times its own calls in its own process; what it says is what tracer saw there."""
    entry = recorded(launch, "three_timers", options=("--cuda", "off"), lacks=NOT_JOINED)
    rows = dict(re.findall(r"^(\S.*?)  +([\d.,]+)$", entry.out, re.MULTILINE))
    says = {name: float(text.replace(",", "")) for name, text in rows.items()}
    assert list(says) == [
        "time.time(), first call",
        "time.time(), warm call",
        "time.time(), warm call, waited for",
        "benchmark timer",
        "autograd profiler",
        "torch.profiler, scheduled",
        "tracer",
    ]
    assert says["time.time(), first call"] > 2 * says["tracer"], "it pays for more than the op"

    square = entry.hops.filter(pl.col("op") == "aten::square")
    processes = square.partition_by("process", maintain_order=True)
    # 20 timed: after 5 warm calls; in the benchmark timer after 2 for each; with one skipped and 5 warm
    assert [len(each) for each in processes] == [18, 5 + 20 * 3, 25, 26], (
        "tracer's own process is not recorded"
    )
    for each, name in zip(processes[2:], ("autograd profiler", "torch.profiler, scheduled"), strict=True):
        timed = each.tail(20)
        seen = (timed["end_ns"] - timed["start_ns"]).median() / 1e3
        assert says[name] == pytest.approx(seen, rel=0.4, abs=5), "the same calls, by two recorders"


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler")
def test_inline_square(launch: Launcher) -> None:
    """The same function: past the dispatcher only what it calls is seen, as an op it is seen itself."""
    launch.environment["TORCH_EXTENSIONS_DIR"] = str(launch.folder)
    entry = recorded(launch, "inline_square")
    assert "both as torch.square: True, True" in entry.out
    past = ["aten::empty_like [AutogradCPU]", "-> aten::empty_like [CPU]"]
    assert shown(entry.on("called = module.square(x)"))[:2] == past
    as_op = entry.on("dispatched = torch.ops.gallery.square(x)")
    assert shown(as_op)[:4] == ["gallery::square [AutogradCPU]", "-> gallery::square [CPU]", *past]
    assert as_op["kernel"].to_list()[:2] == ["fallback: autograd_fallback", "square"]


# ---- sparsity --------------------------------------------------------------------------------------


def test_lottery_ticket(launch: Launcher) -> None:
    """A tenth of the weights does nearly as well; the masks are products more, and no product is smaller."""
    entry = recorded(launch, "lottery_ticket")
    (whole_net,) = entry.numbers(r"100.0% of the weights: ([\d.]+)%")
    (ticket,) = entry.numbers(r"  9.9% of the weights: ([\d.]+)%")
    (control,) = entry.numbers(r"the same masks, new weights: ([\d.]+)%")
    assert whole_net > 95
    assert ticket > whole_net - 10
    assert control < ticket - 10
    zero, multiplied = entry.numbers(r"([\d,]+) of ([\d,]+) weights are zero")
    assert zero / multiplied == pytest.approx(0.9, abs=0.01)

    evaluated = entry.on("return (net(data[0]).argmax(1) == data[1])").filter(pl.col("kind") == "call")
    tests = at(evaluated, "aten::argmax")["id"].to_list()
    of_test = [
        calls(evaluated.filter(pl.col("id").is_between(first, last, closed="left")))
        for first, last in itertools.pairwise([-1, *tests])
    ]
    assert [each["aten::addmm"] for each in of_test] == [3] * 7
    assert [each["aten::mul.Tensor"] for each in of_test] == [0] + [3] * 6, "one a layer once it is pruned"
    inputs = at(evaluated, "aten::addmm")["inputs"].unique()
    signatures = entry.trace.signatures.filter(pl.col("id").is_in(inputs.to_list()))
    shapes = signatures.group_by("id", maintain_order=True).agg(pl.col("shape").sort_by("position"))["shape"]
    assert len({str(each) for each in shapes.to_list()}) == 3, "the products are what they were"


def test_mask_of_training_is_2_4_both_ways() -> None:
    """sparse_training.py needs a GPU; what it prunes with does not."""
    script = module("sparse_training")
    assert len(script.MASKS) == 90
    torch.manual_seed(0)
    weight = torch.randn(32, 64)
    kept = script.pruned(weight)
    for matrix in (kept, kept.t()):
        assert (matrix.reshape(-1, 4) != 0).sum(1).eq(2).all()
    assert torch.equal(kept[kept != 0], weight[kept != 0])
    tile, left = weight[:4, :4], kept[:4, :4].abs().sum()
    best = max((tile.abs().flatten() * mask).sum() for mask in script.MASKS)
    assert left == pytest.approx(best.item())


def test_weight_of_inference_is_2_4() -> None:
    kept = module("sparse_inference").pruned(torch.tensor([[3.0, -4.0, 1.0, 2.0], [0.1, 0.2, -0.4, 0.3]]))
    assert torch.equal(kept, torch.tensor([[3.0, -4.0, 0.0, 0.0], [0.0, 0.0, -0.4, 0.3]]))


# ---- parts of a translator ------------------------------------------------------------------------------


def test_linear_and_its_transposed_weight(launch: Launcher) -> None:
    """A view and one addmm; written out the sum with the bias is an op more."""
    entry = recorded(launch, "linear_transposed")
    assert entry.out.count("the same: True") == 5
    assert "the transposed weight is a view: True" in entry.out
    lines = {
        '"linear(x, weight)": lambda': ["aten::t", "aten::mm"],
        '"x @ weight.t()": lambda': ["aten::t", "aten::mm"],
        '"x @ a copy, transposed before": lambda': ["aten::mm"],
        '"linear(x, weight, bias)": lambda': ["aten::t", "aten::addmm"],
        '"x @ weight.t() + bias": lambda': ["aten::t", "aten::mm", "aten::add.Tensor"],
    }
    for line, expected in lines.items():
        made = calls(entry.on(line).filter(pl.col("key") == "AutogradCPU"))
        made.pop("aten::linear", None)
        made.pop("aten::matmul", None)
        assert dict(made) == dict.fromkeys(expected, 31), line
    turned = entry.on('"linear(x, weight)": lambda')
    assert not any("copy" in op or "clone" in op for op in turned["op"]), "the view is all there is"


def test_embedding_and_one_hot_rows(launch: Launcher) -> None:
    entry = recorded(launch, "embedding_onehot")
    assert "the same rows: True\nrows where the gradients differ: [0], of the lookup it is 0\n" in entry.out
    assert "rows with a gradient: 4 of 5,000" in entry.out
    assert "a bag is lookup and sum: True" in entry.out
    lookup, product = entry.on("return table(tokens)"), entry.on("return one_hot(tokens, ROWS)")
    assert shown(lookup)[:3] == [
        "aten::embedding [AutogradCPU]",
        "-> aten::embedding [CPU]",
        "aten::index_select [CPU]",
    ]
    assert "aten::mm" not in calls(lookup)
    assert calls(product)["aten::mm"] == 1
    assert "aten::index_select" not in calls(product)
    backward = entry.hops.filter(pl.col("backward_node").is_not_null())
    assert calls(backward)["aten::embedding_dense_backward"] == 1
    bag = entry.on("a bag is lookup and sum")
    assert any("_embedding_bag" in op for op in bag["op"])


def test_dropout(launch: Launcher) -> None:
    """Three ops in training, in evaluation a hop with nothing below it."""
    entry = recorded(launch, "dropout_modes")
    assert "backward: the same mask, True" in entry.out
    assert "evaluation: the input itself comes back, True" in entry.out
    assert "the same seed gives the same mask, True" in entry.out
    (dropped,) = entry.numbers(r"training: ([\d.]+)% dropped")
    assert dropped == pytest.approx(25, abs=1)
    training = entry.on("y = dropout(x)").filter(pl.col("kind") == "call")
    (outer,) = at(training, "aten::dropout")["id"]
    assert training.filter(pl.col("parent") == outer)["op"].to_list() == [
        "aten::empty_like",
        "aten::bernoulli_.float",
        "aten::div_.Scalar",
        "aten::mul.Tensor",
    ]
    evaluation = entry.on("dropout(x) is x")
    assert shown(evaluation) == ["aten::dropout [AutogradCPU]"]
    backward = entry.hops.filter(pl.col("backward_node").cast(pl.String).str.starts_with("MulBackward"))
    assert outermost(backward) == ["aten::mul.Tensor"], "the mask once more"


def test_gru(launch: Launcher) -> None:
    """One product for all inputs and one for each state; by hand two a time step."""
    entry = recorded(launch, "gru_steps")
    assert "by hand the same, True; last is the last output, True" in entry.out
    library = calls(entry.on("output, last = gru(x)"))
    assert (library["aten::gru.input"], library["aten::linear"]) == (1, 1 + 16)
    assert (library["aten::sigmoid_"], library["aten::tanh_"]) == (2 * 16, 16)
    times = 6  # it is called once to compare and five times for its time
    for line in ("of_input = ", "of_state = "):
        assert calls(entry.on(line))["aten::linear"] == 16 * times
    timed = calls(entry.on("nn.GRU, half of the time steps"))
    assert timed["aten::linear"] == 5 * (1 + 8), "products grow with time"


def test_causal_convolution(launch: Launcher) -> None:
    """With eps as the bias the sum is gone, with padding the copy, and a view cuts."""
    entry = recorded(launch, "causal_conv")
    assert entry.out.count("the same: True") == 3
    padded, summed = entry.on("padded = nn.ZeroPad2d("), entry.on("return eps[:, None] + conv1d(")
    assert calls(padded)["aten::constant_pad_nd"] == calls(summed)["aten::add.Tensor"] == 7
    assert calls(padded)["aten::copy_"] == 7
    two = calls(entry.on("# the bias"))
    assert (two["aten::constant_pad_nd"], two["aten::conv1d"], two["aten::add.Tensor"]) == (6, 6, 0)
    one = calls(entry.on("padding=T - 1"))
    assert (one["aten::constant_pad_nd"], one["aten::conv1d"], one["aten::add.Tensor"]) == (0, 6, 0)
    assert one["aten::slice.Tensor"] == 6
    assert "aten::copy_" not in one


@pytest.fixture(scope="module")
def translation(tmp_path_factory: pytest.TempPathFactory) -> Entry:
    launcher = Launcher(tmp_path_factory.mktemp("translation"))
    launcher.environment["CUDA_VISIBLE_DEVICES"] = ""
    return recorded(launcher, "translation")


def test_a_step_of_the_translator(translation: Entry) -> None:
    """One GRU for a sentence in the encoder, one a word in the decoder, each behind attention."""
    assert "step 80: loss 0." in translation.out
    step = translation.hops.filter(pl.col("step") == 10, pl.col("backward_node").is_null())
    made = calls(step)
    words = made["aten::gru.input"] - 1
    assert 4 <= words <= 6
    assert (
        calls(step.filter(pl.col("id").is_in(translation.on("self.encoder(")["id"].to_list())))[
            "aten::gru.input"
        ]
        == 1
    )
    assert (made["aten::softmax.int"], made["aten::bmm"]) == (words, 2 * words)
    assert made["aten::masked_fill.Scalar"] + made["aten::masked_fill.Tensor"] == words
    assert translation.trace.hops["step"].max() == 80 - 1


def test_greedy_decoding(translation: Entry) -> None:
    """The likeliest word is fed back, and Python asks for each, until the end."""
    right, of = translation.numbers(r"right: (\d+) of (\d+) sentences")
    assert (right >= 18, of) == (True, 20)
    chosen = at(translation.on("word = scores.argmax(dim=1)"), "aten::argmax", "CPU")
    asked = at(translation.on("word.item()"), "aten::_local_scalar_dense", "CPU")
    assert len(chosen) == len(asked)
    assert 20 * 4 <= len(asked) <= 20 * 7, "the words of a sentence and its end"
    texts = re.findall(r"^(the .+) -> (.+)$", translation.out, re.MULTILINE)
    script = module("translation")
    assert len(texts) == 3
    assert all(pair in script.sentences() for pair in texts)


# ---- by recording and by gdb -----------------------------------------------------------------------------

CHAIN = [
    ("aten::matmul", "AutogradCPU", "wrapper_CompositeImplicitAutograd__matmul"),
    ("aten::mm", "AutogradCPU", f"{AUTOGRAD}mm"),
    ("aten::mm", "CPU", "wrapper_CPU_mm"),
]


def test_the_product_of_mm_two_ways(launch: Launcher) -> None:
    entry = recorded(launch, "mm_two_ways", "product")
    assert entry.out == ""
    assert entry.on("torch.matmul(a, a)").select("op", "key", "kernel").rows()[:3] == CHAIN
    assert len(ways(entry.hops, "aten::mm", "CPU")) == 1


@pytest.mark.slow
@pytest.mark.gdb
@pytest.mark.skipif(not shutil.which("gdb"), reason="needs gdb")
def test_mm_two_ways(launch: Launcher) -> None:
    """A recording and breakpoints find the same operators, keys and kernel functions."""
    entry = recorded(launch, "mm_two_ways", lacks=NOT_JOINED)
    for way_of in ("recorded ", "gdb "):
        chain = [tuple(hop) for hop in re.findall(rf"^{way_of} +(\S+) \[(\w+)\] (\S+)$", entry.out, re.M)]
        assert chain == CHAIN, way_of
    assert "they agree: True" in entry.out
    assert "at::_ops::mm::call, at::_ops::mm::redispatch" in entry.out


# ---- what needs a GPU ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "candidates",
        "numba_kernels",
        "pinned_transfers",
        "sparse_inference",
        "sparse_training",
        "tiled_matmul",
        "triton_square",
        "when_runtime",
    ],
)
@pytest.mark.skipif("torch.cuda.is_available()", reason="there is a GPU")
def test_without_a_gpu(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says what it needs, and the status is 3."""
    monkeypatch.syspath_prepend(GALLERY)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(GALLERY / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr()
    assert (ended.value.code, said.out, said.err.count("\n")) == (3, "", 1)
    assert said.err.startswith(f"{name}.py needs a CUDA GPU")


def test_entries_say_what_they_need() -> None:
    """A script that ends for want of a GPU is declared so, and no other."""
    tomllib: Any = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    entries = tomllib.loads((GALLERY / "entries.toml").read_text())
    for name, entry in entries.items():
        text = (GALLERY / f"{name}.py").read_text()
        refuses = "a CUDA GPU" in text and "sys.exit(3)" in text
        assert ("gpu" in entry.get("needs", ())) == refuses, name
