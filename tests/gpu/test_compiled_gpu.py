"""Compiled code on a GPU: Triton kernels and their lines, CUDA graphs, autotuning, kernels of the user."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from launching import Launcher

import tracer
from tracer.trace import Trace

MODEL = """
import sys, torch
def function(x, weight, bias):
    hidden = torch.nn.functional.gelu(x @ weight)
    normal = torch.nn.functional.layer_norm(hidden, (256,))
    out = normal @ weight.t() + bias
    return torch.softmax(out, -1).square().sum()
torch.manual_seed(3)
x, weight = torch.randn(64, 128, device="cuda"), torch.randn(128, 256, device="cuda", requires_grad=True)
bias = torch.randn(128, device="cuda", requires_grad=True)
compiled = torch.compile(function, mode=sys.argv[1])
for _ in range(4):
    weight.grad = bias.grad = None  # with reduce-overhead they are in memory of the graph
    loss = compiled(x, weight, bias)
    loss.backward()
    tracer_step = getattr(sys.modules.get("tracer"), "step", lambda: None)
    tracer_step()
print(loss.tolist(), weight.grad.sum().tolist(), bias.grad.sum().tolist())
"""
LINES = {4, 5, 6, 7}


class Runs:
    def __init__(self, folder: Path) -> None:
        self.launcher = Launcher(folder)
        self.launcher.write(MODEL)
        self._traces: dict[str, Trace] = {}

    def trace(self, mode: str) -> Trace:
        """Recorded with an empty cache, after a run alone with another one: both print the same."""
        if mode in self._traces:
            return self._traces[mode]
        outputs = []
        for recorded in (False, True):
            for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
                self.launcher.environment[name] = str(self.launcher.folder / f"{name}-{mode}-{recorded}")
            if recorded:
                run = self.launcher.record("--force", "-o", f"{mode}.trace", "script.py", mode)
            else:
                run = self.launcher.python("script.py", mode)
            assert run.status == 0, run.err
            outputs.append(run.out)
        if not mode.startswith("max-autotune"):  # the fastest configuration may be another one
            assert outputs[0] == outputs[1]
        self._traces[mode] = tracer.load(self.launcher.folder / f"{mode}.trace")
        return self._traces[mode]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    pytest.importorskip("triton")
    folder = tmp_path_factory.mktemp("compiled_gpu")
    yield Runs(folder)
    shutil.rmtree(folder, ignore_errors=True)


def kernels(trace: Trace) -> pl.DataFrame:
    return trace.gpu_activities.filter(pl.col("kind").cast(pl.String) == "kernel").with_columns(
        pl.col("name").cast(pl.String)
    )


def numbers(sources: list[str]) -> set[int]:
    return {int(source.rpartition(":")[2]) for source in sources}


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_each_triton_kernel_leads_to_its_run_and_its_lines(runs: Runs, mode: str) -> None:
    trace = runs.trace(mode)
    triton = kernels(trace).filter(pl.col("name").str.starts_with("triton_"))
    assert len(triton) >= 4 * 4
    assert triton["compiled_kernel"].null_count() == 0
    found = trace.compiled_kernels[triton["compiled_kernel"].to_numpy()]
    assert found["name"].cast(pl.String).to_list() == triton["name"].to_list()
    assert found["origin"].cast(pl.String).unique().to_list() == ["compiled"]
    assert found["language"].cast(pl.String).unique().to_list() == ["Triton"]
    lines = [numbers(sources) for sources in found["sources"].to_list()]
    assert set().union(*lines) <= LINES
    assert {5, 7} <= set().union(*lines)
    assert (found["num_warps"] > 0).all()
    assert (found["registers"] > 0).all()
    assert (found["spills"] >= 0).all()
    assert (found["bytes"].drop_nulls() > 0).all()


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_nearly_every_kernel_leads_to_an_op_or_to_nodes_with_a_line(runs: Runs, mode: str) -> None:
    code = runs.trace(mode).certificate["compiled"]
    assert code["errors"] == []
    assert code["kernels_of_neither"] <= 0.01 * code["kernels"], code


def test_a_replay_leads_to_what_was_captured(runs: Runs) -> None:
    trace = runs.trace("reduce-overhead")
    replayed = kernels(trace).filter(pl.col("graph_node").is_not_null())
    assert len(replayed) > 0
    assert replayed["captured_by"].null_count() == 0
    triton = replayed.filter(pl.col("name").str.starts_with("triton_"))
    assert triton["compiled_kernel"].null_count() == 0
    launches = trace.api_calls[triton["api_call"].to_numpy()]
    assert launches["name"].cast(pl.String).str.starts_with("cudaGraphLaunch").all()
    assert {source.rpartition("/")[2].partition(":")[0] for source in launches["source"].drop_nulls()} == {
        "script.py"
    }


def test_a_replay_in_a_window_of_steps_leads_to_what_was_captured_before_it(runs: Runs) -> None:
    launcher = runs.launcher
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        launcher.environment[name] = str(launcher.folder / f"{name}-window")
    launcher.write(MODEL.replace("range(4)", "range(7)"), "longer.py")
    run = launcher.record("--force", "--steps", "5:6", "-o", "window.trace", "longer.py", "reduce-overhead")
    assert run.status == 0, run.err
    trace = tracer.load(launcher.folder / "window.trace")
    ran = kernels(trace)
    assert set(ran["step"]) == {5}
    replayed = ran.filter(pl.col("graph_node").is_not_null())
    assert len(replayed) > 0
    assert replayed["captured_by"].null_count() == 0
    assert replayed.filter(pl.col("hop").is_null() & pl.col("compiled_kernel").is_null()).is_empty()
    triton = replayed.filter(pl.col("name").str.starts_with("triton_"))
    assert triton["compiled_kernel"].null_count() == 0
    found = trace.compiled_kernels[triton["compiled_kernel"].to_numpy()]
    assert set().union(*(numbers(sources) for sources in found["sources"].to_list())) <= LINES
    assert trace.steps["step"].to_list() == [5]
    captures = trace.api_calls[replayed["captured_by"].to_numpy()]
    assert captures["step"].null_count() == len(captures)


def test_what_fusing_saved_is_counted_in_launches(runs: Runs) -> None:
    from tracer.analysis.difference import difference

    launcher = runs.launcher
    launcher.write(MODEL.replace("torch.compile(function, mode=sys.argv[1])", "function"), "eager.py")
    run = launcher.record("--force", "-o", "eager.trace", "eager.py")
    assert run.status == 0, run.err
    before = tracer.load(launcher.folder / "eager.trace")
    for mode in ("default", "reduce-overhead"):
        fused = difference([before], [runs.trace(mode)]).fusion
        assert fused is not None
        assert fused.on_gpu
        assert fused.unknown == 0
        launches = fused.fused.launches
        assert launches is not None
        assert launches[0] > launches[1] > 0, (mode, launches)
        assert fused.fused.times.before
        assert fused.fused.times.after
        lines = {int(op.line.rpartition(":")[2]) for kernel in fused.kernels for op in kernel.ops}
        assert lines <= LINES
        ops = {op.op for kernel in fused.kernels for op in kernel.ops}
        assert {"aten::gelu", "aten::native_layer_norm", "aten::_softmax"} <= ops, (mode, ops)


def test_a_launch_is_in_its_run_and_that_in_its_call(runs: Runs) -> None:
    from tracer.analysis.links import combine

    rows = combine(runs.trace("default")).rows
    names = rows.select("id", pl.col("kind").cast(pl.String), pl.col("op").cast(pl.String), "parent")
    above = names.join(names, left_on="parent", right_on="id", how="left", suffix="_above")
    triton = above.filter(pl.col("op").str.starts_with("triton_"))
    pairs = set(triton.select("kind", "kind_above").rows())
    assert pairs == {("kernel", "api"), ("compiled kernel", "compiled")}
    launches = above.filter((pl.col("kind") == "api") & pl.col("op").str.starts_with("cuLaunchKernel"))
    assert "compiled kernel" in set(launches["kind_above"])


def test_autotuning_is_told_from_real_launches(runs: Runs) -> None:
    trace = runs.trace("max-autotune-no-cudagraphs")
    found = trace.compiled_kernels
    tuned, real = found.filter(pl.col("autotuning")), found.filter(~pl.col("autotuning"))
    assert len(tuned) > 0
    per_call = real.group_by("compiled_call").agg(pl.len())
    assert per_call.drop_nulls("compiled_call")["len"].max() <= 12  # not one for each configuration
    assert set(real["name"].cast(pl.String)) & set(tuned["name"].cast(pl.String))


def test_a_kernel_of_the_user_leads_to_its_function_and_to_the_line_of_the_launch(runs: Runs) -> None:
    launcher = runs.launcher
    kernel = (Path(__file__).parent / "triton_double.py").read_text()
    launcher.write(kernel, "triton_double.py")
    launcher.write(
        "import torch\n"
        "from triton_double import double_triton\n"
        "x = torch.ones(5000, device='cuda')\n"
        "y = torch.empty_like(x)\n"
        "for _ in range(3):\n"
        "    double_triton(x, y)\n"
        "print(y.sum().item())\n",
        "by_hand.py",
    )
    run = launcher.record("--force", "-o", "by_hand.trace", "by_hand.py")
    assert (run.status, run.out) == (0, "10000.0\n"), run.err
    trace = tracer.load(launcher.folder / "by_hand.trace")
    found = trace.compiled_kernels
    assert found["origin"].cast(pl.String).to_list() == ["written"] * 3
    text = kernel.split("\n")
    function = next(
        i for i, line in enumerate(text, 1) if line.startswith(("@triton.jit", "def double_kernel"))
    )
    launch = next(i for i, line in enumerate(text, 1) if "double_kernel[" in line)
    path = str(launcher.folder / "triton_double.py")
    assert set(found["generated"].cast(pl.String)) <= {f"{path}:{function}", f"{path}:{function + 1}"}
    assert set(found["source"].cast(pl.String)) == {f"{path}:{launch}"}
    assert (found["registers"] > 0).all()
    own = kernels(trace).filter(pl.col("name") == "double_kernel")
    assert own["compiled_kernel"].to_list() == [0, 1, 2]


def test_a_graph_from_before_the_recording_has_its_nodes_and_the_line_of_the_replay(runs: Runs) -> None:
    launcher = runs.launcher
    launcher.write(
        MODEL.replace(
            "print(",
            "torch.cuda.synchronize()\nimport tracer\nwith tracer.record('late.trace', force=True):\n"
            "    compiled(x, weight, bias)\n    torch.cuda.synchronize()\nprint(",
            1,
        ),
        "late.py",
    )
    run = launcher.python("late.py", "reduce-overhead")
    assert run.status == 0, run.err
    trace = tracer.load(launcher.folder / "late.trace")
    replayed = kernels(trace).filter(pl.col("graph").is_not_null())
    assert len(replayed) > 0
    assert replayed["graph_node"].null_count() == 0
    assert replayed["name"].null_count() == 0
    launches = trace.api_calls[replayed["api_call"].to_numpy()]
    assert launches["source"].null_count() == 0


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("provenance", [0, 1])
def test_code_from_before_the_recording_has_its_ops_and_with_provenance_its_lines(
    runs: Runs, mode: str, provenance: int
) -> None:
    """As if the recording had seen the compilation: the same kernels with the same ops and lines."""
    launcher = Launcher(runs.launcher.folder / f"earlier-{mode}-{provenance}")
    launcher.folder.mkdir()
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME"):
        launcher.environment[name] = str(launcher.folder / name)
    config = f"torch._inductor.config.trace.provenance_tracking_level = {provenance}\ntorch.manual_seed"
    window = "if _ == 2:\n        import tracer\n        recording = tracer.record('run.trace').start()\n    "
    text = MODEL.replace("torch.manual_seed", config, 1)
    launcher.write(text.replace("weight.grad = ", window + "weight.grad = ", 1) + "recording.stop()\n")
    run = launcher.python("script.py", mode)
    assert run.status == 0, run.err
    trace = tracer.load(launcher.folder / "run.trace")
    assert trace.certificate["compiled"]["errors"] == []
    assert set(trace.compiled_calls["function"].cast(pl.String)) == {"function"}
    assert trace.compiled_calls["defined_at"].null_count() == 0
    if mode == "reduce-overhead":
        return  # the graphs were captured before the recording: it has no runs of kernels
    columns = pl.col("name", "origin").cast(pl.String), "fused_ops", "sources"
    found, wanted = (
        {row["name"]: row for row in one.compiled_kernels.select(columns).iter_rows(named=True)}
        for one in (trace, runs.trace(mode))
    )
    triton = [name for name in found if name.startswith("triton_")]
    assert set(found) == set(wanted)
    assert {found[name]["origin"] for name in triton} == {"text"}
    for name in triton:
        ops = set(found[name]["fused_ops"])
        assert ops, name
        assert ops <= set(wanted[name]["fused_ops"]), name
        lines = numbers(found[name]["sources"] or ())
        assert lines == (numbers(wanted[name]["sources"]) if provenance else set()), name
