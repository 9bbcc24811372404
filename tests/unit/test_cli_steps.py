"""`tracer steps` as a user types it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import polars as pl
import pytest
import test_cli_tree
import test_step_times
from typer.testing import CliRunner, Result

from tracer.trace.tables.schema import IMPORTS

folder = test_cli_tree.folder


@pytest.fixture
def trace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys.modules["tracer.trace"], "load", lambda path: test_step_times.training())
    return folder


def shown(*words: str) -> Result:
    from tracer.cli.app import app

    return CliRunner().invoke(app, ["steps", *words])


def test_a_row_for_each_step_and_for_each_gap(trace: Path) -> None:
    result = shown("run.trace")
    assert result.exit_code == 0, result.output
    steps, outside = result.stdout.split("\n\n")
    assert steps.splitlines() == [
        "   wall  of median  forward  backward  optimizer  waiting for GPU  elsewhere  step",
        "10.0 us     1.00 x   2.0 us    3.0 us     1.0 us                      4.0 us  0",
        "10.0 us     1.00 x   4.8 us                                1.5 us     3.7 us  1",
        " 1.5 us             0.50 us                                           1.0 us  after the last step",
        "2 steps: median 10.0 us, longest 10.0 us. Of their wall time: 38.5 % elsewhere, 34.0 % forward, "
        "15.0 % backward, 7.5 % waiting for GPU, 5.0 % optimizer.",
    ]
    assert outside.splitlines()[0].split() == [
        *"share of wall total median p95 longest gaps line before -> line after text".split()
    ]
    assert outside.splitlines()[1].split() == [
        *"25.0 % 5.0 us 5.0 us 5.0 us 5.0 us 1 train.py:12 -> train.py:10".split()
    ]
    assert outside.splitlines()[-1] == "Outside ops: 7.7 us, 38.5 % of the wall time of 2 steps."


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_terminal_of_any_width_has_every_number(
    trace: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    whole = shown("run.trace").stdout
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", str(columns))):
        monkeypatch.setenv(name, value)
    said = re.sub(r"\x1b\[[\d;]*m", "", shown("run.trace").stdout)
    table, _, rest = said.partition("2 steps: ")
    assert max(map(len, table.splitlines())) <= columns
    numbers = re.findall(r"\d+\.\d+", whole.partition("2 steps: ")[0])
    assert sorted(re.findall(r"\d+\.\d+", table)) == sorted(numbers)
    assert "after the last step" in table
    assert "train.py:12 -> train.py:10" in rest


def test_only_the_longest_steps(trace: Path) -> None:
    lines = shown("run.trace", "--limit", "2").stdout.splitlines()
    assert [line.split()[-1] for line in lines[:3]] == ["step", "0", "1"]
    assert lines[3] == "Shown: the 2 longest of 3 steps. More: --limit 0."


def test_as_json(trace: Path) -> None:
    document = json.loads(shown("run.trace", "--json").stdout)
    assert [row["wall_ns"] for row in document["steps"]] == [10_000, 10_000, 1500]
    assert (document["outside_ns"], document["gaps_of"], document["gaps"][0]["total_ns"]) == (
        7700,
        "steps",
        5000,
    )


def test_without_steps_it_says_how_to_see_them(folder: Path) -> None:
    result = shown("run.trace")
    assert "No step ended. To see steps, call tracer.step() after each iteration." in result.stdout


def test_the_gaps_of_one_step(trace: Path) -> None:
    lines = shown("run.trace", "--step", "0").stdout.splitlines()
    assert [line.split()[-1] for line in lines[:2]] == ["step", "0"]
    assert lines[-1] == "Outside ops: 4.0 us, 40.0 % of the wall time of step 0."
    assert "train.py:12 -> train.py:10" in "\n".join(lines)
    assert "train.py:13" not in "\n".join(lines), "it is of step 1"
    result = shown("run.trace", "--step", "7")
    assert result.exit_code == 1
    assert result.stderr == "tracer: no step 7 ended in this recording; tracer steps shows those that did\n"


def test_a_step_that_took_long_has_its_longest_gap_below(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [90_000, 100_000, 110_000, 120_000]
    starts = [0, 90_000, 100_000, 110_000]
    ops = [test_step_times.op("a", start, 1) for start in starts]
    ops.insert(1, test_step_times.op("b", 80_000, 2))
    made = test_step_times.trace(ops, ends, ["warmup", *["steady"] * 3])
    monkeypatch.setattr(sys.modules["tracer.trace"], "load", lambda path: made)
    lines = shown("run.trace").stdout.splitlines()
    assert [line.split()[-1] for line in lines[:3]] == ["phase", "warm-up", "1"], "steady needs no word"
    (line,) = (line for line in lines if line.startswith("step 0:"))
    assert line.startswith("step 0: 88.0 us outside ops, 79.0 us of it train.py:1 -> train.py:2")
    document = json.loads(shown("run.trace", "--json").stdout)
    assert [row["longest_ns"] for row in document["longest_gaps"]] == [79_000]


@pytest.mark.parametrize(
    ("took", "said"), [(30_000, None), (30_010, "importing b and 2 more 39.5 us"), (0, None)]
)
def test_a_gap_that_was_mostly_an_import_names_the_module(
    folder: Path, monkeypatch: pytest.MonkeyPatch, took: int, said: str | None
) -> None:
    """Of the imports that count for the gap, from 1,000 to 80,000, is what was in it, in its process."""
    starts = [0, 80_000, 90_000, 100_000, 110_000]
    ops = [test_step_times.op("a", start, 1 + (start == 80_000)) for start in starts]
    spans = [(0, "a", 500, 10_000), (0, "b", 11_000, 11_000 + took), (0, "c", 79_500, 1 << 40)]
    names = "process", "module", "start_ns", "end_ns"
    imports = [dict(zip(names, span, strict=True)) for span in (*spans, (1, "d", 1_000, 80_000))]
    made = test_step_times.trace(
        ops,
        [90_000, 100_000, 110_000, 120_000],
        ["warmup", *["steady"] * 3],
        imports=pl.DataFrame([dict.fromkeys(IMPORTS) | row for row in imports], IMPORTS),
    )
    monkeypatch.setattr(sys.modules["tracer.trace"], "load", lambda path: made)
    (line,) = (line for line in shown("run.trace").stdout.splitlines() if line.startswith("step 0:"))
    assert line.endswith(f"train.py:1 -> train.py:2{f', {said}' if said else ''}")
    (row,) = json.loads(shown("run.trace", "--json").stdout)["longest_gaps"]
    figures = row["importing"], row["imports"], row["importing_ns"]
    assert figures == (("b", 3, 39_510) if said else (None, None, None))
