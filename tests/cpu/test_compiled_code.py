"""Code of torch.compile under `tracer record`: regions, kernels with their lines, phases of the compiler."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from compiler_cache import use_cache
from launching import Launcher, Run

import tracer
from tracer.analysis.lock import lock_of
from tracer.analysis.lock_text import written
from tracer.trace import Trace

FUNCTION = """
def function(x, weight, bias):
    hidden = torch.nn.functional.gelu(x @ weight)
    normal = torch.nn.functional.layer_norm(hidden, (32,))
    out = normal @ weight.t() + bias
    return torch.softmax(out, -1).square().sum()
"""
LOOP = """
torch.manual_seed(3)
x, weight = torch.randn(16, 16), torch.randn(16, 32, requires_grad=True)
bias = torch.randn(16, requires_grad=True)
compiled = torch.compile(function)
for _ in range(2):
    loss = compiled(x, weight, bias)
    loss.backward()
print(loss.tolist(), weight.grad.sum().tolist(), bias.grad.tolist())
from torch._dynamo.utils import counters
print(counters["inductor"]["fxgraph_cache_hit"], counters["inductor"]["fxgraph_cache_miss"])
"""
MODEL = "import torch\n" + FUNCTION + LOOP
FORWARD = {4: "gelu", 5: "layer_norm", 6: "matmul", 7: "softmax"}
HITS = "2 0\n"

pytestmark = pytest.mark.compiler


class Runs:
    """The same program, alone and recorded, with caches of its own each time."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        self.alone = self.run("alone", "script.py", recorded=False)
        self.cold = self.run("recorded", "script.py")
        self.trace = self.load("recorded-script")

    def run(self, cache: str, script: str, *, recorded: bool = True, kept: str = "kept") -> Run:
        folder = self.launcher.folder
        use_cache(self.launcher, folder / cache)
        self.launcher.environment["XDG_CACHE_HOME"] = str(folder / kept)
        if not recorded:
            return self.launcher.python(script)
        run = self.launcher.record("--force", "-o", f"{cache}-{Path(script).stem}.trace", script)
        assert run.status == 0, run.err
        return run

    def load(self, name: str) -> Trace:
        return tracer.load(self.launcher.folder / f"{name}.trace")

    def artifacts(self, cache: str) -> set[str]:
        """Generated Python and C++, without the programs that ask what the compiler can."""
        folder = self.launcher.folder / cache
        return {path.name for path in folder.rglob("*") if path.name.endswith((".py", ".main.cpp"))}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    folder = tmp_path_factory.mktemp("compiled")
    launcher = Launcher(folder)
    launcher.write(MODEL)
    yield Runs(launcher)
    shutil.rmtree(folder, ignore_errors=True)


def numbers(sources: list[str] | None) -> set[int]:
    return {int(source.rpartition(":")[2]) for source in sources or ()}


def test_a_recording_changes_neither_results_nor_what_is_compiled(runs: Runs) -> None:
    assert runs.cold.out == runs.alone.out
    assert runs.artifacts("recorded") == runs.artifacts("alone")
    assert {name.partition(".")[2] for name in runs.artifacts("alone")} == {"py", "main.cpp"}
    # Each finds what the other has left in the cache.
    assert runs.run("recorded", "script.py", recorded=False).out.endswith(HITS)
    assert runs.run("alone", "script.py").out.endswith(HITS)


def test_calls_of_regions_are_rows(runs: Runs) -> None:
    calls = runs.trace.compiled_calls
    assert calls["direction"].to_list() == ["forward", "backward"] * 2
    assert calls["function"].unique().to_list() == ["function"]
    assert calls["compile_id"].unique().to_list() == ["0/0"]
    assert calls["cache"].unique().to_list() == ["miss"]
    assert calls["visible"].all()
    assert calls["region"].to_list() == [1, 2, 1, 2]
    script = str(runs.launcher.folder / "script.py")
    text = MODEL.split("\n")
    assert calls["defined_at"].unique().to_list() == [
        f"{script}:{text.index('def function(x, weight, bias):') + 1}"
    ]
    forward, backward = text.index("    loss = compiled(x, weight, bias)"), text.index("    loss.backward()")
    assert calls["called_from"].to_list() == [f"{script}:{forward + 1}", f"{script}:{backward + 1}"] * 2
    assert (calls["end_ns"] > calls["start_ns"]).all()


def test_kernels_lead_back_to_their_lines(runs: Runs) -> None:
    kernels = runs.trace.compiled_kernels
    assert kernels["origin"].unique().to_list() == ["compiled"]
    lines = [numbers(sources) for sources in kernels["sources"].to_list()]
    assert all(found <= set(FORWARD) for found in lines)
    assert set().union(*lines) == set(FORWARD)
    by_name = dict(zip(kernels["name"].to_list(), kernels.iter_rows(named=True), strict=True))
    (norm,) = [row for name, row in by_name.items() if name.startswith("cpp_fused_gelu_native_layer_norm")]
    assert {"aten::gelu", "aten::native_layer_norm"} <= set(norm["fused_ops"])
    assert numbers(norm["sources"]) == {4, 5}
    assert (norm["language"], norm["threads"] >= 1, norm["bytes"]) == ("C++", True, norm["bytes"])
    assert norm["bytes"] >= 2 * 16 * 32 * 4  # read and written once each
    file, _, line = norm["generated"].rpartition(":")
    assert Path(file).read_text().split("\n")[int(line) - 1].startswith(norm["name"] + " = ")


def test_kernels_and_ops_are_within_their_calls(runs: Runs) -> None:
    from tracer.analysis.links import combine

    rows = combine(runs.trace).rows
    names = rows.select("id", "op", "kind", "parent").cast({"kind": pl.String, "op": pl.String})
    inside = names.join(
        names.select(parent="id", above="kind"), on="parent", how="left", maintain_order="left"
    )
    kernels = inside.filter(pl.col("kind") == "compiled kernel")
    assert len(kernels) == len(runs.trace.compiled_kernels) > 0
    assert kernels["above"].unique().to_list() == ["compiled"]
    products = inside.filter((pl.col("above") == "compiled") & pl.col("kind").is_in(["call"]))
    assert set(products["op"]) <= {"aten::mm.out", "aten::addmm.out"}
    assert len(products) >= 8
    tree = runs.launcher.run(
        [str(runs.launcher.tracer), "tree", "recorded-script.trace", "--op", "compiled*"]
    )
    assert "compiled function (forward, graph 0/0, cache miss)" in tree.out
    assert "cpp_fused_gelu_native_layer_norm" in tree.out


def test_the_source_of_an_op_in_compiled_code_is_not_a_generated_file(runs: Runs) -> None:
    from tracer.trace.tables.compiled import innermost

    hops, calls = runs.trace.hops, runs.trace.compiled_calls
    places = (hops[name].cast(pl.Int64).to_numpy() for name in ("process", "thread", "start_ns"))
    inside = hops.filter(pl.Series(innermost(calls, *places) >= 0))
    assert len(inside) >= 8
    files = inside.select(pl.col("called_from").cast(pl.String).str.extract("^(.*):"))
    assert files.to_series().unique().to_list() == [str(runs.launcher.folder / "script.py")]


def test_ops_that_inductor_kept_have_the_line_of_their_node(runs: Runs) -> None:
    hops = runs.trace.hops
    kept = hops.filter(pl.col("op").cast(pl.String).is_in(["aten::mm.out", "aten::addmm.out"]))
    kept = kept.filter(pl.col("source") != pl.col("called_from"))
    assert numbers(kept["source"].cast(pl.String).to_list()) == {4, 6}
    forward = kept.filter(pl.col("start_ns") < runs.trace.compiled_calls["end_ns"][0])
    assert list(dict.fromkeys(int(line.rpartition(":")[2]) for line in forward["source"])) == [4, 6]
    texts = dict(runs.trace.source_lines.select("source", "text").iter_rows())
    assert "weight.t() + bias" in texts[forward["source"][-1]]


def test_a_hit_of_the_cache_has_the_lines_of_this_run(runs: Runs) -> None:
    """The artifact names those of the script that compiled it: here the code has moved by three lines."""
    launcher = runs.launcher
    (launcher.folder / "moved.py").write_text(MODEL.replace("import torch\n", "import torch\n\n\n\n", 1))
    runs.run("recorded", "moved.py")
    trace = runs.load("recorded-moved")
    assert trace.compiled_calls["cache"].unique().to_list() == ["hit"]
    moved, first = trace.compiled_kernels, runs.trace.compiled_kernels
    assert moved["origin"].unique().to_list() == ["kept"]
    assert moved["name"].to_list() == first["name"].to_list()
    assert moved["fused_ops"].to_list() == first["fused_ops"].to_list()
    for new, old in zip(moved["sources"].to_list(), first["sources"].to_list(), strict=True):
        assert {source.rpartition(":")[0] for source in new} == {str(launcher.folder / "moved.py")}
        assert numbers(new) == {line + 3 for line in numbers(old)}


def test_a_hit_of_what_was_compiled_without_tracer_has_ops_and_no_line(runs: Runs) -> None:
    runs.run("alone", "script.py", kept="nothing-kept")
    trace = runs.load("alone-script")
    kernels = trace.compiled_kernels
    assert kernels["origin"].unique().to_list() == ["text"]
    assert kernels["source"].null_count() == len(kernels) > 0
    ops = [
        dict(zip(one["name"].cast(pl.String), one["fused_ops"].list.sort().to_list(), strict=True))
        for one in (kernels, runs.trace.compiled_kernels)
    ]
    assert ops[0] == ops[1]
    code = trace.certificate["compiled"]
    assert (code["from_nodes"], code["with_line"], code["by_name"]) == (len(kernels), 0, 0)
    warm, cold = (written(lock_of(one)) for one in (trace, runs.trace))
    assert warm == cold, "what ran while it was compiled is not in a lock"
    assert "\n  compiled function\n" in cold
    assert "\n    compiled kernel cpp_fused_" in cold
    assert "wait" not in cold


def test_phases_of_the_compiler_are_rows(runs: Runs) -> None:
    phases = runs.trace.compile_phases
    by_name = dict(phases.group_by("name").agg(pl.len()).cast({"name": pl.String}).iter_rows())
    assert by_name["entire_frame_compile"] == by_name["entire_backward_compile"] == 1
    assert by_name["inductor_compile"] == 2
    parents = phases.select("id", "name", "start_ns", "end_ns", "parent")
    nested = parents.join(parents, left_on="parent", right_on="id", suffix="_of_parent")
    assert len(nested) > 10
    assert (nested["start_ns"] >= nested["start_ns_of_parent"]).all()
    assert (nested["end_ns"] <= nested["end_ns_of_parent"]).all()
    assert phases.filter(pl.col("name") == "entire_frame_compile")["compile_id"].to_list() == ["0/0"]
    assert len(runs.trace.ranges) == 0


def test_the_certificate_counts_them_and_is_complete(runs: Runs) -> None:
    certificate = runs.trace.certificate
    code = certificate["compiled"]
    runs_of_kernels = len(runs.trace.compiled_kernels)
    assert (code["calls"], code["regions"], code["calls_not_visible"]) == (4, 2, 0)
    assert (code["kernel_runs"], code["with_line"]) == (runs_of_kernels, runs_of_kernels)
    assert (code["errors"], code["missing"], code["breaks"]) == ([], [], [])
    assert certificate["complete"], certificate["verdict"]
    assert "complete: nothing dropped" in runs.cold.err


def test_the_report_shows_kernels_with_their_lines_and_the_compiler(runs: Runs) -> None:
    command = [str(runs.launcher.tracer), "report", "recorded-script.trace", "--section", "compiled"]
    text = runs.launcher.run(command).out
    count = len(runs.trace.compiled_kernels)
    assert f"Of {count} runs of kernels {count} lead to a Python line." in text
    assert "`cpp_fused_gelu_native_layer_norm" in text
    assert "`script.py:5`<br>`normal = torch.nn.functional.layer_norm(hidden, (32,))`" in text
    assert "| forward, 0/0" in text
    assert "The compiler: " in text
    assert "`compile_file`" in text


def test_the_time_of_a_step_counts_compiled_code(runs: Runs) -> None:
    from tracer.analysis.phases import BACKWARD, FORWARD, ops_of
    from tracer.analysis.step_times import step_times

    calls = runs.trace.compiled_calls
    compiled = ops_of(runs.trace, 0).filter("compiled")
    assert compiled["phase"].to_list() == [FORWARD, BACKWARD] * 2
    (row,) = step_times(runs.trace).to_dicts()
    longest = (calls["end_ns"] - calls["start_ns"]).to_list()
    assert row["backward_ns"] >= longest[1] + longest[3]
    assert row["forward_ns"] >= longest[0] + longest[2]


def test_recompiles_and_breaks_have_their_reason(launcher: Launcher, tmp_path: Path) -> None:
    use_cache(launcher, tmp_path / "inductor")
    launcher.write(
        "import torch\n"
        "def function(x):\n"
        "    y = x * 2\n"
        "    print('in between')\n"
        "    return y.sin()\n"
        "compiled = torch.compile(function)\n"
        "for size in (8, 9):\n"
        "    print(compiled(torch.ones(size)).sum().item())\n"
    )
    alone = launcher.python("script.py")
    recorded = launcher.record("-o", "run.trace", "script.py")
    assert (recorded.status, recorded.out) == (0, alone.out), recorded.err
    trace = tracer.load(launcher.folder / "run.trace")
    calls = trace.compiled_calls
    assert calls["compile_id"].to_list() == ["0/0", "1/0", "0/1", "1/1"]
    assert calls["recompiled"].null_count() == 2
    assert all("size mismatch at index 0" in reason for reason in calls["recompiled"].drop_nulls())
    (broken,) = {(one["reason"], one["source"]) for one in trace.certificate["compiled"]["breaks"]}
    assert broken[1] == f"{launcher.folder / 'script.py'}:4"
    assert broken[0]


def test_an_error_of_tracer_is_counted_and_the_program_goes_on(launcher: Launcher, tmp_path: Path) -> None:
    use_cache(launcher, tmp_path / "inductor")
    launcher.write(
        "import torch, tracer\n"
        "from tracer.recording.compiled import following, regions\n"
        "def fails(*_, **__):\n"
        "    raise KeyError('planted')\n"
        "regions.nodes_of_kernel = regions._facts = regions.lines_of_graph = fails\n"
        "compiled = torch.compile(lambda x: (x.sin() + 1).cos())\n"
        "with tracer.record('run.trace', cuda='off') as recording:\n"
        "    print(compiled(torch.ones(8)).sum().item())\n"
        "from torch._inductor.output_code import CompiledFxGraph\n"
        "print(hasattr(CompiledFxGraph.post_compile, '__wrapped__'), recording.summary.complete)\n"
    )
    run = launcher.python("script.py")
    assert (run.status, run.out.split("\n")[1]) == (0, "False False"), run.err
    certificate = tracer.load(launcher.folder / "run.trace").certificate
    assert set(certificate["compiled"]["errors"]) == {"KeyError: 'planted'"}
    assert certificate["compiled"]["calls_not_visible"] == 1


def test_a_killed_process_leaves_what_it_ran(launcher: Launcher, tmp_path: Path) -> None:
    use_cache(launcher, tmp_path / "inductor")
    launcher.write(
        "import os, torch\n"
        "compiled = torch.compile(lambda x: (x.sin() + 1).cos())\n"
        "for _ in range(3): compiled(torch.ones(8))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert launcher.record("-o", "run.trace", "script.py").status == -9
    trace = tracer.load(launcher.folder / "run.trace")
    assert len(trace.compiled_calls) == len(trace.compiled_kernels) == 3
    assert numbers(trace.compiled_kernels["sources"][0].to_list()) == {2}
