"""`tracer diff` as a user types it: which traces are on which side, and the line that says what is wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import test_cli_tree
from made_runs import run, slower
from typer.testing import CliRunner, Result

from tracer.cli.several import spread

TANH = "hidden = torch.tanh(hidden)"
folder = test_cli_tree.folder


@pytest.fixture
def traces(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """a1, a2 are runs of one version, b1, b2 of a slower one, and c1 of another script."""
    made = {name: run(seed=number, path=f"{name}.trace") for number, name in enumerate(("a1", "a2"))}
    made |= {f"b{n}": run(slower(TANH, 5), seed=5 + n, path=f"b{n}.trace") for n in (1, 2)}
    made["c1"] = run([("y = net(x)", "aten::mm", 1000)], file="other.py", path="c1.trace")
    made["w1"] = run(marked=False, seed=8, path="w1.trace")
    made["few"] = run([("y = net(x)", "aten::mm", 1000)], outside=0, path="few.trace")
    made["few2"] = run([("y = net(x)", "aten::mm", 3000)], outside=0, path="few2.trace")
    for name in made:
        (folder / f"{name}.trace").write_text(f"trace {name}")
    monkeypatch.setattr(sys.modules["tracer.trace"], "load", lambda path: made[Path(path).stem])
    return folder


def diff(*words: str) -> Result:
    from tracer.cli.app import app

    return CliRunner().invoke(app, ["diff", *words])


def sides(*words: str) -> tuple[list[str], list[str]]:
    result = diff(*words, "--json")
    assert result.exit_code in (0, 1), result.output
    of = json.loads(result.stdout)["traces"]
    before, after = (
        [trace["trace"].removesuffix(".trace") for trace in of[side]] for side in ("before", "after")
    )
    return before, after


@pytest.mark.parametrize(
    "words",
    [
        "--before a1.trace a2.trace --after b1.trace b2.trace",
        "--before a1.trace --before a2.trace --after b1.trace --after b2.trace",
        "--after b1.trace b2.trace --before a1.trace --before a2.trace",
        "--before=a1.trace a2.trace --by op --after=b1.trace --after b2.trace",
        "--before a1.trace --limit 3 --before a2.trace --after b1.trace b2.trace",
    ],
)
def test_several_traces_a_side_in_each_spelling(traces: Path, words: str) -> None:
    assert sides(*words.split()) == (["a1", "a2"], ["b1", "b2"])


def test_two_arguments_are_one_a_side(traces: Path) -> None:
    assert sides("a1.trace", "b1.trace") == (["a1"], ["b1"])
    assert sides("--limit", "3", "b1.trace", "a1.trace") == (["b1"], ["a1"])


def test_values_belong_to_the_option_before_them() -> None:
    options = {"--before", "--after"}
    words = ["x", "--before", "a", "b", "--by", "op", "c", "--after=d", "e", "--", "--before", "f", "g"]
    assert spread(words, options) == [
        *("x", "--before", "a", "--before", "b", "--by", "op", "c", "--after=d", "--after", "e"),
        *("--", "--before", "f", "g"),
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "give two traces, tracer diff BEFORE AFTER, or several a side: --before A B --after C D"),
        ("a1.trace", "give two traces, "),
        ("a1.trace a2.trace b1.trace", "give two traces, "),
        ("--before a1.trace a2.trace", "--after has no trace; give the runs of that side: --after A B"),
        ("--after a1.trace", "--before has no trace; give the runs of that side: --before A B"),
        (
            "a1.trace --before a2.trace --after b1.trace",
            "a1.trace is on neither side; put it behind --before",
        ),
        (
            "a1.trace a1.trace",
            "a1.trace is given twice; record another run: tracer record -o OTHER.trace SCRIPT",
        ),
        ("--before a1.trace a1.trace --after b1.trace", "a1.trace is given twice; record another run"),
        ("--before a1.trace --after b1.trace ./a1.trace", "a1.trace is given twice; record another run"),
        ("a1.trace link.trace", "a1.trace and link.trace are one file; record another run"),
        ("a1.trace nosuch.trace", "nosuch.trace does not exist; to record a trace: tracer record SCRIPT"),
        ("--before a1.trace c1.trace --after b1.trace", "a1.trace and c1.trace are on one side and have no "),
    ],
)
def test_what_is_wrong_is_one_line(traces: Path, words: str, said: str) -> None:
    (traces / "link.trace").symlink_to("a1.trace")
    result = diff(*words.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"tracer: {said}")
    assert result.stderr.count("\n") == 1


def test_fail_over_with_two_runs_a_side(traces: Path) -> None:
    both = ["--before", "a1.trace", "a2.trace", "--after", "b1.trace", "b2.trace"]
    result = diff(*both, "--fail-over", "10%")
    assert (result.exit_code, result.stderr) == (1, "")
    assert diff(*both, "--fail-over", "200%").exit_code == 0
    back = ["--before", "b1.trace", "b2.trace", "--after", "a1.trace", "a2.trace"]
    assert diff(*back, "--fail-over", "10%").exit_code == 0


def test_fail_over_with_one_run_a_side_says_why_it_decides(traces: Path) -> None:
    result = diff("a1.trace", "b1.trace", "--fail-over", "10%")
    assert result.exit_code == 1
    assert result.stderr.startswith("tracer: --fail-over decides with one run a side: a step took 1.4")
    assert result.stderr.endswith(" as long, so it is not the machine\n")
    same = diff("a1.trace", "a2.trace", "--fail-over", "10%")
    assert same.exit_code == 0
    assert same.stderr.endswith("not slower by more than that and PERCENT\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "a1.trace w1.trace",
            "two runs a side, or three steps in each trace: tracer diff --before A B --after C D",
        ),
        (
            "few.trace few2.trace",
            "two runs a side here, since too few unchanged lines show what the machine did: ",
        ),
    ],
)
def test_fail_over_that_cannot_decide_says_what_it_needs(traces: Path, words: str, said: str) -> None:
    result = diff(*words.split(), "--fail-over", "10%")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"tracer: --fail-over needs {said}")


def test_a_slow_machine_does_not_fail(traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {
        f"{side}{n}": run(seed=2 * n + len(side), factor=1.8 if side == "slow" else 1.0)
        for side in ("fast", "slow")
        for n in (1, 2)
    }
    monkeypatch.setattr(sys.modules["tracer.trace"], "load", lambda path: made[Path(path).stem])
    for name in made:
        (traces / f"{name}.trace").write_text(name)
    one = diff("fast1.trace", "slow1.trace", "--fail-over", "10%")
    both = diff(
        "--before",
        "fast1.trace",
        "fast2.trace",
        "--after",
        "slow1.trace",
        "slow2.trace",
        "--fail-over",
        "10%",
    )
    assert (one.exit_code, both.exit_code) == (0, 0)
    assert "this run was 1.8 x slower everywhere" in one.stdout
    assert "the runs after were 1.8 x slower everywhere" in both.stdout
