"""`tracer record --steps`: only some steps of the program."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from launching import Launcher

import tracer
from tracer.recording.options import Options

BY_CALL = """
import torch, tracer
for step in range(8):
    for _ in range(step + 1):
        torch.ones(2).neg()
    tracer.step()
torch.ones(2).abs()
"""
BY_OPTIMIZER = """
import torch
other = torch.nn.Parameter(torch.ones(2))
rows = torch.nn.Parameter(torch.ones(2))
first, second = torch.optim.SGD([rows], lr=0.1), torch.optim.Adam([other], lr=0.1)
for step in range(8):
    for _ in range(step + 1):
        (rows * 1.0).sum().neg()
    rows.grad = torch.ones(2)
    other.grad = torch.ones(2)
    first.step()
    second.step()
"""
BOTH = BY_OPTIMIZER.replace("import torch", "import torch, tracer") + "    tracer.step()\n"
NONE = "import torch; torch.ones(1).neg()"
SCRIPTS = {"call": BY_CALL, "optimizer": BY_OPTIMIZER, "both": BOTH, "none": NONE}
RECORDINGS = [
    ("call", "3:6"),
    ("call", "0"),
    ("call", ":2"),
    ("call", "6:"),
    ("call", "9:12"),
    ("optimizer", "3:6"),
    ("optimizer", "0"),
    ("optimizer", "7"),
    ("both", "1:3"),
    ("none", "0:2"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces `SCRIPT STEPS.trace`, and what was said of each (`SCRIPT STEPS.txt`)."""
    launcher = Launcher(tmp_path_factory.mktemp("steps"))
    launcher.write(
        "import tracer\n"
        f"scripts, recordings = {SCRIPTS!r}, {RECORDINGS!r}\n"
        "for script, steps in recordings:\n"
        "    name = f'{script} {steps}'\n"
        "    with tracer.record(name + '.trace', steps=steps, cuda='off') as recording:\n"
        "        exec(compile(scripts[script], 'script.py', 'exec'), {})\n"
        "    open(name + '.txt', 'w').write(recording.summary.text())\n"
    )
    run = launcher.python("script.py")
    assert run.status == 0, run.err
    return launcher.folder


def calls_by_step(trace: tracer.Trace, op: str = "aten::neg") -> dict[int | None, int]:
    calls = trace.hops.filter((pl.col("op") == op) & (pl.col("kind") == "call"))
    return dict(calls.group_by("step").len().sort("step").iter_rows())


@pytest.mark.parametrize(
    ("script", "steps", "expected", "said"),
    [
        ("call", "3:6", {3: 4, 4: 5, 5: 6}, "recorded only steps 3:6 (8 steps ended)"),
        ("call", "0", {0: 1}, "recorded only steps 0:1 (8 steps ended)"),
        ("call", ":2", {0: 1, 1: 2}, "recorded only steps 0:2 (8 steps ended)"),
        ("call", "6:", {6: 7, 7: 8}, "recorded only steps 6: (8 steps ended)"),
        ("call", "9:12", {}, "step 9 was not reached: only 8 steps ended"),
        ("optimizer", "3:6", {3: 4, 4: 5, 5: 6}, "recorded only steps 3:6 (8 steps ended)"),
        ("optimizer", "0", {0: 1}, "recorded only steps 0:1 (8 steps ended)"),
        ("optimizer", "7", {7: 8}, "recorded only steps 7:8 (8 steps ended)"),
        ("both", "1:3", {1: 2, 2: 3}, "recorded only steps 1:3 (8 steps ended)"),
        (
            "none",
            "0:2",
            {None: 1},
            "no step ended, so steps 0:2 were not recorded: call tracer.step() after each",
        ),
    ],
)
def test_only_these_steps_are_recorded(
    folder: Path, script: str, steps: str, expected: dict[int | None, int], said: str
) -> None:
    assert calls_by_step(tracer.load(folder / f"{script} {steps}.trace")) == expected
    assert said in " ".join((folder / f"{script} {steps}.txt").read_text().split())


def test_what_follows_the_last_step_belongs_to_none(folder: Path) -> None:
    assert calls_by_step(tracer.load(folder / "call 6:.trace"), "aten::abs") == {None: 1}


def test_the_certificate_says_what_was_asked_for(folder: Path) -> None:
    certificate = tracer.load(folder / "optimizer 3:6.trace").certificate
    assert certificate["steps"] == {"wanted": [3, 6], "ended": 8, "counted_by": "optimizer.step()"}
    why = "only steps 3:6 were recorded (--steps); 8 steps ended, counted by optimizer.step()"
    assert why in certificate["why"]
    assert certificate["verdict"].startswith("complete")
    assert tracer.load(folder / "both 1:3.trace").certificate["steps"]["counted_by"] == "tracer.step()"


def test_one_step_of_some_can_be_read_alone(folder: Path) -> None:
    assert calls_by_step(tracer.load(folder / "call 3:6.trace", step=4))[4] == 5
    with pytest.raises(tracer.TraceError, match="has no step 6; choose 3 to 5"):
        tracer.load(folder / "call 3:6.trace", step=6)


@pytest.mark.promise("record", "docs/record.md#some-steps")
def test_from_the_command_line(launcher: Launcher) -> None:
    launcher.write(BY_OPTIMIZER)
    run = launcher.record("-o", "run.trace", "--steps", "3:6", "script.py")
    assert run.status == 0, run.err
    assert "recorded only steps 3:6 (8 steps ended)" in run.said
    assert calls_by_step(tracer.load(launcher.folder / "run.trace")) == {3: 4, 4: 5, 5: 6}
    wrong = launcher.record("--steps", "6:3", "script.py")
    assert wrong.status == 2
    assert wrong.err == "tracer: steps='6:3': give 3:6 (that is 3, 4 and 5), 3:, :6 or 3\n"


@pytest.mark.parametrize("wrong", ["2:1", "3:3", "x", "-1", "", "1:2:3", (None, 2), (1,)])
def test_what_is_no_slice_is_refused(wrong: object) -> None:
    with pytest.raises(tracer.RecordingError, match="give 3:6 "):
        tracer.record(steps=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_size": "3M"}, "max-size 3M is too small; give at least 16M"),
        ({"max_size": 1 << 20, "then_stop": True}, "too small; give at least 4M"),
        ({"max_size": "lots"}, "max-size 'lots' is not a size; give e.g. 256M or 1G"),
        ({"then_stop": True}, "then-stop needs a max-size; give one"),
    ],
)
def test_sizes_that_cannot_be_are_refused(options: dict, message: str) -> None:
    with pytest.raises(tracer.RecordingError, match=message):
        tracer.record(**options)


@pytest.mark.parametrize(
    ("given", "size"), [("256M", 256 << 20), ("1.5g", 3 << 29), ("64MiB", 64 << 20), (1 << 26, 1 << 26)]
)
def test_sizes(given: str | int, size: int) -> None:
    assert Options(max_size=given).max_size == size
