"""`tracer explain` of the operators of the installed torch, held against what recordings say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest
from launching import Launcher, Run
from lazily import torch

import tracer
from tracer.dispatch.declarations import installed_declarations
from tracer.dispatch.operator_kernels import GeneratedKernels
from tracer.dispatch.operators import registered_operators
from tracer.dispatch.report import Explanation, explain_lines
from tracer.dispatch.table import read_table

SCRIPT = """\
import torch

weight = torch.ones(4, 4, requires_grad=True)
for _ in range(3):
    torch.nn.functional.linear(torch.ones(2, 4), weight).sum().backward()
torch.matmul(weight, weight)
torch.matmul(torch.ones(2, 3, 4), torch.ones(2, 4, 3))
"""


def explain(launcher: Launcher, *arguments: str, **extra: str) -> Run:
    return launcher.run([str(launcher.tracer), "explain", *arguments], extra=extra)


@pytest.fixture
def recorded(launcher: Launcher) -> Launcher:
    launcher.write(SCRIPT)
    assert launcher.record("-o", "run.trace", "script.py").status == 0
    return launcher


def run_some_ops() -> None:
    torch.manual_seed(0)
    first = torch.rand(4, 4, requires_grad=True)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.GELU())
    (model(first) @ torch.rand(8, 2)).softmax(1).log().mean().backward()
    torch.cat([first, first]).view(2, -1).t().contiguous().add_(1).clone()
    torch.eye(4).to_sparse().mm(torch.rand(4, 4))
    torch.add(first, 1, out=torch.empty(0)) if not torch.is_grad_enabled() else None
    torch.rand(3, 4, device="meta") + 1
    torch.quantize_per_tensor(torch.rand(4), 0.1, 0, torch.quint8).dequantize()


def test_every_table_can_be_read() -> None:
    """As text too: the kernel names are left out here, since looking for all of them takes a minute."""
    operators = registered_operators()
    assert len(operators.names) > 3000
    declarations = installed_declarations()
    assert declarations is not None
    composites = formulas = entries = 0
    for op in operators.names:
        table = read_table(op)
        assert table.entries
        assert table.schema.startswith(f"{op}(")
        function, formula = declarations.function(op), declarations.derivative(op)
        composites += table.is_composite
        formulas += formula is not None
        entries += function is not None
        explained = Explanation(op, torch.__version__, "", table, {}, True, function, None, formula)
        text = [line for _, line in explain_lines(explained, every_key=True)]
        assert not [line for line in text if len(line) > 80 and " " in line.strip().removeprefix("- ")], op
    assert composites > 500
    assert formulas > 800
    assert entries > 2900


def test_generated_names_are_those_of_the_kernels_that_ran(tmp_path: Path) -> None:
    with tracer.record(tmp_path / "run.trace"):
        run_some_ops()
    hops = tracer.load(tmp_path / "run.trace").hops
    rows = hops.select("op", "key", "kernel", "registered_at").cast(pl.String).unique().drop_nulls()
    generated = GeneratedKernels(Path(torch.__file__).parent / "lib")
    named = 0
    for op, key, kernel, registered_at in rows.iter_rows():
        name = generated.name(op, registered_at, key)
        if name is not None:
            assert name == kernel, (op, key, registered_at)
            named += 1
    assert named > 60
    made = rows.filter(pl.col("registered_at").str.contains(r"/(Register(CPU|Comp)|VariableType_|ADInplace)"))
    without = [row for row in made.iter_rows() if generated.name(row[0], row[3], row[1]) is None]
    assert not [row for row in without if "autogradNotImplementedFallback" not in row[2]]


def test_table_and_recording_agree(tmp_path: Path) -> None:
    """Registration and rule of every hop are those of the table at the hop's key."""
    with tracer.record(tmp_path / "run.trace"):
        run_some_ops()
    hops = tracer.load(tmp_path / "run.trace").hops
    rows = hops.select("op", "key", "registered_at", "rule").cast(pl.String).unique().drop_nulls()
    assert len(rows) > 80
    for op, key, registered_at, rule in rows.iter_rows():
        entry = read_table(op).entry(key)
        assert entry is not None
        assert (entry.registered_at, entry.rule, entry.fallthrough) == (registered_at, rule, False), (op, key)


@pytest.mark.promise("explain", "docs/explain.md")
def test_mm(launcher: Launcher) -> None:
    run = explain(launcher, "aten::mm.default")
    assert run.status == 0, run.err
    assert run.out.startswith("aten::mm(Tensor self, Tensor mat2) -> Tensor\n  tags: core")
    assert re.search(
        r"^  CPU \[kernel\]\n    wrapper_CPU_mm  RegisterCPU_\d+\.cpp:\d+$", run.out, re.MULTILINE
    )
    assert re.search(r"^    ADInplaceOrView +VariableFallbackKernel\.cpp:\d+$", run.out, re.MULTILINE)
    assert re.search(r"^native_functions\.yaml:\d+$", run.out, re.MULTILINE)
    assert "    structured_delegate: mm.out\n" in run.out
    assert "      CPU: mm_out_cpu\n" in run.out
    assert "    self: mm_mat1_backward(grad, mat2, self.sym_sizes()" in run.out
    assert max(map(len, run.out.splitlines())) <= 80
    assert run.err == ""


def test_all_overloads(launcher: Launcher) -> None:
    run = explain(launcher, "mm")
    assert run.out.startswith("4 overloads: aten::mm, aten::mm.dtype, aten::mm.dtype_out, aten::mm.out\n")
    assert run.out.count("Dispatch table: ") == 4


@pytest.mark.promise("explain", "docs/explain.md#with-a-trace")
def test_a_composite_and_what_it_called(recorded: Launcher) -> None:
    run = explain(recorded, "matmul.default", "--from", "run.trace")
    assert run.status == 0, run.err
    assert "elsewhere autograd records the ops that the composite calls." in " ".join(run.out.split())
    assert f"In run.trace (torch {torch.__version__})\n" in run.out
    hops = tracer.load(recorded.folder / "run.trace").hops
    count = len(hops.filter(pl.col("op") == "aten::matmul"))
    assert f"[math kernel]  ran {count} x\n    wrapper_CompositeImplicitAutograd__matmul\n" in run.out
    calls = run.out[run.out.index("The op calls that a call made") :]
    assert f"    {count - 1} of {count}: aten::mm\n" in calls
    assert re.search(rf"    1 of {count}: .*aten::bmm", calls)


def test_counts_are_those_of_the_trace(recorded: Launcher) -> None:
    run = explain(recorded, "mm.default", "--from", "run.trace")
    hops = tracer.load(recorded.folder / "run.trace").hops.filter(pl.col("op") == "aten::mm")
    for key, count in hops["key"].cast(pl.String).value_counts().iter_rows():
        assert re.search(rf"^  {key} \[[a-z ]+\]  {count} x ", run.out, re.MULTILINE), run.out
    assert f"{(hops['kind'] == 'call').sum()} op calls, {len(hops)} hops" in run.out


def test_a_trace_of_another_torch(launcher: Launcher) -> None:
    packed = Path(__file__).parents[1] / "data" / "gpu.trace.xz"
    run = explain(launcher, "mm.default", "--from", str(packed))
    assert run.status == 0, run.err
    assert re.search(
        r"^  CUDA \[kernel\]  \d+ x .*\n    wrapper_CUDA_mm  RegisterCUDA_", run.out, re.MULTILINE
    )
    another = torch.__version__ != "2.11.0+cu130"  # with that very torch the table above has the counts too
    said = "This trace was recorded with torch 2.11.0+cu130, and the table above" in run.out
    assert said == another
    assert ("]  ran " in run.out) != another


def test_an_operator_as_json(recorded: Launcher) -> None:
    run = explain(recorded, "mm", "--from", "run.trace", "--json")
    assert run.status == 0, run.err
    operators = {operator["op"]: operator for operator in json.loads(run.out)["operators"]}
    mm = operators["aten::mm"]
    assert mm["schema"].startswith("aten::mm(Tensor self, Tensor mat2)")
    keys = {key["key"]: key for key in mm["keys"]}
    assert "RegisterCPU" in keys["CPU"]["registered_at"]
    assert [key["key"] for key in mm["ran"]["keys"]].count("CPU") == 1
    assert mm["ran"]["calls"] > 0
    assert mm["derivative"]["name"] == "mm"
    assert operators["aten::mm.out"]["ran"]["calls"] == 0


def test_unknown_names(launcher: Launcher) -> None:
    run = explain(launcher, "aten::mmm")
    assert (run.status, run.out) == (2, "")
    assert run.err.startswith("tracer: no operator aten::mmm; near: aten::mm, ")
    run = explain(launcher, "add.Tensr")
    assert "aten::add.Tensor" in run.err
    run = explain(launcher, "mm", "--from", "nothing.trace")
    assert (run.status, run.err.count("\n")) == (2, 1)
    run = explain(launcher, "mm", "--import", "no_such_module")
    assert run.status == 1
    assert run.err == "tracer: cannot import no_such_module: No module named 'no_such_module'\n"


OWN_OPERATOR = """\
import torch

print("imported")


@torch.library.custom_op("mine::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


if __name__ == "__main__":
    twice(torch.ones(3))
"""


def test_an_operator_of_a_module(launcher: Launcher) -> None:
    launcher.write(OWN_OPERATOR, "own.py")
    assert "no operator mine::twice" in explain(launcher, "mine::twice").err
    run = explain(launcher, "mine::twice", "--import", "own")
    assert run.status == 0, run.err
    assert run.out.startswith("mine::twice(Tensor x) -> Tensor\n")
    assert "native_functions.yaml: no entry" in run.out
    launcher.record("-o", "own.trace", "own.py")
    run = explain(launcher, "mine::twice", "--from", "own.trace")
    assert "The torch installed here does not know this operator" in run.out
    assert "  1 op call, " in run.out
    assert "aten::mul.Tensor" in run.out


def test_without_torch_the_trace_is_explained(recorded: Launcher) -> None:
    package = recorded.folder / "elsewhere" / "torch"  # no version.py in it: no torch
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    elsewhere = str(package.parent)
    run = explain(recorded, "mm.default", PYTHONPATH=elsewhere)
    assert run.status == 2
    assert "torch is not installed" in run.err
    run = explain(recorded, "mm.default", "--from", "run.trace", PYTHONPATH=elsewhere)
    assert run.status == 0, run.err
    assert "torch is not installed here, so tracer cannot show the dispatch table." in run.out
    assert "wrapper_CPU_mm  RegisterCPU_" in run.out
