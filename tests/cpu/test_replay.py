"""`tracer replay`: op calls are rebuilt from a trace, run alone, compared, and written as a script."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from launching import Launcher
from lazily import torch
from typer.testing import CliRunner, Result

import tracer
from tracer.analysis.chain import Link
from tracer.analysis.lock import lock_of
from tracer.analysis.recorded_call import recorded_call
from tracer.base.boundary import torch_operator
from tracer.cli.app import app
from tracer.compare.spread import ratio_text
from tracer.replay.arguments import plan_arguments
from tracer.replay.call import Call, runner
from tracer.replay.make import plans, tensors_in
from tracer.replay.replay_errors import CannotReplayError
from tracer.replay.results import errors, exact_results
from tracer.replay.script import script_of
from tracer.replay.text import _chain_line

MINE = """\
import torch
import tracer

@tracer.overrides.register("aten::addmm", "CPU", name="wrong")
def wrong(bias, a, b, *, beta=1, alpha=1):
    return torch.zeros(a.shape[0], b.shape[1])
"""


def program() -> None:
    torch.manual_seed(0)
    bias, a, b = torch.randn(64), torch.randn(32, 128), torch.randn(128, 64, requires_grad=True)
    torch.addmm(bias, a, b, beta=0.5, alpha=2).sum(dim=1, keepdim=True).mean().backward()
    torch.full((3, 4), float("inf")).add_(1, alpha=3)
    torch.empty(2, dtype=torch.bfloat16).to(torch.float32)
    torch.nn.functional.embedding(torch.tensor([1, 2]), b.detach())
    torch.arange(6).view(2, 3)[:, torch.tensor([0, 2])]
    image = torch.randn(1, 3, 8, 8).to(memory_format=torch.channels_last)
    torch.nn.functional.conv2d(image, torch.randn(4, 3, 3, 3), padding=1)
    torch.cat([bias, bias])
    torch.nn.functional.gelu(bias, approximate="tanh")
    torch.complex(bias, bias).conj().mul(1 + 2j)
    torch.nn.functional.layer_norm(a.t().expand(2, 128, 32), (32,))
    with torch.autocast("cpu"):
        torch.nn.functional.linear(a, a)
    torch.empty(3, 3).random_(2, 5)
    torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (2,)).to_dense()
    torch.vmap(torch.sin)(a)
    torch.zeros(3)
    torch.ops.aten.rand.default([3])


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replay")
    program()
    for name, options in (
        ("with", {"values": "scalars"}),
        ("without", {}),
        ("bare", {"shapes": False}),
        ("both", {"values": "all"}),
    ):
        with tracer.record(folder / f"{name}.trace", **options):
            program()
    return folder


@pytest.fixture(scope="module")
def trace(traces: Path) -> tracer.Trace:
    return tracer.load(traces / "with.trace")


def hop_of(trace: tracer.Trace, op: str) -> int:
    """The first call of an operator."""
    called = trace.hops.filter((pl.col("op").cast(pl.String) == op) & (pl.col("kind") == "call"))
    return int(called["id"][0])


def call_of(trace: tracer.Trace, hop: int, given: dict[str, str] | None = None) -> Call:
    recorded = recorded_call(trace, hop)
    op = torch_operator(recorded.op)
    return Call(op, plan_arguments(recorded, op._schema, given or {}), recorded.key)


def replay(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["replay", *map(str, arguments)])


def test_the_paths_are_those_of_a_recording_without_scalars(traces: Path, trace: tracer.Trace) -> None:
    plain = tracer.load(traces / "without.trace")
    assert plain.scalars.is_empty()
    found = [
        {
            # docs/record.md: a call of an op by a kernel of the same op is shown as a redispatch
            heading: [[link.line.replace("-> ", "") for link in chain] for chain in section.chains]
            for heading, section in lock_of(one).sections.items()
        }
        for one in (trace, plain)
    ]
    assert found[0] == found[1]
    assert trace.hops["op"].to_list() == plain.hops["op"].to_list()


def test_hashes_and_scalars_together(traces: Path, trace: tracer.Trace) -> None:
    both = tracer.load(traces / "both.trace")
    assert len(both.values)
    assert set(both.scalars["value"]) == set(trace.scalars["value"])
    assert trace.values.is_empty()


@pytest.mark.parametrize(
    ("op", "name", "value"),
    [
        ("aten::addmm", "beta", 0.5),
        ("aten::addmm", "alpha", 2),
        ("aten::sum.dim_IntList", "dim", [1]),
        ("aten::sum.dim_IntList", "keepdim", True),
        ("aten::full", "fill_value", float("inf")),
        ("aten::gelu", "approximate", "tanh"),
        ("aten::conv2d", "padding", [1, 1]),
        ("aten::mul.Tensor", "other", None),
        ("aten::random_.from", "to", 5),
    ],
)
def test_values_of_arguments(trace: tracer.Trace, op: str, name: str, value: object) -> None:
    arguments = {argument.name: argument for argument in call_of(trace, hop_of(trace, op)).arguments}
    if value is not None:
        assert (arguments[name].value, type(arguments[name].value)) == (value, type(value))
    assert arguments[name].given == "recorded"


def test_tensors_have_their_strides_dtypes_and_gradients(trace: tracer.Trace) -> None:
    call = call_of(trace, hop_of(trace, "aten::addmm"))
    bias, a, b = call.made()[:3]
    assert (bias.shape, a.shape, b.shape) == ((64,), (32, 128), (128, 64))
    assert (a.requires_grad, b.requires_grad) == (False, True)
    image = call_of(trace, hop_of(trace, "aten::conv2d")).made()[0]
    assert image.is_contiguous(memory_format=torch.channels_last)
    wide = call_of(trace, hop_of(trace, "aten::layer_norm")).made()[0]
    assert wide.stride() == (0, 1, 128), "an expanded transpose"
    keys = trace.signatures.filter(pl.col("keys").cast(pl.String).str.contains("Conjugate"))
    lazy = trace.hops.filter(pl.col("inputs").is_in(keys["id"].implode()))["id"][0]
    assert call_of(trace, lazy).made()[0].is_conj()
    assert torch.equal(call.made()[1], a), "the values are the same each time"


def test_nearly_every_call_of_the_program_can_be_replayed(trace: tracer.Trace) -> None:
    seen, refused = set(), set()
    for hop, op, inputs in trace.hops.filter(kind="call").select("id", "op", "inputs").iter_rows():
        if (op, inputs) in seen:
            continue
        seen.add((op, inputs))
        try:
            call = call_of(trace, hop)
        except CannotReplayError as error:
            refused.add(str(error).partition(" ")[2].partition(", whose")[0])
            continue
        results = tensors_in(runner(call, None, None)())
        errors(results, exact_results(call))
        compile(script_of(recorded_call(trace, hop), call), "script", "exec")
    assert len(seen) > 100
    assert {text.rpartition(" of layout ")[2] for text in refused if "layout" in text} == {"torch.sparse_coo"}
    assert any("a tensor with the key FuncTorchBatched" in text for text in refused)
    assert len(refused) < 12, refused


def test_in_place_calls_begin_with_the_same_values(trace: tracer.Trace) -> None:
    call = call_of(trace, hop_of(trace, "aten::add_.Tensor"))
    assert [plan.written for plan in plans(call.values)] == [True, False]
    run = runner(call, None, None)
    assert torch.equal(run(), run())


@pytest.mark.promise("replay", "docs/replay.md")
def test_stock_and_one_thread(traces: Path, trace: tracer.Trace) -> None:
    hop = hop_of(trace, "aten::addmm")
    run = replay(traces / "with.trace", "--hop", hop + 1, "--threads", "1")
    assert run.exit_code == 0, run.stderr
    lines = run.stdout.splitlines()
    assert lines[0].startswith(f"hop {hop}: aten::addmm [AutogradCPU]  ")
    assert f"  (hop {hop + 1} is a redispatch in this op call)" in lines
    assert "  beta = 0.5" in lines
    assert "  mat2 = float32 [128, 64] strides [64, 1] on cpu, requires grad" in lines
    assert any(line.split() == ["stock", "1", "thread", "ratio"] for line in lines)
    assert any(line.startswith("error from float64") for line in lines)
    assert any(line.endswith("-> aten::addmm [CPU] wrapper_CPU_addmm") for line in lines)
    assert lines[-1] == "the chain is that of the recording"


KEYS = {
    *("trace", "hop", "call", "op", "key", "line", "text", "torch", "arguments"),
    *("stock", "changed", "times", "again", "same_results", "results_as_recorded", "chain_as_recorded"),
}


@pytest.mark.promise("replay", "docs/replay.md#json")
def test_a_document(traces: Path, trace: tracer.Trace, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE + "print('loud')\n")
    hop = hop_of(trace, "aten::addmm")
    given = traces / "with.trace", "--hop", hop + 1, "--json"
    alone = json.loads(replay(*given).stdout)
    run = replay(*given, "--override", f"{tmp_path / 'mine.py'}:wrong")
    assert "loud" in run.stderr
    both = json.loads(run.stdout)
    for document in (alone, both):
        assert document.keys() == KEYS
        assert (document["hop"], document["call"], document["op"]) == (hop + 1, hop, "aten::addmm")
        assert document["torch"] == {"recorded": torch.__version__, "here": torch.__version__}
        arguments = {argument["name"]: argument for argument in document["arguments"]}
        assert arguments["beta"] == {"name": "beta", "given": "recorded", "value": "0.5", "tensors": []}
        assert arguments["mat2"]["tensors"][0]["shape"] == [128, 64]
        stock = document["stock"]
        assert stock["chain"]["lines"][1]["kernel"] == "wrapper_CPU_addmm"
        assert (stock["why"], stock["repeats"], document["chain_as_recorded"]) == ("", True, True)
        assert stock["errors"][0]["relative"] < 1e-5
        times = document["times"]["wall"]
        assert times["stock"].keys() == {"median", "lower", "upper", "samples"}
        assert document["times"]["gpu"] is None
    assert (alone["changed"], alone["same_results"]) == (None, None)
    assert (alone["times"]["wall"]["changed"], alone["times"]["wall"]["ratio"]) == (None, None)
    assert both["changed"].keys() == both["stock"].keys()
    assert (both["same_results"], both["changed"]["errors"][0]["relative"]) == (False, 1.0)
    assert both["times"]["wall"]["ratio"].keys() == {"value", "low", "high"}


def test_an_override_that_is_wrong(traces: Path, trace: tracer.Trace, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    hop = hop_of(trace, "aten::addmm")
    try:
        run = replay(traces / "with.trace", "--hop", hop, "--override", f"{tmp_path / 'mine.py'}:wrong")
    finally:
        tracer.overrides.unregister("wrong")  # of this process, which other tests share
    assert run.exit_code == 0, run.stderr
    error = next(line for line in run.stdout.splitlines() if line.startswith("error from float64"))
    right, wrong = error.split()[-2:]
    assert float(right) < 1e-5
    assert float(wrong) == 1
    assert "the results differ" in run.stdout
    assert "wrong (mine.py:" in run.stdout


def test_another_key(traces: Path, trace: tracer.Trace) -> None:
    hop = hop_of(trace, "aten::addmm")
    run = replay(traces / "with.trace", "--hop", hop, "--key", "CPU")
    assert "the results are equal" in run.stdout
    assert any(
        line.split()[-3:] == ["aten::addmm", "[CPU]", "wrapper_CPU_addmm"] for line in run.stdout.splitlines()
    )
    meta = replay(traces / "with.trace", "--hop", hop, "--key", "Meta")
    assert meta.exit_code == 0, meta.stderr
    assert "[Meta]" in meta.stdout
    assert "the results" not in meta.stdout


def test_a_name_for_several_keys_is_no_key_of_a_call(traces: Path, trace: tracer.Trace) -> None:
    hop = hop_of(trace, "aten::addmm")
    aliases = [name for name in torch._C.DispatchKey.__members__ if name.startswith("Composite")]
    for key in [*aliases, "Autograd"]:
        run = replay(traces / "with.trace", "--hop", hop, "--key", key)
        assert (run.exit_code, run.stderr.count("\n")) == (2, 1), key
        assert run.stderr.startswith(f"tracer: --key {key}: ")


def test_random_results_have_no_error(traces: Path, trace: tracer.Trace) -> None:
    run = replay(traces / "with.trace", "--hop", hop_of(trace, "aten::random_.from"))
    assert "two runs of it differ: the results are random, or not initialised" in run.stdout
    assert "error from float64         unknown" in run.stdout


@pytest.mark.promise("replay", "docs/replay.md")
def test_the_script_makes_the_same_call(traces: Path, trace: tracer.Trace, tmp_path: Path) -> None:
    hop = hop_of(trace, "aten::addmm")
    script = tmp_path / "repro.py"
    assert replay(traces / "with.trace", "--hop", hop, "--script", script).exit_code == 0
    text = script.read_text()
    assert len(text.splitlines()) <= 25
    assert "tracer" not in text
    result = runpy.run_path(str(script))["result"]
    assert torch.equal(result, runner(call_of(trace, hop), None, None)())
    again = replay(traces / "with.trace", "--hop", hop, "--script", script)
    assert again.exit_code == 2
    assert "exists; overwrite it with --force" in again.stderr


def test_defaults_of_what_was_not_recorded_are_named(traces: Path) -> None:
    plain = tracer.load(traces / "without.trace")
    run = replay(traces / "without.trace", "--hop", hop_of(plain, "aten::addmm"), "--arg", "alpha=3")
    assert run.exit_code == 0, run.stderr
    assert "  beta = 1  (not recorded: this is the default of the schema)" in run.stdout
    assert "  alpha = 3  (given with --arg)" in run.stdout


@pytest.mark.parametrize("op", ["aten::randn", "aten::zeros", "aten::full", "aten::rand"])
def test_factories_begin_where_they_began(traces: Path, trace: tracer.Trace, op: str) -> None:
    """torch.randn calls its kernels below autograd, torch.ops.aten.rand does not."""
    run = replay(traces / "with.trace", "--hop", hop_of(trace, op))
    assert run.exit_code == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "the chain is that of the recording"
    assert ("[AutogradCPU]" in run.stdout) == (op == "aten::rand")


def test_the_first_line_that_differs_is_said() -> None:
    links = [
        Link(0, "call", "aten::t", "CPU", "t_CPU"),
        Link(0, "call", "aten::sin", "CPU", least=2, most=2),
    ]
    chains = [SimpleNamespace(links=links), SimpleNamespace(links=links[:1])]
    assert _chain_line(chains[0], chains[0]) == "the chain is that of the recording"
    differs = "the chain is not that of the recording: recorded was "
    assert _chain_line(*chains) == f"{differs}2 x aten::sin [CPU], replayed is nothing more"
    assert _chain_line(*chains[::-1]) == f"{differs}nothing more, replayed is 2 x aten::sin [CPU]"


def test_tf32_on_the_cpu_has_no_effect(traces: Path, trace: tracer.Trace) -> None:
    hop = hop_of(trace, "aten::addmm")
    # In a process of its own: torch.testing, which other tests use, forbids to change these flags.
    launcher = Launcher(traces)
    run = launcher.run([str(launcher.tracer), "replay", "with.trace", "--hop", str(hop), "--tf32", "on"])
    assert "TF32 is a mode of GPUs: it has no effect on this call, which ran on the CPU\n" in run.out, run.err
    threads = replay(traces / "with.trace", "--hop", hop, "--threads", "1")
    assert "TF32" not in threads.stdout


def test_random_values_may_be_why_a_call_raises(tmp_path: Path) -> None:
    with tracer.record(tmp_path / "one.trace"):
        torch.zeros(64).masked_scatter(torch.arange(64) == 3, torch.ones(1))
    hop = hop_of(tracer.load(tmp_path / "one.trace"), "aten::masked_scatter")
    run = replay(tmp_path / "one.trace", "--hop", hop)
    assert run.exit_code == 1
    assert run.stderr.startswith("tracer: aten::masked_scatter raised ")
    assert run.stderr.endswith("; the values are random, so it may run with others: --arg NAME=@FILE.pt\n")


def test_a_small_ratio_keeps_two_digits() -> None:
    shown = [ratio_text(value) for value in (0.0, 1.2345, 0.0123, 0.00999, 0.000123, 4e-7, float("inf"))]
    assert shown == ["0.00", "1.23", "0.01", "0.0100", "0.00012", "0.00000040", "inf"]


def test_a_key_of_a_device_that_is_not_here(traces: Path, trace: tracer.Trace) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    run = replay(traces / "with.trace", "--hop", hop_of(trace, "aten::addmm"), "--key", "CUDA")
    assert run.exit_code == 1
    assert run.stderr == "tracer: --key CUDA: torch finds no CUDA device here\n"


@pytest.mark.parametrize(
    ("name", "op", "arguments", "status", "words"),
    [
        ("without", "aten::as_strided", [], 1, "argument 1 'size' of aten::as_strided (List[int]) was not"),
        (
            "without",
            "aten::full",
            [],
            1,
            "argument 0 'size' of aten::full (List[int]) was not recorded; record "
            "with --values scalars, or give it: --arg size=VALUE",
        ),
        ("bare", "aten::addmm", [], 1, "were not recorded; record without --no-shapes"),
        (
            "with",
            "aten::to_dense",
            [],
            1,
            "argument 0 'self' of aten::to_dense is a tensor of layout "
            "torch.sparse_coo, whose inner tensors are not recorded",
        ),
        (
            "with",
            "aten::addmm",
            ["--arg", "gamma=3"],
            2,
            "aten::addmm has no argument 'gamma'; it has self, ",
        ),
        ("with", "aten::addmm", ["--arg", "alpha=x"], 2, "(number) cannot be 'x'; give a number"),
        ("with", "aten::addmm", ["--arg", "alpha"], 2, "--arg alpha: give NAME=VALUE"),
        ("with", "aten::addmm", ["--key", "cpu"], 2, "--key cpu: not a dispatch key; did you mean CPU?"),
        (
            "with",
            "aten::addmm",
            ["--key", "FuncTorchVmapMode"],
            2,
            "--key FuncTorchVmapMode: a transform or a mode",
        ),
        ("with", "aten::addmm", ["--tf32", "maybe"], 2, "--tf32 maybe: choose on or off"),
        ("with", "aten::addmm", ["--override", "none"], 2, "none"),
        ("with", "aten::addmm", ["--script", "x.txt"], 2, "a script is Python; give a file that ends in .py"),
        (
            "with",
            "aten::addmm",
            ["--script", "never.py", "--dtype", "float64", "--threads", "1"],
            2,
            "--script takes the call as it was recorded; leave out what changes it (1 thread, float64)",
        ),
        ("with", "aten::addmm", ["--import", "no_such_package"], 2, "No module named 'no_such_package'"),
        ("with", "aten::addmm", ["--arg", "self=None"], 1, "aten::addmm raised "),
        ("with", "aten::addmm", ["--arg", "self=[1]"], 2, "(Tensor) cannot be '[1]'; give @FILE.pt, which "),
        ("with", "aten::addmm", ["--arg", "self=@no.pt"], 2, "cannot read no.pt: [Errno 2] No such file"),
    ],
)
def test_what_cannot_be_done(
    traces: Path, name: str, op: str, arguments: list[str], status: int, words: str
) -> None:
    path = traces / f"{name}.trace"
    run = replay(path, "--hop", hop_of(tracer.load(path), op), *arguments)
    assert run.exit_code == status
    assert words in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


def test_a_hop_must_be_given_and_be_there(traces: Path) -> None:
    assert (
        "give the hop: --hop N; to see the numbers: tracer tree --ids" in replay(traces / "with.trace").stderr
    )
    missing = replay(traces / "with.trace", "--hop", "999999")
    assert missing.exit_code == 2
    assert "no hop 999999; the trace has hops 0 to " in missing.stderr
    assert "to see the ids: tracer tree" in missing.stderr


def test_a_trace_of_a_gpu(trace: tracer.Trace) -> None:
    packed = Path(__file__).parents[2] / "reports" / "traces" / "mm.trace.xz"
    hop = hop_of(tracer.load(packed), "aten::mm")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU, so the call runs as it was")
    run = replay(packed, "--hop", hop)
    assert run.exit_code == 1
    assert "and torch finds no GPU here; --key CPU replays it on the CPU" in run.stderr
    on_cpu = replay(packed, "--hop", hop, "--key", "CPU")
    assert on_cpu.exit_code == 0, on_cpu.stderr
    assert "not run as it was: the call ran on cuda:0, and torch finds no GPU here" in on_cpu.stdout
    assert "recorded with torch 2.11.0+cu130, replayed with torch" in on_cpu.stdout
    profiled = replay(packed, "--hop", hop, "--ncu", "out")
    assert profiled.exit_code in (1, 2)
    assert profiled.stderr.startswith("tracer: --ncu: ")
