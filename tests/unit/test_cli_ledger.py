"""`tracer ledger` as a user types it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl
import pytest
import test_cli_tree
import test_ledger
from typer.testing import CliRunner, Result

from tracer.cli.app import app
from tracer.report.ledger_text import _median_of

folder = test_cli_tree.folder
NOTES = [
    "tracer costs 150 ns per outermost hop, 60 ns per other hop (297 events timed).",
    "The time in which Python's bindings parse arguments is part of Python between ops.",
    "Kernel functions include the CPU libraries that they call (BLAS, oneDNN).",
]


@pytest.fixture
def trace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = test_ledger.trace(test_ledger.training(), certificate=test_ledger.COST)
    monkeypatch.setattr(sys.modules["tracer.trace"], "load", lambda path: made)
    return folder


def ledger(*words: str) -> Result:
    return CliRunner().invoke(app, ["ledger", "run.trace", *words])


def test_a_row_for_each_layer_and_the_sum(trace: Path) -> None:
    result = ledger()
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "step 0, the median of 1 steady step: 10.0 us, 6 hops",
        "    time    share     each  times  layer",
        "  1.4 us   13.7 %  0.69 us      2  Python between ops",
        "not seen                             parsing of arguments, call of the op",
        "  1.7 us   17.4 %  0.87 us      2  into and out of backward()",
        " 0.07 us    0.7 %  0.07 us      1  autograd engine between ops",
        " 0.94 us    9.4 %  0.94 us      1  key AutogradCPU",
        " 0.94 us    9.4 %  0.94 us      1  composite ops at AutogradCPU",
        "  4.2 us   42.2 %   1.1 us      4  kernel functions [CPU]",
        " 0.72 us    7.2 %  0.12 us      6  tracer's own cost (estimate)",
        " 0.00 us    0.0 %                  unexplained rest",
        " 10.0 us  100.0 %                  sum",
        "Without tracer the step would take 9.3 us (estimate).",
        *NOTES,
    ]


def test_a_line(trace: Path) -> None:
    lines = ledger("--line", "train.py:7", "--step", "0").stdout.splitlines()
    assert lines[0] == "train.py:7 in step 0: 7.0 us, 5 hops"
    assert "Without tracer train.py:7 would take 6.6 us (estimate)." in lines


def test_an_op(trace: Path) -> None:
    lines = ledger("--op", "linear", "--steps", "0-5").stdout.splitlines()
    assert lines[0] == "linear in step 0: 4.0 us, 3 hops"
    assert not any(line.startswith(("Python", "  parsing")) for line in lines)


def test_the_hops_of_an_op_as_a_tree(trace: Path) -> None:
    result = ledger("--op", "linear", "--path")
    assert result.stdout.splitlines()[:5] == [
        "linear in step 0, the median of 1 steady step: 4.0 us, 3 hops",
        "   time    share     each  times  layer",
        "0.94 us   23.5 %  0.94 us      1  aten::linear [AutogradCPU]",
        "0.94 us   23.5 %  0.94 us      1    aten::mm [AutogradCPU]",
        " 2.0 us   49.5 %   2.0 us      1      aten::mm [CPU]",
    ]
    rows = json.loads(ledger("--op", "linear", "--path", "--json").stdout)["rows"]
    assert rows[1]["path"] == ["aten::linear [AutogradCPU]", "aten::mm [AutogradCPU]"]


def test_a_document(trace: Path) -> None:
    document = json.loads(ledger("--json").stdout)
    assert (document["wall_ns"], document["bare_ns"], document["own_ns"]) == (10_000, 9_280, 720)
    rows = {row["name"]: row for row in document["rows"]}
    assert rows["kernel functions [CPU]"] == {
        "layer": "kernel",
        "key": "CPU",
        "path": None,
        "name": "kernel functions [CPU]",
        "ns": 4220,
        "times": 4,
    }
    assert rows["parsing of arguments, call of the op"]["ns"] is None
    assert document["gpu"] is None


def test_a_page(trace: Path) -> None:
    assert ledger("-o", "x.md").exit_code == 0
    page = Path("x.md").read_text()
    assert page.startswith(
        "# Ledger of run.trace\n\nstep 0, the median of 1 steady step: 10.0 us, 6 hops\n\n"
        "|     time |   share |"
    )
    assert "| kernel functions \\[CPU\\]             |\n" in page
    assert "- Without tracer the step would take 9.3 us (estimate).\n" in page
    assert max(map(len, page.splitlines())) <= 100
    again = ledger("-o", "x.md")
    assert again.exit_code == 2
    assert again.stderr == "tracer: x.md exists; overwrite it with --force, or give another file\n"
    assert ledger("-o", "x.md", "--force").exit_code == 0


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (
            ["--op", "nosuch"],
            1,
            "no hop fits 'nosuch' in step 0 of run.trace; what ran there: tracer tree run.trace --step 0",
        ),
        (
            ["--line", "x.py:1"],
            1,
            "no hop fits 'x.py:1' in step 0 of run.trace; what ran there: tracer tree run.trace --step 0",
        ),
        (["--step", "9"], 1, "run.trace has no step 9; it has steps 0 to 0"),
        (["--steps", "7-9"], 1, "run.trace has no steps 7-9; it has steps 0 to 0"),
        (["--steps", "9-7"], 2, "--steps 9-7: give the first and the last step, e.g. 10-40"),
        (["--steps", "0-1", "--step", "0"], 2, "give --step or --steps, not both"),
        (["--line", "a.py:1", "--op", "mm"], 2, "give --line or --op, not both"),
        (["--process", "7"], 1, "process 7 of run.trace has no step; choose one of 0"),
        (["--path"], 2, "--path needs --op or --line"),
        (["--json", "-o", "x.md"], 2, "give --json or --output, not both"),
        (["-o", "x.html"], 2, "x.html: a report is markdown; give a file that ends in .md"),
    ],
)
def test_what_cannot_be_shown(trace: Path, words: list[str], status: int, said: str) -> None:
    result = ledger(*words)
    assert (result.exit_code, result.stderr) == (status, f"tracer: {said}\n")


def test_a_trace_without_steps(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = test_ledger.trace(test_ledger.training(), certificate={})
    made.steps = made.steps.clear()
    monkeypatch.setattr(sys.modules["tracer.trace"], "load", lambda path: made)
    result = ledger()
    assert result.exit_code == 1
    assert (
        "run.trace has no step; call tracer.step() at the end of each, or step an optimizer" in result.stderr
    )


def test_what_a_step_is_if_the_program_marked_none(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step may be a call of one of many layers, and the reader took it for a turn of the loop."""
    made = test_ledger.trace(test_ledger.training(), certificate={})
    made.steps = made.steps.with_columns(module=pl.lit("Layer"))
    monkeypatch.setattr(sys.modules["tracer.trace"], "load", lambda path: made)
    said = "tracer: a step is a call of Layer, and what runs until the next one: nothing else marked a step\n"
    assert ledger().stderr == said
    assert CliRunner().invoke(app, ["advise", "run.trace"]).stderr.startswith(said)


def test_several_processes(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = test_ledger.trace(test_ledger.training(), certificate={})
    other = made.steps.with_columns(process=pl.lit(1, pl.UInt32), step=pl.lit(5, pl.Int64))
    made.steps = pl.concat([made.steps, other])
    monkeypatch.setattr(sys.modules["tracer.trace"], "load", lambda path: made)
    result = ledger()
    assert result.stdout.startswith("step 0, the median of 1 steady step")
    assert result.stderr == "tracer: showing process 0 of 2; others: --process N\n"
    result = ledger("--process", "1")
    assert (result.exit_code, result.stderr) == (
        1,
        "tracer: no hop is in step 5 of run.trace; what ran there: tracer tree run.trace --step 5\n",
    )


def test_help_has_examples() -> None:
    result = CliRunner().invoke(app, ["ledger", "--help"])
    assert "tracer ledger run.trace --line train.py:41" in result.stdout


def test_the_line_has_the_spread_of_the_steps_that_its_step_is_the_median_of() -> None:
    assert _median_of([]) == ""
    assert _median_of([1000]) == ", the median of 1 steady step"
    times = [1000, 2000, 3000, 4000, 90_000]
    assert _median_of([10, 2000]) == ", the median of 2 steady steps"
    assert _median_of(times) == ", the median of 5 steady steps (half of them 2.0 us to 4.0 us)"
