"""`tracer advise` of programs with one thing to improve, and of the same programs without it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from launching import Launcher
from planted import CASES, program

import tracer
from tracer.advice.experiments import Recorded
from tracer.base import interpreter
from tracer.experiments.measured import _HELPER
from tracer.experiments.pairs import pairs_of
from tracer.replay.replay_errors import CannotReplayError

ONLY_MEASURED = ("channels-last",)
"""Rules that say nothing without an experiment"""


def advised(folder: Path, text: str, *words: str) -> dict[str, Any]:
    launcher = Launcher(folder)
    launcher.write(text)
    recorded = launcher.record("--values", "scalars", "-o", "run.trace", "script.py")
    assert recorded.status == 0, recorded.err
    run = launcher.run([str(launcher.tracer), "advise", "run.trace", "--json", *words])
    assert run.status == 0, run.err
    return dict(json.loads(run.out))


def rules(document: dict[str, Any]) -> set[str]:
    rows = [one for row in document["advice"] for one in (row, *row["alternatives"])]
    return {row["rule"] for row in rows} | only_measured(document)


def only_measured(document: dict[str, Any]) -> set[str]:
    """What an experiment tells; `failed` where the machine was too busy for one."""
    return {*document["untried"], *document["failed"]}


@pytest.mark.promise("advise", "docs/advise.md")
@pytest.mark.parametrize("case", CASES)
def test_what_was_planted_is_found_and_not_in_the_twin(tmp_path: Path, case: str) -> None:
    cores = os.cpu_count() or 1
    found = advised(tmp_path / "planted", program(case, True, cores))
    assert case in rules(found)
    assert (case in only_measured(found)) == (case in ONLY_MEASURED)
    twin = advised(tmp_path / "twin", program(case, False, cores))
    assert case not in rules(twin) - only_measured(twin)
    assert case not in only_measured(twin) or case == "data-loader"  # of cheap rows only an experiment tells


def test_the_line_is_where_the_time_passes(tmp_path: Path) -> None:
    found = advised(tmp_path, program("optimizer", True))
    row = next(row for row in found["advice"] if row["rule"] == "optimizer")
    assert row["text"] == "optimizer.step()"
    assert row["line"].startswith("script.py:")
    assert "fused=True" in row["do"]
    assert "60 parameters" in row["evidence"]  # 30 layers with weight and bias
    assert [other["rule"] for other in row["alternatives"]] == ["optimizer"]  # foreach: the same time
    assert row["known"] == "bounded"
    assert 0 < row["gain"]["ns"] <= row["cost_ns"] <= found["step_ns"]


def test_a_gain_is_measured_by_running_the_recorded_sizes(tmp_path: Path) -> None:
    text = program("optimizer", True).replace("mlp(64, 30)", "mlp(256, 12)").replace("8, 8, 64", "8, 8, 256")
    found = advised(tmp_path, text, "--measure", "--all")
    rows = [one for row in found["advice"] for one in (row, *row["alternatives"])] + found["dropped"]
    fused = next(row for row in rows if "fused=True" in row["do"])
    if fused["known"] == "bounded":  # nothing is said of a machine that is busy
        why = ("the machine is ", "the machine was ", "it took longer than 20 s", "the same calls took ")
        assert fused["why_not_measured"].startswith(why)
    else:
        assert fused["gain"]["ratio_low"] <= fused["gain"]["ratio"] <= fused["gain"]["ratio_high"]
        assert fused["gain"]["ns"] <= fused["cost_ns"]
    launcher = Launcher(tmp_path)
    later = json.loads(launcher.run([str(launcher.tracer), "advise", "run.trace", "--json", "--all"]).out)
    assert (
        fused in [one for row in later["advice"] for one in (row, *row["alternatives"])] + later["dropped"]
        or fused["known"] == "bounded"
    )


def test_too_few_steps_are_said(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    launcher.write("import torch\ntorch.mm(torch.randn(3, 3), torch.randn(3, 3))\n")
    assert launcher.record("-o", "run.trace", "script.py").status == 0
    run = launcher.run([str(launcher.tracer), "advise", "run.trace"])
    assert run.status == 1
    assert (
        run.err
        == "tracer: no step of this trace is steady; record 5 steps or more (tracer.step() ends one)\n"
    )


def test_an_experiment_ends_though_nobody_waits() -> None:
    text = f"from tracer import experiments; experiments.SECONDS = 0; {_HELPER}"
    waiting = subprocess.Popen(interpreter.helper(text), stdin=subprocess.PIPE)
    assert waiting.wait(60) == -signal.SIGALRM


def test_an_experiment_runs_nothing_that_replay_refuses(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    launcher.write("import torch\nopen('bytes', 'wb').write(bytes(64))\ntorch.from_file('bytes', size=16)\n")
    recorded = launcher.record("--values", "scalars", "-o", "run.trace", "script.py")
    assert recorded.status == 0, recorded.err
    (tmp_path / "bytes").unlink()
    trace = tracer.load(tmp_path / "run.trace")
    (hop, *_) = trace.hops.filter(pl.col("op") == "aten::from_file")["id"]
    with pytest.raises(CannotReplayError, match="aten::from_file may do more than compute"):
        pairs_of(Recorded((hop,), (1.0,), (1.0,), "threads", "1"), trace.path)


LOOP = """
import torch
import tracer
torch.set_num_threads(1)
weight = torch.randn(32, 32) / 6
for batch in torch.randn(8, 64, 4, 32):
    state = batch[0]
    for row in batch:
        state = torch.tanh({} @ weight)
    tracer.step()
"""


@pytest.mark.parametrize("values", ["scalars", "none"])
@pytest.mark.parametrize(("operand", "needs_the_last"), [("row", False), ("state", True)])
def test_calls_that_need_each_other_have_no_single_call(
    tmp_path: Path, operand: str, needs_the_last: bool, values: str
) -> None:
    launcher = Launcher(tmp_path)
    launcher.write(LOOP.format(operand))
    assert launcher.record("--values", values, "-o", "run.trace", "script.py").status == 0
    run = launcher.run([str(launcher.tracer), "advise", "run.trace", "--json"])
    document = json.loads(run.out)
    rows = [one for row in document["advice"] for one in (row, *row["alternatives"])]
    found = [row for row in rows if row["rule"] == "python-loop"]
    if values == "none":
        assert [row["caveat"] for row in found] == [
            "if no call needs the result of the one before: the recording has no --values scalars"
        ]
    else:
        assert [row["caveat"] for row in found] == ([] if needs_the_last else [None])
