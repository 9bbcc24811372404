"""Entries of examples/gallery: what each prints, and the ways of its ops that make it interesting."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest
from compiler_cache import use_cache
from launching import Launcher
from lazily import torch
from programs import at, values, way, ways, whole

import tracer

pytestmark = pytest.mark.gallery

ROOT = Path(__file__).resolve().parents[2]
GALLERY = ROOT / "examples" / "gallery"
Recorded = tuple[str, pl.DataFrame]


@pytest.fixture
def recorded(launcher: Launcher) -> Callable[[str], Recorded]:
    """Records an entry; its output, and its hops of which none is missing."""
    launcher.environment["CUDA_VISIBLE_DEVICES"] = ""  # a GPU's ways are those of tests/gpu

    def record(name: str) -> Recorded:
        run = launcher.record("-o", f"{name}.trace", str(GALLERY / f"{name}.py"))
        assert run.status == 0, run.err
        assert run.own_err == ""
        return run.out, whole(tracer.load(launcher.folder / f"{name}.trace")).hops

    return record


def step(hops: pl.DataFrame, number: int) -> pl.DataFrame:
    return hops.filter(pl.col("step") == number)


def count(hops: pl.DataFrame, op: str, key: str = "CPU") -> int:
    return len(at(hops, op, key))


def ops_by_key(hops: pl.DataFrame) -> Counter[tuple[str, str]]:
    return Counter(hops.select(pl.col("op", "key").cast(pl.String)).rows())


def line_with(name: str, text: str) -> int:
    """The number of the only line of a script that holds the text."""
    lines = (GALLERY / f"{name}.py").read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if text in line]
    return number


def from_line(hops: pl.DataFrame, name: str, text: str) -> pl.DataFrame:
    """The hops of one line of a script, forward."""
    ends = f"{name}.py:{line_with(name, text)}"
    return hops.filter(
        pl.col("source").cast(pl.String).str.ends_with(ends) & pl.col("backward_node").is_null()
    )


def outermost(hops: pl.DataFrame) -> list[str]:
    return hops.filter(pl.col("parent").is_null())["op"].cast(pl.String).to_list()


def imported(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, GALLERY / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_embedding(recorded: Callable[[str], Recorded]) -> None:
    """A lookup selects rows; the dense gradient is the whole table, the sparse one the rows looked up."""
    out, hops = recorded("embedding")
    assert "dense: rows [2, 5, 7] of 1000 changed, the gradient holds 8,000 numbers" in out
    assert "sparse: rows [2, 5, 7] of 1000 changed, the gradient holds 24 numbers" in out
    assert way(hops, "aten::index_select", "CPU") == [
        "aten::embedding [AutogradCPU]",
        "-> aten::embedding [CPU]",
        "aten::index_select [CPU]",
    ]
    assert way(hops, "aten::embedding_dense_backward", "CPU") == [
        "aten::embedding_backward [AutogradCPU]",
        "aten::embedding_dense_backward [AutogradCPU]",
        "-> aten::embedding_dense_backward [CPU]",
    ]
    assert ways(hops, "aten::_sparse_coo_tensor_with_dims_and_tensors", "SparseCPU")[0][:3] == [
        "aten::embedding_backward [AutogradCPU]",
        "aten::embedding_sparse_backward [AutogradCPU]",
        "aten::_sparse_coo_tensor_unsafe [AutogradCPU]",
    ]
    update = from_line(hops, "embedding", "optimiser.step()")
    assert (count(update, "aten::add_.Tensor"), count(update, "aten::add_.Tensor", "SparseCPU")) == (1, 1)
    assert values(at(hops, "aten::embedding_backward"), "backward_node") == ["EmbeddingBackward0"]


def test_tokenizer(recorded: Callable[[str], Recorded]) -> None:
    """The motifs are found; no op runs before the numbers are there, or outside `vectors`."""
    out, hops = recorded("tokenizer")
    assert "motifs that became one token: GKSTLL, HEAGAW, CPYC, DFGRD" in out
    letters, tokens = map(int, re.search(r"(\d+) letters of unseen sequences are (\d+) tokens", out).groups())
    assert tokens < letters / 2
    sources = {int(source.rpartition(":")[2]) for source in values(hops, "source")}
    first, last = line_with("tokenizer", "def vectors"), line_with("tokenizer", "def main")
    made = line_with("tokenizer", "embedding = nn.Embedding(")
    assert sources - {made} == set(range(first + 3, last - 2)), sources
    assert way(hops, "aten::index_select", "CPU")[0] == "aten::embedding [AutogradCPU]"


def test_rotary(recorded: Callable[[str], Recorded]) -> None:
    """The score depends on the distance where layouts agree; half is turned by slices, minus and cat."""
    out, hops = recorded("rotary")
    verdicts = ["distance alone" in line for line in out.splitlines()]
    assert verdicts == [True, True, False], out
    turned = from_line(hops, "rotary", "return torch.cat([-x[..., half:]")
    of_one = ["aten::slice.Tensor", "aten::neg", "aten::slice.Tensor", "aten::cat"]
    assert outermost(turned) == of_one * 2, "query and key"
    rotation = from_line(hops, "rotary", "return x * angle.cos()")
    mul_mul_add = {"aten::mul.Tensor": 12, "aten::add.Tensor": 6}
    assert Counter(outermost(rotation)) == {"aten::cos": 6, "aten::sin": 6, **mul_mul_add}
    assert count(hops, "aten::mm") == 3, "the scores of each layout, and no product else"


def test_attention(recorded: Callable[[str], Recorded]) -> None:
    """Sixteen products head by head, two for all heads, none that is seen in the fused function."""
    out, hops = recorded("attention")
    differences = [float(number) for number in re.findall(r"by (\S+) at most", out)]
    assert len(differences) == 3
    assert max(differences) < 1e-5
    names = ["aten::bmm", "aten::_softmax", "aten::_scaled_dot_product_flash_attention_for_cpu"]
    found = [[count(step(hops, number), name) for name in names] for number in (1, 2, 3)]
    assert found == [[16, 8, 0], [2, 1, 0], [0, 0, 1]]
    assert way(hops, names[2], "CPU") == [
        "aten::scaled_dot_product_attention [AutogradCPU]",
        f"{names[2]} [AutogradCPU]",
        f"-> {names[2]} [CPU]",
    ]
    assert count(step(hops, 2), "aten::clone") == 4
    assert count(step(hops, 3), "aten::clone") == 0


def test_resnets(recorded: Callable[[str], Recorded]) -> None:
    """As many convolutions as layers and shortcuts, all by one way, which ends in oneDNN."""
    out, hops = recorded("resnets")
    assert "ResNet-18: 20 convolutions, 11,689,512 parameters" in out
    assert "ResNet-34: 36 convolutions, 21,797,672 parameters" in out
    for number, convolutions in ((1, 20), (3, 36)):
        answer = step(hops, number)
        assert count(answer, "aten::mkldnn_convolution") == convolutions
        assert count(answer, "aten::native_batch_norm") == convolutions
        assert count(answer, "aten::addmm") == 1
    assert way(hops, "aten::mkldnn_convolution", "CPU") == [
        "aten::conv2d [CPU]",
        "aten::convolution [CPU]",
        "aten::_convolution [CPU]",
        "aten::mkldnn_convolution [CPU]",
    ]


def test_inference_mode(recorded: Callable[[str], Recorded]) -> None:
    """no_grad has the hops of a pass with gradients; inference_mode has no hop of autograd."""
    out, hops = recorded("inference_mode")
    assert out.splitlines() == [
        "with gradients: the same numbers, node of the graph: AddmmBackward0, inference tensor: False",
        "no_grad: the same numbers, node of the graph: none, inference tensor: False",
        "inference_mode: the same numbers, node of the graph: none, inference tensor: True",
    ]
    with_gradients, no_grad, inference = (ops_by_key(step(hops, number)) for number in (1, 2, 3))
    assert with_gradients == no_grad
    assert sum(number for (_, key), number in with_gradients.items() if key == "AutogradCPU") > 100
    assert {key for _, key in inference} == {"CPU", "BackendSelect", "ADInplaceOrView"}
    left = {op for op, key in inference if key == "ADInplaceOrView"}
    assert left == {"aten::t", "aten::expand", "aten::copy_"}, "views of tensors from before the mode"
    kernels = [op for op, key in with_gradients if key == "CPU"]
    assert {op: inference[op, "CPU"] for op in kernels} == {op: with_gradients[op, "CPU"] for op in kernels}
    assert inference["aten::conv2d", "CPU"] == with_gradients["aten::conv2d", "AutogradCPU"] == 20


def test_warm_up(recorded: Callable[[str], Recorded]) -> None:
    """The optimizer makes its state in the first step; later steps are the same ops as each other."""
    out, hops = recorded("warm_up")
    assert re.search(r"^first step \d+\.\d ms, median of the last four \d+\.\d ms$", out, re.MULTILINE)
    updates = [from_line(step(hops, number), "warm_up", "optimiser.step()") for number in range(6)]
    made = [count(update, "aten::zeros_like") for update in updates]
    assert made == [12, 0, 0, 0, 0, 0], "two moments of six parameters"
    steady = [ops_by_key(step(hops, number)) for number in range(1, 6)]
    assert all(ops == steady[0] for ops in steady)
    assert values(step(hops, 0), "phase") == ["warmup"]


def test_amp(recorded: Callable[[str], Recorded]) -> None:
    """Autocast is met by ops of its lists alone, and casts weights once and inputs where they need it."""
    out, hops = recorded("amp")
    assert "as it is: hidden float32, loss float32" in out
    assert "autocast: hidden bfloat16, loss float32" in out
    assert out.count("weight float32, gradient float32") == 2
    plain, cast = step(hops, 0), step(hops, 1)
    assert "AutocastCPU" not in values(plain, "key")
    autocast = cast.filter(pl.col("key").cast(pl.String) == "AutocastCPU")
    assert Counter(autocast["op"].cast(pl.String)) == {"aten::linear": 3, "aten::mse_loss": 1}
    assert count(cast, "aten::relu") == 2, "on no list"
    lines = ["first = self.shared(x)", "second = self.shared(", "self.output(second", "loss = nn.functional."]
    copies = [count(from_line(cast, "amp", line), "aten::_to_copy", "AutogradCPU") for line in lines]
    assert copies == [3, 0, 2, 2]
    assert ways(hops, "aten::addmm", "CPU")[-1] == [
        "aten::linear [AutocastCPU]",
        "aten::linear [AutogradCPU]",
        "aten::addmm [AutogradCPU]",
        "-> aten::addmm [CPU]",
    ]
    assert "ToCopyBackward0" in values(cast, "backward_node")


def test_quantisation(launcher: Launcher, recorded: Callable[[str], Recorded]) -> None:
    """8 bits are as good as floats, 2 are not; what computes then is mm of whole numbers."""
    out, hops = recorded("quantisation")
    right = [float(number) for number in re.findall(r"([\d.]+)% right", out)]
    bytes_of = [int(number.replace(",", "")) for number in re.findall(r"([\d,]+) bytes", out)]
    assert len(right) == 5
    assert right[0] > 90
    assert right[1] > right[0] - 1.5
    assert right[4] < right[0] - 10
    assert bytes_of[0] / bytes_of[1] > 3.5
    floats, numbers = step(hops, 1), step(hops, 2)
    assert (count(floats, "aten::mkldnn_convolution"), count(floats, "aten::addmm")) == (1, 2)
    assert (count(numbers, "aten::mkldnn_convolution"), count(numbers, "aten::addmm")) == (0, 0)
    products = at(numbers, "aten::mm", "CPU")
    assert len(products) == 3
    assert (count(numbers, "aten::round"), count(numbers, "aten::clamp")) == (3, 3)
    signatures = tracer.load(launcher.folder / "quantisation.trace").signatures
    dtypes = signatures.filter(pl.col("id").is_in(products["inputs"].implode()))["dtype"].cast(pl.String)
    assert set(dtypes) == {"torch.int32"}


SOFTMAX = ["aten::amax", "aten::sub.Tensor", "aten::exp", "aten::sum.dim_IntList", "aten::div.Tensor"]


def test_what_is_fused(tmp_path: Path) -> None:
    """Op by op softmax is five ops that move 8 MN + 4 M numbers; the JIT calls the same on a CPU."""
    fusion = imported("fusion")
    x = torch.rand(6, 10)
    scripted = torch.jit.script(fusion.softmax)
    for _ in range(3):
        scripted(x)
    for function in (fusion.softmax, scripted):
        with tracer.record(tmp_path / "softmax.trace", force=True):
            function(x)
        hops = tracer.load(tmp_path / "softmax.trace").hops
        assert outermost(hops) == SOFTMAX
    with fusion.Traffic() as traffic:
        fusion.softmax(x)
    assert (traffic.ops, traffic.bytes) == (5, 4 * (8 * 60 + 4 * 6))


@pytest.mark.slow  # compiles C++
def test_fusion(launcher: Launcher, recorded: Callable[[str], Recorded]) -> None:
    """A compiled function calls no op at all; between the marks of its step is a kernel."""
    use_cache(launcher, launcher.folder / "inductor")
    out, hops = recorded("fusion")
    kernels = tracer.load(launcher.folder / "fusion.trace").compiled_kernels.drop_nulls("step")
    kernels = kernels.filter(pl.col("step") > 0)
    assert kernels["step"].to_list() == [2, 5]
    assert [set(ops) for ops in kernels["fused_ops"]] == [
        {"aten::mul", "aten::add"},
        {"aten::amax", "aten::sub", "aten::exp", "aten::sum", "aten::div"},
    ]
    assert "daxpy: 2 ops move 66.5 MB, one kernel would move 39.9 MB" in out
    assert "softmax: 5 ops move 106.4 MB, one kernel would move 26.6 MB" in out
    assert out.count("the same numbers") == 6
    daxpy = ["aten::mul.Tensor", "aten::add.Tensor"]
    marks = ["profiler::_record_function_enter_new", "profiler::_record_function_exit._RecordFunction"]
    for number, ops in enumerate([daxpy, [], daxpy, SOFTMAX, [], SOFTMAX], 1):
        assert outermost(step(hops, number)) == [marks[0], *ops, marks[1]], number


def test_cuda_basics_says_what_it_needs(launcher: Launcher) -> None:
    launcher.environment["CUDA_VISIBLE_DEVICES"] = ""
    run = launcher.python(str(GALLERY / "cuda_basics.py"))
    assert (run.status, run.out) == (3, "")
    assert run.err == "this needs a CUDA GPU, nvcc (a CUDA toolkit) and ninja\n"


# ---- how they are recorded and reported ----------------------------------------------------------


def gallery(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "gallery.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_an_entry_is_recorded_and_reported(tmp_path: Path) -> None:
    run = gallery("--only", "embedding", "--out", str(tmp_path))
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.endswith("\nran 1, needs a GPU: 0\n")
    text = next(tmp_path.glob("embedding*.md")).read_text()
    assert text.startswith("# An embedding is a lookup, and learns by backprop\n")
    assert "\n    tracer record -o embedding.trace examples/gallery/embedding.py\n" in text
    assert "rows [2, 5, 7] of 1000 changed" in text
    assert "aten::embedding_dense_backward [CPU]" in text.split("# Dispatch report of")[0]
    assert "**complete: " in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "nonsense"), "no entry nonsense; choose linear_transposed, "),
        (("--gpu",), "--gpu: torch finds no CUDA GPU here"),
    ],
)
def test_usage(arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    run = gallery(*arguments)
    assert run.returncode == 2
    assert said in run.stderr.splitlines()[-1]


def test_what_fails_and_what_is_lacking_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that runs, one that raises, one that says what it lacks, one whose needs are not met."""
    sys.path.append(str(ROOT / "benchmarks"))
    import gallery as module

    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "TRACES", tmp_path / "traces")
    monkeypatch.setattr("gallery_entries.SCRIPTS", tmp_path)
    scripts = {
        "good": '"""A product.\n\nLook at mm."""\nimport torch\n\ntorch.ones(2, 2).mm(torch.ones(2, 2))\n',
        "bad": "import torch\n\ntorch.ones(2, 2)\nraise ValueError('no such thing')\n",
        "poor": "import sys\n\nprint('this needs gold', file=sys.stderr)\nsys.exit(3)\n",
        "absent": "",
        "graphic": "import torch\n\ntorch.ones(2)\n",
    }
    needs = {"absent": ["no_such_module"], "graphic": ["gpu"]}
    for name, text in scripts.items():
        (tmp_path / f"{name}.py").write_text(text)
    trees = [{"title": "The product", "options": ["--source", "good.py:{.mm(}"]}]
    entries = [
        module.Entry(name, "T", "Teaches.", "", needs.get(name, []), trees=trees if name == "good" else [])
        for name in scripts
    ]
    tally = module.run_all(entries, tmp_path, has_gpu=False)
    assert tally.text().splitlines() == [
        "poor is skipped: this needs gold",
        "absent is skipped: it needs no_such_module (pip install 'dispatch-tracer[gallery]')",
        "ran 1, failed: 1 (bad), skipped: 2, needs a GPU: 1 (graphic)",
    ]
    assert "FAILED: ended with status 1: ValueError: no such thing" in capsys.readouterr().out
    tally = module.run_all(entries[-1:], tmp_path, has_gpu=True)
    assert tally.text() == "ran 0, failed: 1 (graphic), needs a GPU: 0"
    assert "FAILED: it needs a GPU, but nothing ran on one" in capsys.readouterr().out
    assert not (tmp_path / "graphic.md").exists(), "a report from a GPU is not overwritten without one"
    text = (tmp_path / "good.md").read_text()
    assert text.startswith("# T\n\nTeaches.\n\nLook at mm.\n\nMade by\n")
    assert "\n    tracer tree good.trace --source good.py:6\n" in text
    assert "aten::mm [CPU] wrapper_CPU_mm" in text
