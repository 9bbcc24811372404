"""Entries of examples/gallery on a GPU: the kernels and keys that a CPU does not have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from launching import Launcher
from programs import at, values, way
from seen import plain

import tracer
from tracer.trace.certificate.verdict import COMPILED_CODE

GALLERY = Path(__file__).parents[2] / "examples" / "gallery"
Recorded = tuple[str, tracer.Trace]


@pytest.fixture
def recorded(launcher: Launcher) -> Callable[[str], Recorded]:
    """Records an entry; its output, and its trace, in which each launch has its kernel."""

    def record(name: str) -> Recorded:
        run = launcher.record("--cuda", "on", "-o", f"{name}.trace", str(GALLERY / f"{name}.py"))
        if run.status == 3:
            pytest.skip(run.own_err.strip())
        assert run.status == 0, run.err
        trace = tracer.load(launcher.folder / f"{name}.trace")
        verdict = trace.certificate["verdict"]
        assert verdict.startswith("complete") or verdict.endswith(f" hops; {COMPILED_CODE}"), verdict
        assert len(kernels(trace)) > 0
        return run.out, trace

    return record


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    return Launcher(tmp_path)


def kernels(trace: tracer.Trace) -> pl.DataFrame:
    """Kernels, with the step of the call that launched them."""
    ran = plain(trace.gpu_activities).filter(pl.col("kind") == "kernel")
    calls = plain(trace.api_calls).select(api_call="id", launched_in="step", launched_by="name")
    return ran.join(calls, on="api_call", how="left", maintain_order="left")


def step(hops: pl.DataFrame, number: int) -> pl.DataFrame:
    return hops.filter(pl.col("step") == number)


def test_attention(recorded: Callable[[str], Recorded]) -> None:
    out, trace = recorded("attention")
    assert max(float(number) for number in re.findall(r"by (\S+) at most", out)) < 1e-4
    found = [len(at(step(trace.hops, number), "aten::bmm", "CUDA")) for number in (1, 2, 3)]
    assert found == [16, 2, 0]
    fused = step(trace.hops, 3)
    chosen = {op for op in values(fused, "op") if op.startswith("aten::_scaled_dot_product_")}
    assert len(chosen) == 1, chosen
    assert len(at(fused, chosen.pop(), "CUDA")) == 1
    assert "aten::_softmax" not in values(fused, "op")


def test_resnets(recorded: Callable[[str], Recorded]) -> None:
    """The same net takes the way to oneDNN on the CPU and to cuDNN on the GPU, and answers the same."""
    out, trace = recorded("resnets")
    answers = re.findall(r"(cpu|cuda): class (\d+)", out)
    assert [device for device, _ in answers] == ["cpu", "cuda"] * 2
    for number, convolutions in ((1, 20), (3, 36)):
        hops = step(trace.hops, number)
        assert len(at(hops, "aten::mkldnn_convolution", "CPU")) == convolutions
        assert len(at(hops, "aten::cudnn_convolution", "CUDA")) == convolutions
    assert way(trace.hops, "aten::cudnn_convolution", "CUDA") == [
        "aten::conv2d [CUDA]",
        "aten::convolution [CUDA]",
        "aten::_convolution [CUDA]",
        "aten::cudnn_convolution [CUDA]",
    ]


def test_inference_mode(recorded: Callable[[str], Recorded]) -> None:
    """The hops of autograd vanish, the kernels stay."""
    _, trace = recorded("inference_mode")
    keys = [values(step(trace.hops, number), "key") for number in (1, 2, 3)]
    assert ["AutogradCUDA" in each for each in keys] == [True, True, False]
    ran = [kernels(trace).filter(pl.col("launched_in") == number)["name"].to_list() for number in (1, 2, 3)]
    assert Counter(ran[0]) == Counter(ran[1]) == Counter(ran[2])
    assert len(ran[0]) > 40


def test_warm_up(recorded: Callable[[str], Recorded]) -> None:
    """Memory of the device is taken in the first step; later ones use it again."""
    _, trace = recorded("warm_up")
    taken = plain(trace.api_calls).filter(pl.col("name") == "cudaMalloc")
    steps = Counter(taken["step"])
    assert steps[0] > 0
    assert steps[3] == steps[4] == 0


def test_amp(recorded: Callable[[str], Recorded]) -> None:
    _, trace = recorded("amp")
    first, second = step(trace.hops, 0), step(trace.hops, 1)
    assert "AutocastCUDA" not in values(first, "key")
    assert len(at(second, "aten::linear", "AutocastCUDA")) == 3
    assert len(at(second, "aten::mse_loss", "AutocastCUDA")) == 1


def test_fusion(recorded: Callable[[str], Recorded]) -> None:
    """Two and five kernels op by op, one of Triton compiled, fewer by the JIT."""
    out, trace = recorded("fusion")
    assert out.count("the same numbers") == 6
    ran = [kernels(trace).filter(pl.col("launched_in") == number)["name"].to_list() for number in range(1, 7)]
    assert [len(names) for names in ran[:5]] == [2, 1, 1, 5, 1], ran
    assert 1 <= len(ran[5]) < 5, ran[5]
    assert all(names[0].startswith("triton_") for names in (ran[1], ran[4])), ran


def test_cuda_graphs(recorded: Callable[[str], Recorded]) -> None:
    """The kernels of a replay lead to an op or to a kernel of compiled code, as those of a launch."""
    out, trace = recorded("cuda_graphs")
    assert out == "the same numbers\n"
    ran = kernels(trace).filter(pl.col("launched_in") == 10)
    replayed = ran.filter(pl.col("launched_by").str.starts_with("cudaGraphLaunch"))
    assert len(replayed) > 4
    assert replayed.filter(pl.col("hop").is_null() & pl.col("compiled_kernel").is_null()).is_empty()


def test_cuda_basics(recorded: Callable[[str], Recorded]) -> None:
    """Two kernels launched by no op, with their grids, and the shared memory of the second."""
    out, trace = recorded("cuda_basics")
    assert "add: the same as a + b" in out
    own = kernels(trace).filter(pl.col("name").str.contains(r"^(add|stencil)_kernel\(")).sort("start_ns")
    assert own["hop"].to_list() == [None, None], own
    assert own["grid"].to_list() == [[391, 1, 1]] * 2  # 100,000 elements in blocks of 256
    assert own["block"].to_list() == [[256, 1, 1]] * 2
    assert own["static_shared_bytes"].to_list() == [0, (256 + 2 * 3) * 4]
    calls = plain(trace.api_calls).filter(pl.col("id").is_in(own["api_call"].implode()))
    assert all("cuda_basics.py:" in source for source in calls["source"])
