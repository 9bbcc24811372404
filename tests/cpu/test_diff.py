"""`tracer diff`: what changed between two recordings, and why."""

from __future__ import annotations

import json
from typing import Any

import pytest
from launching import Launcher, Run

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


def compare(launcher: Launcher, *arguments: str) -> Run:
    return launcher.run([str(launcher.tracer), "diff", "before.trace", "after.trace", *arguments])


def found(launcher: Launcher, **changed: str) -> tuple[Run, dict[str, Any]]:
    """The text and the document of a plain run beside one that is changed."""
    record(launcher, "before")
    record(launcher, "after", **changed)
    run = compare(launcher)
    document = json.loads(compare(launcher, "--json", "--limit", "0").out)
    assert document["same_structure"] == (run.status == 0)
    return run, document


def change_of(document: dict[str, Any], op: str) -> dict[str, Any]:
    (change,) = [change for change in document["changes"] if change["op"] == op]
    return change


def test_the_same_program(launcher: Launcher) -> None:
    run, document = found(launcher)
    assert run.status == 0
    assert run.out.startswith("the same structure; a step took ")
    assert (document["changes"], document["causes"], document["facts"]) == ([], [], {})


def test_autocast(launcher: Launcher) -> None:
    run, document = found(launcher, context="torch.autocast('cpu', dtype=torch.bfloat16)")
    assert run.status == 1
    assert "key AutocastCPU only after" in document["causes"]
    assert any(cause.startswith("dtype of inputs differs") for cause in document["causes"])
    assert "+aten::linear [AutocastCPU]" in run.out
    assert "stride" not in " ".join(change_of(document, "aten::matmul")["what"])


def test_inference_mode(launcher: Launcher) -> None:
    run, document = found(launcher, context="torch.inference_mode()")
    assert run.status == 1
    assert "key AutogradCPU only before" in document["causes"]
    assert change_of(document, "aten::linear")["what"][-1] == "another chain"


def test_channels_last(launcher: Launcher) -> None:
    run, document = found(launcher, layout=".to(memory_format=torch.channels_last)")
    assert run.status == 1
    change = change_of(document, "aten::conv2d")
    assert any(what.startswith("stride 0: 192x64x8x1 -> 0: 192x1x24x3") for what in change["what"])
    assert not any(what.startswith(("dtype", "shape")) for what in change["what"])


def test_a_transposed_weight(launcher: Launcher) -> None:
    run, document = found(launcher, weight="torch.randn(16, 16).t()")
    assert run.status == 1
    assert change_of(document, "aten::matmul")["what"][0] == "stride 1: 16x1 -> 1: 1x16"
    assert document["causes"] == ["stride of inputs differs in 1 kind of op calls"]


def test_threads(launcher: Launcher) -> None:
    run, document = found(launcher, threads="1")
    assert run.status == 0
    assert document["settings"] == {"threads": [4, 1]}
    assert document["causes"] == ["threads 4 -> 1"]
    assert "likely causes: threads 4 -> 1\n" in run.out


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


def test_a_line_that_moved_is_the_same_line(launcher: Launcher) -> None:
    record(launcher, "before")
    text = (launcher.folder / "script.py").read_text()
    launcher.write("# one more line\n\n" + text)
    assert launcher.record("-o", "after.trace", "script.py").status == 0
    assert compare(launcher).status == 0


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
def test_wrong_usage(launcher: Launcher, arguments: list[str], words: str) -> None:
    record(launcher, "before")
    record(launcher, "after")
    run = compare(launcher, *arguments)
    assert run.status == 2
    assert words in run.err


def test_without_steps(launcher: Launcher) -> None:
    launcher.write("import torch\ntorch.ones(2).neg()\n")
    for name in ("before", "after"):
        assert launcher.record("-o", f"{name}.trace", "script.py").status == 0
    run = compare(launcher)
    assert (run.status, run.out) == (
        0,
        "the same structure; no steps to compare: call tracer.step() after each iteration\n",
    )
    assert compare(launcher, "--fail-over", "5%").status == 2


def test_a_trace_that_is_not_there(launcher: Launcher) -> None:
    launcher.write("import torch\n")
    assert compare(launcher).status == 2
