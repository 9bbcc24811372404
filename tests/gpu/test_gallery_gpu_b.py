"""More entries of examples/gallery on a GPU: devices, timing, one's own kernels, sparsity, a translator."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from launching import Launcher
from programs import at, values, way
from seen import launches, plain

import tracer
from tracer.trace.certificate.verdict import COMPILED_CODE, NOT_JOINED

GALLERY = Path(__file__).parents[2] / "examples" / "gallery"
Recorded = tuple[str, tracer.Trace]


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., Recorded]:
    """Records an entry; its output, and its trace of which nothing is missing."""
    launcher = Launcher(tmp_path)
    launcher.environment["TORCH_EXTENSIONS_DIR"] = str(tmp_path / "extensions")

    def record(name: str, cuda: str = "on", lacks: str = COMPILED_CODE) -> Recorded:
        run = launcher.record("--cuda", cuda, "-o", f"{name}.trace", str(GALLERY / f"{name}.py"))
        if run.status == 3:
            pytest.skip(run.own_err.strip())
        assert run.status == 0, run.err
        trace = tracer.load(tmp_path / f"{name}.trace")
        verdict = trace.certificate["verdict"]
        assert verdict.startswith("complete") or verdict.endswith(f" hops; {lacks}"), verdict
        if cuda == "on":
            assert trace.certificate["cuda"]["reconciles"] is True, trace.certificate["cuda"]
        return run.out, trace

    return record


def on(trace: tracer.Trace, table: pl.DataFrame, name: str, text: str) -> pl.DataFrame:
    """The rows of hops or API calls of the only line of the script that holds the text."""
    lines = (GALLERY / f"{name}.py").read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if text in line]
    return plain(table).filter(pl.col("source").str.ends_with(f"{name}.py:{number}"))


def kernels(trace: tracer.Trace, pattern: str = "") -> pl.DataFrame:
    ran = plain(trace.gpu_activities).filter(pl.col("kind") == "kernel", pl.col("name").str.contains(pattern))
    calls = plain(trace.api_calls).select(api_call="id", call="name", domain="domain", call_source="source")
    return ran.join(calls, on="api_call", how="left", maintain_order="left").sort("start_ns")


def microseconds(rows: pl.DataFrame) -> float:
    """The median of the durations."""
    return (rows["end_ns"] - rows["start_ns"]).median() / 1e3


# ---- devices -------------------------------------------------------------------------------------


def test_device_facts(recorded: Callable[..., Recorded]) -> None:
    out, trace = recorded("device_facts")
    assert "compute capability" in out
    mebibytes = {name.strip(): float(text) for name, text in re.findall(r"(.+?) +([+-][\d.]+) MiB", out)}
    assert list(mebibytes.values()) == [64, 64, 64, 96, 96, 32, 0], "the allocator counts to the byte"
    for made in ("matrix = torch.empty(", "half = matrix.to(torch.bfloat16)"):
        assert "cudaMalloc" in on(trace, trace.api_calls, "device_facts", made)["name"].to_list()
    assert len(launches(on(trace, trace.api_calls, "device_facts", "row = matrix.t()[0]"))) == 0
    assert len(on(trace, trace.hops, "device_facts", "del matrix")) == 0


def test_placement(recorded: Callable[..., Recorded]) -> None:
    """What moves is an empty tensor at CUDA and one copy; a scalar of the CPU may come along."""
    out, trace = recorded("placement")
    assert "there: cuda, torch.float32" in out
    assert "both: cuda, torch.bfloat16" in out
    moved = on(trace, trace.hops, "placement", "there = x.to(OTHER)")
    assert len(at(moved, "aten::_to_copy", "CUDA")) == len(at(moved, "aten::empty_strided", "CUDA")) == 1
    calls = on(trace, trace.api_calls, "placement", "there = x.to(OTHER)")
    assert calls["name"].to_list().count("cudaMemcpyAsync") == 1
    assert "two devices in one op: " in out
    assert "come along: cuda" in out


def test_matmul_by_device_and_dtype(recorded: Callable[..., Recorded]) -> None:
    out, trace = recorded("matmul_devices")
    products = on(trace, trace.hops, "matmul_devices", "torch.matmul(a, a)")
    on_gpu = at(products, "aten::mm", "CUDA")
    assert values(on_gpu, "kernel") == ["wrapper_CUDA_mm"]
    assert len(on_gpu) == 5 * 5 + 2, "int64 and bool raise at once"
    assert on_gpu["raised"].sum() == 2
    assert len(re.findall(r"cuda +\w+ +[\d,]+ us", out)) == 5


def test_pinned_transfers(recorded: Callable[..., Recorded]) -> None:
    """From pinned memory the call returns long before the copy is there."""
    out, trace = recorded("pinned_transfers")
    times = {
        name.strip(): (float(call), float(copy))
        for name, call, copy in re.findall(r"(.+?)  +the call +([\d.]+) ms, the copy +([\d.]+) ms", out)
    }
    assert list(times) == ["pageable to GPU", "pinned to GPU", "GPU to pageable", "GPU to pinned"]
    assert times["pinned to GPU"][0] < times["pinned to GPU"][1] / 4
    assert times["pageable to GPU"][0] > times["pageable to GPU"][1] / 2
    assert times["pinned to GPU"][1] < times["pageable to GPU"][1]
    copies = plain(trace.gpu_activities).filter(pl.col("kind") == "memcpy", pl.col("bytes") == 128 * 2**20)
    counted = dict(copies["name"].value_counts().iter_rows())
    assert counted["memcpy HtoD (pinned -> device)"] == counted["memcpy DtoH (device -> pinned)"] == 5
    assert "cudaHostAlloc" in plain(trace.api_calls)["name"].to_list()


def test_numba_kernels(recorded: Callable[..., Recorded]) -> None:
    """numba's kernels are in no hop and launched by a line of the script; torch's are below its ops."""
    out, trace = recorded("numba_kernels")
    assert "98 blocks of 1024 threads, 352 threads with nothing to do" in out
    assert "add: the same, True" in out
    assert "close, True" in out
    for name in ("add_vectors", "times_vector"):
        own = kernels(trace, name)
        assert len(own) == 6, "one that compiles and five for the time"
        assert own["hop"].null_count() == 6
        assert own["grid"].to_list() == [[98, 1, 1]] * 6
        assert own["block"].to_list() == [[1024, 1, 1]] * 6
        assert set(own["domain"]) == {"driver"}
        assert all("numba_kernels.py:" in source for source in own["call_source"]), own["call_source"]
    assert way(trace.hops, "aten::mv", "CUDA")[-1] == "-> aten::mv [CUDA]"


# ---- timing, and kernels of one's own ------------------------------------------------------------


def test_three_timers(recorded: Callable[..., Recorded]) -> None:
    """A clock that does not wait tells the launch; the others agree on the kernel."""
    out, trace = recorded("three_timers", cuda="off", lacks=NOT_JOINED)
    says = {
        name: float(text.replace(",", "")) for name, text in re.findall(r"^(\S.*?)  +([\d.,]+)$", out, re.M)
    }
    of_kernel = says["tracer"]
    assert says["time.time(), warm call"] < of_kernel / 2, "it returns before the kernel has run"
    assert says["time.time(), warm call, waited for"] > of_kernel
    assert says["time.time(), first call"] > 2 * says["time.time(), warm call"]
    for way_of in ("CUDA events", "autograd profiler", "torch.profiler, scheduled"):
        assert says[way_of] == pytest.approx(of_kernel, rel=0.25), says
    processes = plain(trace.hops).filter(pl.col("op") == "aten::square").group_by("process").len()
    assert sorted(processes["len"]) == [18, 25, 25, 26]


def test_inline_square(recorded: Callable[..., Recorded]) -> None:
    out, trace = recorded("inline_square")
    if "compiled for CUDA" not in out:
        pytest.skip("needs nvcc")
    assert "both as torch.square: True, True" in out
    own = kernels(trace, "square_kernel")
    assert own["grid"].to_list() == [[5, 7, 1]] * 2, "70 columns and 100 rows by 16"
    assert own["block"].to_list() == [[16, 16, 1]] * 2
    assert own["hop"][0] is None, "called past the dispatcher"
    op = plain(trace.hops).row(own["hop"][1], named=True)
    assert (op["op"], op["key"], op["kernel"]) == ("gallery::square", "CUDA", "square")


def test_triton_square(recorded: Callable[..., Recorded]) -> None:
    """Launched by the driver, by no op; as an op it is in its hop."""
    out, trace = recorded("triton_square")
    assert "as torch.square: True, as an op: True" in out
    own = kernels(trace, "square_rows")
    assert own["grid"].to_list() == [[1000, 1, 1]] * 6
    assert set(own["domain"]) == {"driver"}
    assert own["hop"].head(3).null_count() == 3
    hops = plain(trace.hops)
    assert {hops.row(hop, named=True)["op"] for hop in own["hop"].tail(3)} == {"gallery::square"}


def test_tiled_matmul(recorded: Callable[..., Recorded]) -> None:
    """Both have one thread an element; shared memory makes the tiled one faster, and cuBLAS beats it."""
    out, trace = recorded("tiled_matmul")
    assert len(re.findall(r"off by (\S+)e-0[3-9] at most", out)) + out.count("off by 0.0e+00") == 3, out
    naive, tiled = kernels(trace, "naive_kernel"), kernels(trace, "tiled_kernel")
    assert len(naive) == len(tiled) == 7
    assert set(map(tuple, naive["grid"].to_list() + tiled["grid"].to_list())) == {(64, 64, 1)}
    assert set(tiled["static_shared_bytes"]) == {2 * 32 * 32 * 4}
    assert set(naive["static_shared_bytes"]) == {0}
    products = at(plain(trace.hops), "aten::mm", "CUDA")["id"].to_list()
    library = kernels(trace).filter(pl.col("hop").is_in(products))
    assert microseconds(library) < microseconds(tiled) < microseconds(naive)


# ---- sparsity ------------------------------------------------------------------------------------


def test_sparse_inference(recorded: Callable[..., Recorded]) -> None:
    out, trace = recorded("sparse_inference")
    assert "the same to bf16's precision: True" in out
    (share,) = re.findall(r"([\d.]+) of the dense one", out)
    assert float(share) == pytest.approx(9 / 16, abs=0.01)
    dense = on(trace, trace.hops, "sparse_inference", "dense, dense_ms, dense_bytes = ")
    sparse = on(trace, trace.hops, "sparse_inference", "sparse, sparse_ms, sparse_bytes = ")
    assert len(at(dense, "aten::addmm", "CUDA")) >= 1
    assert len(at(sparse, "aten::addmm", "CUDA")) == 0
    assert len(at(sparse, "aten::_cslt_sparse_mm", "CUDA")) >= 1
    assert "Python" in values(sparse, "key"), "reached through a tensor subclass"


def test_sparse_training(recorded: Callable[..., Recorded]) -> None:
    """Each step packs two layers in two directions, and multiplies each packed weight once."""
    out, trace = recorded("sparse_training")
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", out)]
    assert len(losses) == 6
    assert losses[-1] < losses[0]
    (share,) = re.findall(r"([\d.]+) of the dense weight's bytes", out)
    assert float(share) == pytest.approx(9 / 8, abs=0.02)
    assert "the dense one of the pruned weight: True" in out
    step = trace.hops.filter(pl.col("step") == 3)
    assert len(at(step, "aten::_cslt_compress", "CUDA")) == 2 * 2
    sparse_products = at(step, "aten::_cslt_sparse_mm", "CUDA")
    backward = sparse_products.filter(pl.col("backward_node").is_not_null())
    # the input of the net has no gradient, and its product is made all the same: the function does not ask
    assert (len(sparse_products), len(backward)) == (2 + 2, 2)


# ---- parts of a translator -----------------------------------------------------------------------


def test_linear_and_its_transposed_weight(recorded: Callable[..., Recorded]) -> None:
    out, trace = recorded("linear_transposed")
    assert out.count("the same: True") == 5
    linear, product, with_bias = (
        len(launches(on(trace, trace.api_calls, "linear_transposed", line)))
        for line in ('"linear(x, weight)": l', '"x @ weight.t()": l', '"x @ weight.t() + bias": l')
    )
    assert linear == product > 0
    assert with_bias == product + 31, "the sum is a kernel more"


def test_embedding_and_one_hot_rows(recorded: Callable[..., Recorded]) -> None:
    out, trace = recorded("embedding_onehot")
    assert "the same rows: True" in out
    assert way(trace.hops, "aten::embedding_dense_backward", "CUDA")[-1] == (
        "-> aten::embedding_dense_backward [CUDA]"
    )


def test_dropout(recorded: Callable[..., Recorded]) -> None:
    """One kernel for mask, scale and product; none in evaluation."""
    out, trace = recorded("dropout_modes")
    assert "backward: the same mask, True" in out
    training = on(trace, trace.hops, "dropout_modes", "y = dropout(x)")
    assert len(at(training, "aten::native_dropout", "CUDA")) == 1
    assert len(at(training, "aten::bernoulli_.float")) == 0
    forward = training.filter(pl.col("backward_node").is_null())["id"].to_list()
    assert len(kernels(trace).filter(pl.col("hop").is_in(forward))) == 1
    assert len(on(trace, trace.hops, "dropout_modes", "dropout(x) is x")) == 1


def test_gru(recorded: Callable[..., Recorded]) -> None:
    out, trace = recorded("gru_steps")
    assert "by hand the same, True" in out
    library = on(trace, trace.hops, "gru_steps", "output, last = gru(x)")
    assert len(at(library, "aten::_cudnn_rnn", "CUDA")) == 1
    assert len(at(library, "aten::linear")) == 0
    assert "cudnnRNNForward" in plain(trace.library_calls)["name"].to_list()


def test_causal_convolution(recorded: Callable[..., Recorded]) -> None:
    out, trace = recorded("causal_conv")
    assert out.count("the same: True") == 3
    counts = [
        len(launches(on(trace, trace.api_calls, "causal_conv", line)))
        for line in ("padded = nn.ZeroPad2d(", "return eps[:, None] + conv1d(", "padding=T - 1")
    ]
    three, one = (counts[0] + counts[1]) / 7, counts[2] / 6
    assert one < three, "launches a call"


def test_candidates(recorded: Callable[..., Recorded]) -> None:
    out, trace = recorded("candidates")
    assert "8 steps of 128 sentences" in out
    step = trace.hops.filter(pl.col("step") == 5, pl.col("backward_node").is_null())
    words = len(at(step, "aten::argmax")) + len(at(step, "aten::softmax.int"))
    assert len(at(step, "aten::_cudnn_rnn", "CUDA")) == 1 + words
    assert kernels(trace)["hop"].null_count() == 0, "each kernel has its op"


def test_translation_decodes_with_a_wait_for_each_word(recorded: Callable[..., Recorded]) -> None:
    out, trace = recorded("translation")
    (right,) = re.findall(r"right: (\d+) of 20", out)
    assert int(right) >= 18
    asked = on(trace, trace.hops, "translation", "word.item()")
    waits = on(trace, trace.api_calls, "translation", "word.item()")["name"].to_list()
    words = len(at(asked, "aten::_local_scalar_dense", "CUDA"))
    assert waits.count("cudaMemcpyAsync") == waits.count("cudaStreamSynchronize") == words > 80


def test_mm_two_ways(recorded: Callable[..., Recorded]) -> None:
    out, _ = recorded("mm_two_ways", lacks=NOT_JOINED)
    assert "they agree: True" in out
    assert out.count("aten::mm [CUDA] wrapper_CUDA_mm") == 2


def test_when_runtime(recorded: Callable[..., Recorded]) -> None:
    """Each occasion calls what its comment says, and the others do not."""
    _, trace = recorded("when_runtime")

    def called(text: str) -> list[str]:
        return on(trace, trace.api_calls, "when_runtime", text)["name"].to_list()

    assert "cudaMalloc" in called("first = torch.empty(")
    assert "cudaMalloc" not in called("again = torch.empty(")
    assert "cudaStreamSynchronize" in called('a = host.to("cuda")')
    pinned = called("a.copy_(pinned, non_blocking=True)")
    assert "cudaMemcpyAsync" in pinned
    assert "cudaStreamSynchronize" not in pinned
    assert called("view = a.t()") == []
    assert len(launches(on(trace, trace.api_calls, "when_runtime", "b = a + view"))) == 1
    value = called("value = c[0, 0].item()")
    assert {"cudaMemcpyAsync", "cudaStreamSynchronize"} <= set(value)
    streams = plain(trace.gpu_activities).filter(pl.col("kind") == "kernel")["stream"]
    assert streams.n_unique() == 2
    assert "cudaEventSynchronize" in called("done.synchronize()")
    assert "cudaFree" in called("torch.cuda.empty_cache()")
    assert "cudaDeviceSynchronize" in called("torch.cuda.synchronize()")
