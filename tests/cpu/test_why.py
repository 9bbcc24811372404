"""Why a hop ran at its key: `record --why`, `explain OP --from TRACE --hop ID`, the tables behind them."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from launching import Launcher, Run
from stored import recorded_once

import tracer
from tracer.analysis.why import NO_KERNEL, Why, why
from tracer.cli.why import _has_kernel
from tracer.trace import Trace

SCRIPT = """\
import torch, torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

x = torch.randn(4, 8)
w = torch.randn(5, 8, requires_grad=True)
plain = F.linear(x, w)
with torch.autocast("cpu"):
    F.linear(x, w)
with torch.inference_mode():
    F.linear(x, w)

class Outer(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))

class Inner(Outer):
    pass

with Outer(), Inner():
    F.linear(x, w)
torch.vmap(lambda a: a.sin())(x)
torch.func.grad(lambda a: a.cos().sum())(x)
torch.view_as_complex(torch.randn(3, 2)).conj() + 1
q = torch.randn(1, 2, 16, 8)
F.scaled_dot_product_attention(q, q, q)
h = q[..., ::2]
F.scaled_dot_product_attention(h, h, h)
"""
LINES = {text.strip(): number for number, text in enumerate(SCRIPT.splitlines(), 1)}


def make(launcher: Launcher) -> None:
    launcher.write(SCRIPT)
    assert launcher.record("--why", "-o", "run.trace", "script.py").status == 0


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return recorded_once(tmp_path_factory.mktemp("why"), make)


@pytest.fixture(scope="module")
def trace(recorded: Launcher) -> Trace:
    return tracer.load(recorded.folder / "run.trace")


def hops_of(trace: Trace, op: str, line: str | int) -> pl.DataFrame:
    number = line if isinstance(line, int) else LINES[line]
    source = pl.col("called_from").cast(pl.String).str.ends_with(f"script.py:{number}")
    return trace.hops.filter(pl.col("op").cast(pl.String) == op, source)


def first(trace: Trace, op: str, line: str | int, key: str | None = None) -> Why:
    rows = hops_of(trace, op, line)
    if key is not None:
        rows = rows.filter(pl.col("key").cast(pl.String) == key)
    assert len(rows), f"no {op} at {line}"
    return why(trace, rows["id"][0])


LINEAR = [number for number, text in enumerate(SCRIPT.splitlines(), 1) if "F.linear" in text]


def test_arguments_bring_a_key(trace: Trace) -> None:
    found = first(trace, "aten::linear", LINEAR[0])
    assert found.hop["key"] == "AutogradCPU"
    assert found.bringers == [0, 1]
    assert found.brought == ""
    assert found.arguments[0] == ["AutocastCPU", "AutogradCPU", "ADInplaceOrView", "CPU"]
    assert found.passed == {"AutocastCPU": "hidden: autocast is off"}
    assert (found.adds, found.hides) == ([], [])
    assert found.following == ["AutogradCPU", "CPU"]


def test_autocast(trace: Trace) -> None:
    found = first(trace, "aten::linear", LINEAR[1])
    assert (found.hop["key"], found.brought) == ("AutocastCPU", "autocast is on")
    assert found.passed == {}
    assert found.following[1] == "AutogradCPU"


def test_in_the_kernel_of_autocast(trace: Trace) -> None:
    outer, inner = (
        why(trace, hop)
        for hop in hops_of(trace, "aten::linear", LINEAR[1]).filter(pl.col("kind") == "call")["id"]
    )
    assert outer.hop["key"] == "AutocastCPU"
    assert inner.hop["key"] == "AutogradCPU"
    by = f"hidden by the kernel of hop {outer.hop['id']}, aten::linear [AutocastCPU]"
    assert inner.passed == {"AutocastCPU": by}
    assert (outer.hides, inner.hides) == ([], ["AutocastCPU"])


def test_an_op_without_a_kernel_for_autocast_is_hidden_and_the_torch_here_says_so(
    recorded: Launcher, trace: Trace
) -> None:
    hop = hops_of(trace, "aten::t", LINEAR[0])["id"][0]
    out = explain(recorded, "t", "--hop", str(hop)).out
    assert f"  not           AutocastCPU: hidden: autocast is off{NO_KERNEL}\n" in out
    linear = first(trace, "aten::linear", LINEAR[0]).hop["id"]
    assert "AutocastCPU: hidden: autocast is off\n" in explain(recorded, "linear", "--hop", str(linear)).out


def test_a_kernel_that_the_trace_has_is_not_denied(trace: Trace) -> None:
    """The torch here may lack what the program's had, e.g. the kernels of a device's own package."""
    hop = first(trace, "aten::linear", LINEAR[0]).hop["id"]
    assert why(trace, hop, lambda *_: False).passed == {"AutocastCPU": "hidden: autocast is off"}
    without = hops_of(trace, "aten::t", LINEAR[0])["id"][0]
    assert why(trace, without, lambda *_: False).passed["AutocastCPU"].endswith(NO_KERNEL)


def test_a_device_that_the_torch_here_does_not_know_is_not_said_to_lack_kernels() -> None:
    assert _has_kernel("aten::mm", "AutocastPrivateUse1")
    assert not _has_kernel("aten::t", "AutocastCPU")


def test_modules_are_imported_before_a_hop_is_explained(recorded: Launcher, trace: Trace) -> None:
    hop = first(trace, "aten::linear", LINEAR[0]).hop["id"]
    run = explain(recorded, "linear", "--hop", str(hop), "--import", "no_such_module")
    assert (run.status, run.out) == (1, "")
    assert "cannot import no_such_module" in run.err


def test_groups_of_keys_are_said_in_words(recorded: Launcher, trace: Trace) -> None:
    hop = first(trace, "aten::linear", LINEAR[2]).hop["id"]
    out = explain(recorded, "linear", "--hop", str(hop)).out
    assert "  thread hides  all Autograd keys\n" in out


def test_inference_mode(trace: Trace) -> None:
    found = first(trace, "aten::linear", LINEAR[2])
    assert found.hop["key"] == "CPU"
    assert found.passed["AutogradCPU"] == "hidden: torch.inference_mode is on"
    assert found.hides == ["Autograd..."]
    assert found.following == ["CPU"]


def test_dispatch_modes(trace: Trace) -> None:
    found = first(trace, "aten::linear", LINEAR[3])
    assert found.hop["key"] == "PythonTLSSnapshot"
    assert found.brought == "TorchDispatchMode Inner in Outer is active"
    assert found.adds == ["PythonTLSSnapshot", "Python"]
    below = first(trace, "aten::linear", LINEAR[3], "AutogradCPU")
    assert below.above is not None
    assert below.above["id"] == found.hop["id"]
    assert "Python" in below.following


def test_a_redispatch_hides_the_keys_above_it(trace: Trace) -> None:
    found = first(trace, "aten::t", LINEAR[0], "CPU")
    assert found.above is not None
    assert found.above["key"] == "ADInplaceOrView"
    assert found.passed == {}  # what is above was dealt with there
    assert found.hides == ["Autograd...", "ADInplaceOrView"]
    assert found.following == ["CPU"]


def test_transforms_of_functorch(trace: Trace) -> None:
    vmap = first(trace, "aten::sin", "torch.vmap(lambda a: a.sin())(x)", "FuncTorchDynamicLayerFrontMode")
    assert vmap.brought == "a transform of torch.func is active"
    assert "FuncTorchBatched" in vmap.arguments[0]
    batched = first(trace, "aten::sin", "torch.vmap(lambda a: a.sin())(x)", "FuncTorchBatched")
    assert batched.bringers == [0]
    grad = first(trace, "aten::cos", "torch.func.grad(lambda a: a.cos().sum())(x)")
    assert "FuncTorchGradWrapper" in grad.arguments[0]


def test_a_conjugate_view(trace: Trace) -> None:
    line = "torch.view_as_complex(torch.randn(3, 2)).conj() + 1"
    found = first(trace, "aten::add.Tensor", line, "Conjugate")
    assert found.bringers == [0]
    assert "Conjugate" not in found.arguments[1]


def test_the_device_argument_of_a_factory(trace: Trace) -> None:
    found = first(trace, "aten::randn", "x = torch.randn(4, 8)", "CPU")
    assert (found.bringers, found.brought) == (
        [],
        "the kernel of BackendSelect chose it by the argument `device`",
    )
    assert found.above is not None
    select = why(trace, found.above["id"])
    assert select.brought == "every thread adds it"


def test_every_hop_has_the_keys_that_it_should_have(trace: Trace) -> None:
    sets = dict(trace.key_sets.iter_rows())
    for key, key_set in trace.hops.select(pl.col("key").cast(pl.String), "key_set").iter_rows():
        assert sets[key_set][0] == key
    assert trace.hops["thread_keys"].null_count() == 0
    order = trace.dispatch_keys["key"].to_list()
    assert order.index("CPU") < order.index("ADInplaceOrView") < order.index("AutogradCPU")
    assert order.index("AutogradCPU") < order.index("AutocastCPU") < order.index("PythonTLSSnapshot")


def explain(launcher: Launcher, op: str, *options: str) -> Run:
    return launcher.run([str(launcher.tracer), "explain", op, "--from", "run.trace", *options])


@pytest.mark.promise("record", "explain", "docs/explain.md#why-this-kernel---hop")
def test_ten_lines(recorded: Launcher, trace: Trace) -> None:
    hop = first(trace, "aten::linear", LINEAR[1]).hop["id"]
    run = explain(recorded, "linear", "--hop", str(hop))
    assert run.status == 0, run.err
    lines = run.out.splitlines()
    assert len(lines) <= 10
    assert lines[0] == f"hop {hop}: aten::linear [AutocastCPU]  4x8 f32, 5x8 f32"
    assert lines[1].split(None, 1) == ["line", f"script.py:{LINEAR[1]}: F.linear(x, w)"]
    assert "input, weight: AutocastCPU, AutogradCPU, ADInplaceOrView, CPU" in run.out
    assert "AutocastCPU: brought by input, weight; autocast is on" in run.out
    assert "registered at autocast_mode.cpp:" in run.out
    assert "AutogradCPU, if the kernel of AutocastCPU redispatches" in run.out


def test_attention_says_which_backend_ran_and_why_not_another(recorded: Launcher, trace: Trace) -> None:
    calls = trace.hops.filter(pl.col("op").cast(pl.String) == "aten::scaled_dot_product_attention")["id"]
    flash, strided = (
        explain(recorded, "scaled_dot_product_attention", "--hop", str(hop)).out for hop in calls
    )
    assert [line.split(None, 1)[1] for line in flash.splitlines() if line.startswith("  backend")] == [
        "flash"
    ]
    assert "flash: All fused kernels require the last dimension of the input to have stride 1" in strided
    assert "  backend       math" in strided


ATTENTION = """\
import torch, torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
q, few = torch.randn(2, 4, 16, 32), torch.randn(2, 2, 16, 32)
F.scaled_dot_product_attention(q, q, q, dropout_p=0.25)
with sdpa_kernel(SDPBackend.MATH):
    F.scaled_dot_product_attention(q, few, few, None, 0, True, scale=2, enable_gqa=True)
"""


def attention_of(launcher: Launcher, *options: str) -> list[str]:
    """What is said of each call's backends."""
    launcher.write(ATTENTION)
    assert launcher.record("--force", "-o", "run.trace", *options, "script.py").status == 0
    hops = tracer.load(launcher.folder / "run.trace").hops
    calls = hops.filter(pl.col("op").cast(pl.String) == "aten::scaled_dot_product_attention")["id"]
    texts = [explain(launcher, "scaled_dot_product_attention", "--hop", str(hop)).out for hop in calls]
    return [text[text.index("  backend") :] for text in texts]


def test_attention_is_asked_about_the_recorded_values(launcher: Launcher) -> None:
    dropout, turned_off = attention_of(launcher, "--values", "scalars")
    assert (
        "  backend       math\n  not           flash: Both fused kernels do not support non-zero dropout\n"
        in dropout
    )
    assert "with dropout_p=0.25, is_causal=False, scale=None, enable_gqa=False\n" in dropout
    assert "flash: takes these inputs; it was turned off, or another came first\n" in turned_off
    assert "with dropout_p=0.0, is_causal=True, scale=2.0, enable_gqa=True\n" in turned_off
    assert "record" not in dropout + turned_off


def test_attention_without_values_says_what_may_be_the_reason(launcher: Launcher) -> None:
    dropout, _ = attention_of(launcher)
    assert "dropout_p, is_causal, scale or enable_gqa may be the reason, or it was turned off" in dropout
    assert dropout.endswith(
        "  assumed       dropout_p, is_causal, scale, enable_gqa: the trace does not have the values; "
        "to record them: tracer record --values scalars SCRIPT\n"
    )


def test_json(recorded: Launcher, trace: Trace) -> None:
    hop = first(trace, "aten::linear", LINEAR[2]).hop["id"]
    document = json.loads(explain(recorded, "aten::linear", "--hop", str(hop), "--json").out)
    assert document["hop"]["id"] == hop
    assert document["passed"]["AutogradCPU"] == "hidden: torch.inference_mode is on"
    assert document["attention"] is None


def test_what_cannot_be_answered_is_one_line(recorded: Launcher, trace: Trace) -> None:
    hop = first(trace, "aten::linear", LINEAR[0]).hop["id"]
    for options, said in (
        (["mm", "--hop", str(hop)], f"hop {hop} is aten::linear, not mm"),
        (["mm", "--hop", "100000"], "has no hop 100000; choose 0 to"),
    ):
        run = explain(recorded, *options)
        assert run.status == 2
        assert len(run.err.splitlines()) == 1
        assert said in run.err
        assert "tracer tree" in run.err
    nothing = recorded.run([str(recorded.tracer), "explain", ""])
    assert nothing.status == 2
    assert nothing.err == "tracer: no operator given; give one, e.g. tracer explain aten::mm\n"
    alone = recorded.run([str(recorded.tracer), "explain", "mm", "--hop", "3"])
    assert alone.status == 2
    assert "--from FILE" in alone.err


def test_without_why_the_rest_is_shown(recorded: Launcher) -> None:
    assert recorded.record("-o", "plain.trace", "script.py").status == 0
    plain = tracer.load(recorded.folder / "plain.trace")
    assert plain.hops["thread_keys"].null_count() == len(plain.hops)
    assert len(plain.thread_keys) == len(plain.key_sets) == 0
    hop = first(plain, "aten::linear", LINEAR[1]).hop["id"]
    run = recorded.run(
        [str(recorded.tracer), "explain", "linear", "--from", "plain.trace", "--hop", str(hop)]
    )
    assert "to record it: tracer record --why SCRIPT" in run.out
    assert "input, weight: AutocastCPU" in run.out


def test_overloads_that_did_not_run_are_left_out(recorded: Launcher) -> None:
    run = explain(recorded, "add")
    first_line = run.out.splitlines()[0]
    assert first_line.startswith("1 of ")
    assert first_line.endswith(" overloads ran: aten::add.Tensor")
    assert "aten::add.Scalar(" not in run.out
    none = explain(recorded, "sub")
    assert "aten::sub.Tensor" in none.out


def test_the_output_is_the_same(recorded: Launcher, tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    launcher.write(
        "import torch\ntorch.manual_seed(0)\nprint((torch.ones(3, requires_grad=True) * 2).sum())\n"
    )
    plain = launcher.python("script.py")
    assert launcher.record("--why", "script.py").out == plain.out
