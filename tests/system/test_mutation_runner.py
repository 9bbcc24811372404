"""`make mutations`: what is caught, what survived, and that it leaves nothing running or changed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MUTATIONS = ROOT / "tests" / "mutations"
sys.path.append(str(MUTATIONS))

import runner  # noqa: E402
from mutation import Change, Mutation, PatchError  # noqa: E402
from sandbox import Sandbox, SandboxError  # noqa: E402
from trial import Trial  # noqa: E402

SOURCE = "def total(numbers):\n    return sum(numbers)\n"
TESTS = """\
import pytest
from code_under_test import total

def test_none():
    assert total([]) == 0

@pytest.mark.parametrize("numbers", [[1, 2]], ids=["a one - and a two"])
def test_two(numbers):
    assert total(numbers) == 3
"""
# A .pyc is known by the size and the second of its source; and this pytest needs no plugin.
ENVIRONMENT = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
FAILS, SAYS_NOTHING, BREAKS = "sum(numbers) + bool(numbers)", "sum(list(numbers))", "sum(numbers"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What looks to pytest like a small project."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "logs").mkdir()
    (tmp_path / "code_under_test.py").write_text(SOURCE)
    (tmp_path / "tests" / "test_total.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    return tmp_path


def pytest_script(folder: Path) -> Path:
    path = folder / "pytest"
    path.write_text(f"#!{sys.executable}\nimport pytest, sys\nsys.exit(pytest.main())\n")
    path.chmod(0o755)
    return path


def trial(folder: Path) -> Trial:
    return Trial(pytest_script(folder), folder, ENVIRONMENT, folder / "logs")


def mutation(new: str, *, name: str = "sum", test: str = "tests/test_total.py") -> Mutation:
    old = "    return sum(numbers)\n"
    changes = (Change("code_under_test.py", old, f"    return {new}\n"),)
    return Mutation(name, "the sum", "a wrong sum", (test,), changes)


class SmallSandbox:
    """The small project as its own sandbox: nothing is installed."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.logs = folder, folder / "logs"
        self.pytest = pytest_script(folder)
        self.environment = ENVIRONMENT

    def apply(self, tried: Mutation) -> None:
        for file, text in tried.mutated(self.tree).items():
            (self.tree / file).write_text(text)

    def restore(self, tried: Mutation) -> None:
        (self.tree / "code_under_test.py").write_text(SOURCE)


def runner_of(folder: Path) -> runner.Runner:
    return runner.Runner(SmallSandbox(folder), minutes=2, jobs=1, nearest_only=True)  # type: ignore[arg-type]


# ---- the patches ---------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_git_takes_the_patches() -> None:
    for path in sorted(MUTATIONS.glob("*.patch")):
        command = ["git", "apply", "--check", str(path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


# ---- running tests -------------------------------------------------------------------------------------


def test_the_first_test_that_fails_is_named(folder: Path) -> None:
    assert trial(folder).run("x", ["tests/test_total.py"], 60).failed == ""
    (folder / "code_under_test.py").write_text(SOURCE.replace("sum(numbers)", FAILS))
    outcome = trial(folder).run("x", ["tests/test_total.py"], 60)
    assert (outcome.failed, outcome.trouble) == ("tests/test_total.py::test_two[a one - and a two]", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["tests/nowhere.py"], "exit status 4"), (["tests/test_total.py::test_three"], "exit status 4")],
)
def test_tests_that_are_not_there_are_no_answer(folder: Path, arguments: list[str], said: str) -> None:
    outcome = trial(folder).run("x", arguments, 60)
    assert outcome.failed == ""
    assert said in outcome.trouble


def test_what_cannot_be_imported_is_no_answer(folder: Path) -> None:
    (folder / "code_under_test.py").write_text("import nowhere\n")
    outcome = trial(folder).run("x", ["tests/test_total.py"], 60)
    assert outcome.failed == ""
    assert "tests/test_total.py cannot be imported" in outcome.trouble


def test_a_test_that_hangs_is_stopped_with_what_it_started(folder: Path) -> None:
    (folder / "tests" / "test_total.py").write_text(
        "import subprocess\n"
        "def test_waits():\n"
        "    process = subprocess.Popen(['sleep', '1000'])\n"
        "    open('number', 'w').write(str(process.pid))\n"
        "    process.wait()\n"
    )
    outcome = trial(folder).run("x", ["tests/test_total.py"], 5)
    assert outcome.failed == ""
    assert "no test failed within" in outcome.trouble
    assert has_ended(int((folder / "number").read_text()))


def has_ended(number: int) -> bool:
    """Whether a process is gone, or dead and only not yet waited for by whoever adopted it."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False


def test_an_interrupt_stops_the_command(tmp_path: Path) -> None:
    script = (
        "import os, sys, pathlib\n"
        f"sys.path.append({str(MUTATIONS)!r})\n"
        "import commands\n"
        "command = ['sh', '-c', 'echo $$ > number; exec sleep 1000']\n"
        "commands.run(command, pathlib.Path(), os.environ, pathlib.Path('log'), 1000)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    number = tmp_path / "number"
    while not (number.exists() and number.read_text().strip()):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    assert has_ended(int(number.read_text()))


# ---- verdicts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "state", "why"),
    [
        (FAILS, runner.CAUGHT, "tests/test_total.py::test_two[a one - and a two]"),
        (SAYS_NOTHING, runner.SURVIVED, "its nearest tests pass"),
        (BREAKS, runner.NOT_TRIED, "code_under_test.py is no Python any more: '(' was never closed, line 2"),
        ("nothing", runner.CAUGHT, "tests/test_total.py::test_none"),
    ],
)
def test_a_mutation_is_caught_or_survives(folder: Path, new: str, state: str, why: str) -> None:
    verdict = runner_of(folder).verdict(mutation(new))
    assert (verdict.state, verdict.why) == (state, why)
    assert (folder / "code_under_test.py").read_text() == SOURCE


def test_nothing_is_tried_if_a_test_fails_without_a_mutation(folder: Path) -> None:
    runner_of(folder).check([mutation(FAILS)])
    (folder / "tests" / "test_total.py").write_text("def test_fails():\n    assert False\n")
    with pytest.raises(runner.BrokenError, match=r"without any mutation: tests/test_total\.py::test_fails"):
        runner_of(folder).check([mutation(FAILS)])


def test_the_exit_status_and_the_last_lines() -> None:
    caught = runner.Verdict("a", runner.CAUGHT, "tests/unit/test_a.py::test_a", 3.4)
    survived = runner.Verdict("b", runner.SURVIVED, "7 files of tests pass", 100)
    untried = runner.Verdict("c", runner.NOT_TRIED, "it does not compile", 1)
    assert [
        runner.status_of(each) for each in ([caught], [caught, survived], [caught, survived, untried])
    ] == [*(0, 1, 2)]
    assert runner.summary([caught, survived], 3).splitlines() == [
        "",
        "| mutation | result | seconds | by |",
        "|---|---|---:|---|",
        "| a | caught | 3 | tests/unit/test_a.py::test_a |",
        "| b | SURVIVED | 100 | 7 files of tests pass |",
        "",
        "2 of 3 mutations in 2 minutes: 1 caught, 1 survived, 0 not tried",
    ]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(MUTATIONS / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_names_are_checked_before_anything_is_built() -> None:
    unknown = run("nowhere")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert unknown.stderr == "no mutation nowhere; to see their names: --list\n"
    names = [line.partition(":")[0] for line in run("--list").stdout.splitlines()]
    assert names == [path.stem for path in sorted(MUTATIONS.glob("*.patch"))]


# ---- the sandbox ---------------------------------------------------------------------------------------


def test_one_run_at_a_time_uses_a_folder(tmp_path: Path) -> None:
    first = Sandbox(tmp_path, 1)
    with pytest.raises(SandboxError, match="is in use by another run"):
        Sandbox(tmp_path, 1)
    del first
    Sandbox(tmp_path, 1)


def test_a_mutation_is_in_the_sources_and_in_the_package_until_it_is_taken_back(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, 1)
    packages = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    files = [sandbox.tree / "gdb" / "x.py", packages / "tracer" / "gdb" / "x.py"]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text("one\n")
        os.utime(file, (1, 1))
    (tmp_path / "kept").mkdir()
    tried = Mutation("x", "", "", (), (Change("gdb/x.py", "one\n", "two\n"),))
    sandbox.apply(tried)
    assert [file.read_text() for file in files] == ["two\n"] * 2
    sandbox.restore(tried)
    assert [(file.read_text(), file.stat().st_mtime) for file in files] == [("one\n", 1)] * 2
    with pytest.raises(PatchError):
        sandbox.apply(Mutation("x", "", "", (), (Change("gdb/x.py", "three\n", "two\n"),)))
    sandbox.restore(tried)
    assert [file.read_text() for file in files] == ["one\n"] * 2
