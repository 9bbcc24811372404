"""`tracer diff` of an eager and a compiled run: what was fused into which kernel, and what that saved."""

from __future__ import annotations

import json
import re

import pytest
from compiler_cache import use_cache
from launching import Launcher, Run

from tracer.analysis.difference import Fusion, difference
from tracer.trace import load

pytestmark = pytest.mark.compiler

SCRIPT = """\
import sys, torch, tracer
torch.set_num_threads(1)
torch.manual_seed(0)

def model(x, weight, bias):
    hidden = x @ weight
    hidden = torch.nn.functional.gelu(hidden)
    hidden = hidden + bias
    return hidden.softmax(-1)

model = torch.compile(model) if "compile" in sys.argv else model
x, weight, bias = torch.randn(64, 128), torch.randn(128, 256), torch.randn(256)
x.requires_grad_("train" in sys.argv)
for _ in range(6):
    out = model(x, weight, bias)
    if "train" in sys.argv:
        (out * out).sum().backward()
    if "steps" in sys.argv:
        tracer.step()
"""


def record(launcher: Launcher, *arguments: str, moved: str = "") -> None:
    """With a compiler's cache of its own: of a kernel of another session nothing is known."""
    use_cache(launcher, launcher.folder / "inductor")
    launcher.write(SCRIPT)
    run = launcher.record("-o", "eager.trace", "script.py", *arguments)
    assert run.status == 0, run.err
    launcher.write(moved + SCRIPT)
    run = launcher.record("-o", "compiled.trace", "script.py", "compile", *arguments)
    assert run.status == 0, run.err


def found(launcher: Launcher, before: str = "eager", after: str = "compiled") -> Fusion:
    traces = [load(launcher.folder / f"{name}.trace") for name in (before, after)]
    fused = difference(*([trace] for trace in traces)).fusion
    assert fused is not None
    return fused


def show(launcher: Launcher, *arguments: str) -> Run:
    return launcher.run([str(launcher.tracer), "diff", "eager.trace", "compiled.trace", *arguments])


def test_ops_lead_to_the_kernel_that_computes_them(launcher: Launcher) -> None:
    record(launcher, "steps", moved="# a line more\n\n")
    fused = found(launcher)
    (kernel,) = fused.kernels
    assert kernel.known
    assert not kernel.backward
    ops = {(op.op, op.text, op.calls) for op in kernel.ops}
    assert ops == {
        ("aten::gelu", "hidden = torch.nn.functional.gelu(hidden)", 1.0),
        ("aten::add", "hidden = hidden + bias", 1.0),
        ("aten::_softmax", "return hidden.softmax(-1)", 1.0),
    }
    assert kernel.cost.calls == (3.0, 1.0)
    assert kernel.cost.launches is None
    # gelu reads and writes 64 x 256 floats, add reads the bias too, softmax reads and writes them
    assert kernel.cost.bytes[0] == 6 * 64 * 256 * 4 + 256 * 4
    assert kernel.cost.bytes[1] is not None
    assert kernel.cost.bytes[1] < kernel.cost.bytes[0]
    assert fused.fused.calls == (3.0, 1.0)
    assert fused.kept.calls == (1.0, 1.0)  # the matrix product
    assert (fused.unknown, fused.hidden, fused.whole, fused.on_gpu) == (0, 0, False, False)
    lines = {line.text: line for line in fused.lines}
    assert lines["hidden = x @ weight"].kernels == []
    assert lines["hidden = hidden + bias"].kernels == [kernel.name]
    assert all(line.times.before and line.times.after for line in fused.lines)
    parts = [line.times.after or 0 for line in fused.lines if line.kernels]
    assert sum(parts) == pytest.approx(kernel.cost.times.after, rel=0.5)  # medians of steps do not add up


def test_the_text_the_page_and_the_document(launcher: Launcher) -> None:
    record(launcher, "steps")
    run = show(launcher, "--limit", "0")
    assert run.status == 1
    (kernel,) = found(launcher).kernels
    assert re.search(
        r"kernels replace op calls: 3 op calls -> 1 kernel run \(2 saved\); [\d.]+ KiB -> ", run.out
    )
    assert f"\n{kernel.name}\n  3 op calls -> 1 run (2 saved); " in run.out
    assert re.search(r"\n    script.py:7 +1 x aten::gelu +hidden = torch.nn.functional.gelu", run.out)
    assert f"aten::gelu: vanished; fused into {kernel.name}\n" in run.out
    body = run.out.partition("What fusing saved")[2].partition("\nAll ops of a line")[0]
    assert max(map(len, body.splitlines())) <= 110
    assert "aten::matmul: vanished\n" in run.out  # its mm is called by compiled code, and add is not addmm
    document = json.loads(show(launcher, "--json").out)["fusion"]
    assert document["kernels"][0]["name"] == kernel.name
    assert document["kernels"][0]["cost"]["calls"] == [3.0, 1.0]
    for name in ("diff.md", "diff.html"):
        assert show(launcher, "-o", name).status == 1
        page = (launcher.folder / name).read_text()
        assert "Eager against compiled" in page
        assert kernel.name in page
        assert "2 saved" in page


def test_a_backward_and_both_orders(launcher: Launcher) -> None:
    record(launcher, "steps", "train")
    fused = found(launcher)
    assert fused.eager_first
    backward = [kernel for kernel in fused.kernels if kernel.backward]
    replaced = {op.op for kernel in backward for op in kernel.ops}
    assert {"aten::_softmax_backward_data", "aten::gelu_backward"} <= replaced
    gelu = {op.line for kernel in backward for op in kernel.ops if op.op == "aten::gelu_backward"}
    assert gelu == {"script.py:7"}
    other = found(launcher, "compiled", "eager")
    assert not other.eager_first
    assert [kernel.cost for kernel in other.kernels] == [kernel.cost for kernel in fused.kernels]


def test_without_steps_a_run_is_one_step(launcher: Launcher) -> None:
    record(launcher)
    fused = found(launcher)
    assert fused.whole
    assert fused.fused.calls == (18.0, 6.0)
    assert fused.fused.times.ratio is None
    out = show(launcher).out
    assert "What fusing saved, of the whole run, eager -> compiled (times of the CPU):" in out


def test_two_runs_of_one_kind_have_no_fusion(launcher: Launcher) -> None:
    record(launcher, "steps")
    for name in ("eager", "compiled"):
        trace = load(launcher.folder / f"{name}.trace")
        found = difference([trace], [trace])
        assert found.fusion is None
        assert found.structural == []
