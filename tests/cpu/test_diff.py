"""`tracer diff`: what changed between two recordings, and why."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from compiler_cache import use_cache
from launching import Launcher, Run
from stored import recorded_once

SCRIPT = """\
import contextlib, sys, time, torch
from torch import nn

def wait():
    {wait}

torch.manual_seed(0)
torch.set_num_threads({threads})
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
extra = torch.randn(16, 16)
weight = {weight}
for _ in range(8):
    batch = torch.randn(2, 3, 8, 8){layout}
    with {context}:
        outputs = net(batch)
        mixed = extra @ weight
    if {train}:
        outputs.float().sum().backward()
    torch.ones(1)
    wait()
{steps}
"""
PLAIN = {
    "threads": "4",
    "weight": "torch.randn(16, 16)",
    "layout": "",
    "context": "contextlib.nullcontext()",
    "train": "False",
    "wait": "pass",
    "steps": "",
}


def record(launcher: Launcher, name: str, **changed: str) -> None:
    script = SCRIPT.format(**{**PLAIN, **changed})
    launcher.write(script.replace("torch.ones(1)", "torch.ones(1); import tracer; tracer.step()"))
    run = launcher.record("-o", f"{name}.trace", "script.py")
    assert run.status == 0, run.err


def make(launcher: Launcher) -> None:
    record(launcher, "before")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the plain program and its trace, recorded once."""
    return recorded_once(tmp_path_factory.mktemp("plain"), make).folder


@pytest.fixture
def before(launcher: Launcher, plain: Path) -> None:
    """The plain program and its trace lie in the launcher's folder."""
    for name in ("script.py", "before.trace"):
        shutil.copy(plain / name, launcher.folder)


def compare(launcher: Launcher, *arguments: str) -> Run:
    return launcher.run([str(launcher.tracer), "diff", "before.trace", "after.trace", *arguments])


def found(launcher: Launcher, **changed: str) -> tuple[Run, dict[str, Any]]:
    """The text and the document of a plain run (the fixture `before`) beside one that is changed."""
    record(launcher, "after", **changed)
    run = compare(launcher)
    document = json.loads(compare(launcher, "--json", "--limit", "0").out)
    assert document["same_structure"] == (run.status == 0)
    return run, document


def change_of(document: dict[str, Any], op: str) -> dict[str, Any]:
    (change,) = [change for change in document["changes"] if change["op"] == op]
    return change


@pytest.mark.usefixtures("before")
def test_the_same_program(launcher: Launcher) -> None:
    run, document = found(launcher)
    assert run.status == 0
    assert run.out.startswith("the same structure; a step took ")
    assert (document["changes"], document["causes"], document["facts"]) == ([], [], {})


@pytest.mark.promise("diff", "docs/diff.md")
@pytest.mark.usefixtures("before")
def test_autocast(launcher: Launcher) -> None:
    run, document = found(launcher, context="torch.autocast('cpu', dtype=torch.bfloat16)")
    assert run.status == 1
    assert "key AutocastCPU only after" in document["causes"]
    assert any(cause.startswith("dtype of inputs differs") for cause in document["causes"])
    assert "+aten::conv2d [AutocastCPU]" in run.out
    assert re.search(
        r"the same cause \(.+\) explains \d more changes: .*aten::linear", " ".join(run.out.split())
    )
    assert "stride" not in " ".join(change_of(document, "aten::matmul")["what"])


@pytest.mark.usefixtures("before")
def test_inference_mode(launcher: Launcher) -> None:
    run, document = found(launcher, context="torch.inference_mode()")
    assert run.status == 1
    assert "key AutogradCPU only before" in document["causes"]
    assert change_of(document, "aten::linear")["what"][-1] == "another chain"


@pytest.mark.usefixtures("before")
def test_channels_last(launcher: Launcher) -> None:
    run, document = found(launcher, layout=".to(memory_format=torch.channels_last)")
    assert run.status == 1
    change = change_of(document, "aten::conv2d")
    assert any(what.startswith("stride 0: 192x64x8x1 -> 0: 192x1x24x3") for what in change["what"])
    assert not any(what.startswith(("dtype", "shape")) for what in change["what"])


@pytest.mark.usefixtures("before")
def test_a_transposed_weight(launcher: Launcher) -> None:
    run, document = found(launcher, weight="torch.randn(16, 16).t()")
    assert run.status == 1
    assert change_of(document, "aten::matmul")["what"][0] == "stride 1: 16x1 -> 1: 1x16"
    assert document["causes"] == ["stride of inputs differs in 1 kind of op calls"]


@pytest.mark.usefixtures("before")
def test_threads(launcher: Launcher) -> None:
    run, document = found(launcher, threads="1")
    assert run.status == 0
    assert document["settings"] == {"threads": [4, 1]}
    assert document["causes"] == ["threads 4 -> 1"]
    assert "likely causes: threads 4 -> 1\n" in run.out


@pytest.mark.usefixtures("before")
def test_training_is_new_and_vanishes(launcher: Launcher) -> None:
    run, document = found(launcher, train="True")
    assert run.status == 1
    new = {change["op"] for change in document["changes"] if change["what"] == ["new"]}
    assert "aten::convolution_backward" in new
    assert "stride" not in run.out.partition("\n\n")[0]
    back = launcher.run(
        [str(launcher.tracer), "diff", "after.trace", "before.trace", "--json", "--limit", "0"]
    )
    gone = {c["op"] for c in json.loads(back.out)["changes"] if c["what"] == ["vanished"]}
    assert gone == new


@pytest.mark.usefixtures("before")
def test_a_line_that_moved_is_the_same_line(launcher: Launcher) -> None:
    text = (launcher.folder / "script.py").read_text()
    launcher.write("# one more line\n\n" + text)
    assert launcher.record("-o", "after.trace", "script.py").status == 0
    assert compare(launcher).status == 0


@pytest.mark.usefixtures("before")
def test_a_file_with_another_name_is_the_same_file(launcher: Launcher) -> None:
    (launcher.folder / "script.py").rename(launcher.folder / "renamed.py")
    assert launcher.record("-o", "after.trace", "renamed.py").status == 0
    assert compare(launcher).status == 0


@pytest.mark.usefixtures("before")
def test_an_edited_line_is_found_by_its_module(launcher: Launcher) -> None:
    text = (launcher.folder / "script.py").read_text()
    launcher.write(text.replace("outputs = net(batch)", "result = outputs = net.forward(1.0 * batch)"))
    assert launcher.record("-o", "after.trace", "script.py").status == 0
    document = json.loads(compare(launcher, "--json", "--limit", "0").out)
    what = {change["op"]: change["what"] for change in document["changes"]}
    line = "line outputs = net(batch) -> result = outputs = net.forward(1.0 * batch)"
    assert what["aten::conv2d"] == [line]
    assert what["aten::linear"] == [line]
    assert what["aten::mul.Tensor"] == ["new"]


@pytest.mark.compiler
@pytest.mark.usefixtures("before")
def test_torch_compile(launcher: Launcher) -> None:
    use_cache(launcher, launcher.folder / "inductor")
    text = (launcher.folder / "script.py").read_text()
    launcher.write(text.replace("extra =", "net = torch.compile(net)\nextra ="))
    assert launcher.record("-o", "after.trace", "script.py").status == 0
    run = compare(launcher)
    assert run.status == 1
    assert "likely causes: torch.compile only after (8 calls of compiled code)" in run.out
    document = json.loads(compare(launcher, "--json", "--limit", "0").out)
    what = {change["op"]: change["what"] for change in document["changes"]}["aten::relu"]
    assert what[0] == "vanished"  # a line of nn.Sequential leads to the line that called it
    assert what[1].startswith("fused into cpp_fused_")


@pytest.mark.usefixtures("before")
def test_a_trace_of_another_torch_and_machine(launcher: Launcher) -> None:
    """A GPU trace of torch 2.11: it works, says what differs, and names the option for what is missing."""
    other = str(Path(__file__).parents[2] / "reports/traces/mm.trace.xz")
    run = launcher.run([str(launcher.tracer), "diff", "before.trace", other, "--json"])
    assert run.status == 1
    document = json.loads(run.out)
    assert document["facts"]["torch"][1] == "2.11.0+cu130"
    assert f"torch {document['facts']['torch'][0]} -> 2.11.0+cu130" in document["causes"]
    assert document["remarks"][0].startswith("the sides have no Python line in common (script.py before, ")
    assert document["remarks"][1:] == [
        "only the second trace has CUDA calls and GPU work, so they are not compared; "
        "record the first with --cuda on, on a machine with a GPU"
    ]


@pytest.mark.usefixtures("before")
def test_times_by_op_and_module(launcher: Launcher) -> None:
    _, document = found(launcher)
    assert {"aten::conv2d", "aten::linear", "aten::matmul"} <= set(document["ops"])
    assert {"0", "3"} <= set(document["modules"])
    for by, row in (("op", "aten::conv2d"), ("module", "3 ")):
        out = compare(launcher, "--by", by).out
        head = next(line for line in out.splitlines() if line.split()[-2:] == ["verdict", by])
        assert head.split() == ["before", "after", "ratio", "(95", "%)", "verdict", by]
        assert any(f"  {row}" in f"{line} " for line in out.splitlines())
    wrong = compare(launcher, "--by", "hop")
    assert wrong.status == 2
    assert wrong.err == "tracer: --by hop: choose line, op or module (did you mean op?)\n"


@pytest.mark.usefixtures("before")
def test_a_page_in_markdown_and_in_html(launcher: Launcher) -> None:
    run, _ = found(launcher, context="torch.autocast('cpu', dtype=torch.bfloat16)")
    assert run.status == 1
    written = compare(launcher, "-o", "diff.md")
    assert (written.status, written.out, written.err) == (1, "", "tracer: wrote diff.md\n")
    text = (launcher.folder / "diff.md").read_text()
    assert text.startswith("# What changed\n\n`before.trace` (before) and `after.trace` (after): ")
    assert "- key AutocastCPU only after\n" in text
    assert "\n## Times by module\n" in text
    assert "```diff\n" in text
    assert compare(launcher, "-o", "diff.md").status == 2
    assert compare(launcher, "-o", "diff.html", "--limit", "3").status == 1
    page = (launcher.folder / "diff.html").read_text()
    assert "<h1>before.trace \u2192 after.trace</h1>" in page
    assert "default-src &#39;none&#39;; script-src &#39;sha256-" in page, "no script but the page's own"
    assert compare(launcher, "--json", "-o", "x.md").status == 2


VALUES = """\
import sys, torch, tracer
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
for step in range(4):
    x = torch.randn(3, 8)
    hidden = net[0](x)
    hidden = torch.nn.functional.leaky_relu(hidden, {slope})
    y = net[2](net[1](hidden))
    y = torch.log({inner})
    y.sum().backward()
    tracer.step()
"""


@pytest.mark.promise("diff", "docs/diff.md#values")
def test_the_first_value_that_differs_and_the_first_nan(launcher: Launcher) -> None:
    plain = {"slope": "0.1", "inner": "y.abs() + 1"}
    changed = {"slope": "0.1 if step < 2 else 0.2", "inner": "y.abs() + 1 if step < 3 else -y.abs() - 1"}
    for name, values in (("before", plain), ("after", changed)):
        launcher.write(VALUES.format(**values))
        run = launcher.record("--values", "hash", "-o", f"{name}.trace", "script.py")
        assert run.status == 0, run.err
    document = json.loads(compare(launcher, "--json").out)["values"]
    first = document["first"][1]
    assert (first["op"], first["step"], first["line"]) == ("aten::leaky_relu", 2, "script.py:8")
    assert document["compared"] > 50
    before, after = document["nans"]
    assert before is None
    assert (after["op"], after["step"], after["line"]) == ("aten::log", 3, "script.py:10")
    assert document["parted"][1]["op"] == "aten::neg"
    out = compare(launcher).out
    assert "the first whose values differ: hop " in out
    assert "the first NaN of the second run: hop " in out
    assert "NaN of the first run" not in out


def test_the_same_values(launcher: Launcher) -> None:
    launcher.write(VALUES.format(slope="0.1", inner="y.abs() + 1"))
    for name in ("before", "after"):
        assert launcher.record("--values", "hash", "-o", f"{name}.trace", "script.py").status == 0
    out = compare(launcher).out
    assert re.search(r"^\d+ op calls that both runs made .* all of them equal$", out, re.MULTILINE)
    assert launcher.record("--force", "-o", "after.trace", "script.py").status == 0
    remark = "only the first trace has hashes of values, so they are not compared; record the second with "
    assert f"{remark}--values hash " in " ".join(compare(launcher).out.split())


@pytest.mark.usefixtures("before")
def test_slower_by_more_than_that(launcher: Launcher) -> None:
    _, document = found(launcher, wait="time.sleep(0.02)")
    assert document["step"]["ratio"]["value"] > 2
    assert compare(launcher).status == 0
    assert compare(launcher, "--fail-over", "10%").status == 1
    assert compare(launcher, "--fail-over", "99999%").status == 0
    back = [str(launcher.tracer), "diff", "after.trace", "before.trace", "--fail-over", "10"]
    assert launcher.run(back).status == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--fail-over", "much"], "--fail-over much: give a percentage, e.g. 10%"),
        (["--fail-over", "-3%"], "--fail-over -3%: give a percentage"),
    ],
)
@pytest.mark.usefixtures("before")
def test_wrong_usage(launcher: Launcher, arguments: list[str], words: str) -> None:
    run = launcher.run([str(launcher.tracer), "diff", "before.trace", "before.trace", *arguments])
    assert run.status == 2
    assert words in run.err


def test_without_steps(launcher: Launcher) -> None:
    launcher.write("import torch\ntorch.ones(2).neg()\n")
    for name in ("before", "after"):
        assert launcher.record("-o", f"{name}.trace", "script.py").status == 0
    run = compare(launcher)
    assert run.status == 0
    assert run.out.startswith("the same structure; the whole run took ")
    assert "(no steps: call tracer.step() after each iteration)" in " ".join(run.out.split())
    assert re.search(r"us +\d\.\d\d +script.py:2 +aten::neg +torch.ones", run.out)
    assert compare(launcher, "--fail-over", "5%").status == 2


def test_a_trace_that_is_not_there(launcher: Launcher) -> None:
    launcher.write("import torch\n")
    assert compare(launcher).status == 2


TRAINING = """\
import time, torch, tracer
from torch.nn import functional as F
torch.manual_seed(0)
torch.set_num_threads(1)
up, down = torch.nn.Linear(64, 128), torch.nn.Linear(128, 64)
optimizer = torch.optim.SGD([*up.parameters(), *down.parameters()], lr=1e-3)
for step in range(12):
    batch = torch.randn(64, 64)
    hidden = up(batch)
    hidden = {hidden}
    output = down(hidden)
    loss = F.mse_loss(output, batch)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
POWER = "sum(torch.tanh(hidden * n) for n in range(40))"


@pytest.mark.promise("diff", "docs/diff.md#several-runs-a-side")
def test_several_runs_a_side_name_the_line_that_changed(launcher: Launcher) -> None:
    """Each version is recorded twice, in turns; a run of one version beside another is no change."""
    for number in (1, 2):
        for version, hidden in (("a", "torch.tanh(hidden)"), ("b", POWER)):
            launcher.write(TRAINING.format(hidden=hidden))
            assert launcher.record("-o", f"{version}{number}.trace", "script.py").status == 0
    command = [str(launcher.tracer), "diff", "--before", "a1.trace", "a2.trace", "--after"]
    run = launcher.run([*command, "b1.trace", "b2.trace"])
    document = json.loads(launcher.run([*command, "b1.trace", "b2.trace", "--json", "--limit", "0"]).out)
    assert (run.status, document["rule"], document["runs"]) == (1, "runs", [2, 2])
    assert [trace["trace"] for trace in document["traces"]["after"]] == ["b1.trace", "b2.trace"]
    assert "medians of 2 runs before and 2 after" in " ".join(run.out.split())
    largest = max(
        document["lines"], key=lambda row: (row["times"]["after"] or 0) - (row["times"]["before"] or 0)
    )
    assert largest["line"] == "script.py:10"
    (changed,) = {change["line"] for change in document["changes"]}
    assert changed == "script.py:10"
    same = json.loads(launcher.run([*command[:4], "--after", "a2.trace", "--json"]).out)
    assert (same["same_structure"], same["rule"]) == (True, "steps")
