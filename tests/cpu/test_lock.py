"""`tracer lock`: two runs of a program have one lock, and a change in the program is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from launching import Launcher
from stored import recorded_once
from typer.testing import CliRunner, Result

from tracer.cli.app import app

EXAMPLE = Path(__file__).parents[2] / "examples" / "seq2seq_gru.py"
SCRIPT = """\
import torch

weight = torch.randn(64, 64, requires_grad=True)
for step in range(3):
    loss = torch.matmul(torch.randn(8, 16, 64), weight).relu().sum()
    loss.backward()
"""
CHANGED = "# one more line\n" + SCRIPT.replace("randn(64, 64", "ones(64, 64").replace(
    "torch.randn(8, 16, 64),", "torch.randn(8, 16, 64).double().float(),"
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with traces: of the script, of a comment in it, of a change, of one that is killed."""
    return recorded_once(tmp_path_factory.mktemp("lock"), make).folder


def make(launcher: Launcher) -> None:
    scripts = {
        "first": SCRIPT,
        "moved": "# one more line\n" + SCRIPT,
        "changed": CHANGED,
        "killed": SCRIPT + "import os; os._exit(0)\n",
    }
    for name, text in scripts.items():
        launcher.write(text)
        assert launcher.record("-o", f"{name}.trace", "script.py").status == 0


@pytest.fixture
def folder(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a test, with these traces and the lock of the first."""
    for trace in recorded.glob("*.trace"):
        (tmp_path / trace.name).hardlink_to(trace)
    monkeypatch.chdir(tmp_path)
    assert lock("first.trace").exit_code == 0
    return tmp_path


def lock(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["lock", *arguments])


@pytest.mark.promise("lock", "docs/diff.md#lock-dispatch-paths-tracer-lock-and-pytest")
def test_two_runs_of_the_example_in_two_folders_have_one_lock(launcher: Launcher) -> None:
    texts = []
    for name in ("one", "two"):
        copy = launcher.write(EXAMPLE.read_text(), f"{name}/seq2seq_gru.py")
        run = launcher.record("-o", f"{name}.trace", str(copy), "--epochs", "1", "--steps", "3")
        assert run.status == 0, run.err
        path = launcher.folder / name
        assert lock(f"{path}.trace", "-o", f"{path}.lock").exit_code == 0
        texts.append(Path(f"{path}.lock").read_text())
    assert texts[0] == texts[1]
    assert "seq2seq_gru.py: return self.gru(self.embedding(numbers))\n  aten::embedding [Autogr" in texts[0]
    assert str(launcher.folder) not in texts[0]
    assert lock(f"{path}.trace", "--check", f"{launcher.folder}/one.lock").stdout.startswith("no change: ")


def test_the_default_file_is_not_overwritten(folder: Path) -> None:
    assert "\n  aten::matmul [AutogradCPU] " in (folder / "dispatch.lock").read_text()
    again = lock("first.trace")
    assert again.exit_code == 2
    assert "dispatch.lock exists; overwrite it with --force" in again.stderr
    assert lock("first.trace", "--force").exit_code == 0


def test_a_comment_above_a_line_changes_nothing(folder: Path) -> None:
    assert lock("moved.trace", "--check", "dispatch.lock").exit_code == 0


@pytest.mark.promise("lock", "docs/diff.md#check-a-run")
def test_another_path_is_found(folder: Path) -> None:
    run = lock("changed.trace", "--check", "dispatch.lock")
    assert run.exit_code == 1
    assert "+aten::to.dtype [AutogradCPU]" in run.stdout
    assert "  at script.py:6\n" in run.stdout
    assert "To accept: tracer lock changed.trace -o dispatch.lock --force" in run.stdout
    assert "Shown: 1 of " in lock("changed.trace", "--check", "dispatch.lock", "--limit", "1").stdout


def test_a_lock_of_another_torch_is_compared_and_named(folder: Path) -> None:
    path = folder / "dispatch.lock"
    path.write_text(path.read_text().replace("torch 2.", "torch 1.", 1))
    run = lock("first.trace", "--check", "dispatch.lock")
    assert run.exit_code == 0
    assert "dispatch.lock was written with torch 1." in run.stderr


def test_an_incomplete_trace_is_named(folder: Path) -> None:
    run = lock("killed.trace", "--force")
    assert run.exit_code == 0
    assert "killed.trace: killed, or ended without a stop" in run.stderr
    assert "paths may be missing" in run.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (
            ["--check", "none.lock"],
            2,
            "none.lock does not exist; write it: tracer lock run.trace -o none.lock",
        ),
        (["--check", "first.trace"], 2, "first.trace is not a dispatch lock"),
        (["--check", "/dev/null"], 2, "cannot read /dev/null: it is not a regular file"),
        (["--check", "dispatch.lock", "-o", "x"], 2, "--check writes nothing; remove -o and --force"),
        (["--steady", "--force"], 1, "--steady: first.trace has no steady step"),
        (["-o", "nowhere/x.lock"], 2, "folder nowhere does not exist"),
    ],
)
def test_wrong_usage(folder: Path, arguments: list[str], status: int, words: str) -> None:
    run = lock("first.trace", *arguments)
    assert run.exit_code == status
    assert words in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


def test_a_lock_that_was_edited_wrongly(folder: Path) -> None:
    path = folder / "dispatch.lock"
    path.write_text(path.read_text().replace("  aten::matmul", "   aten::matmul", 1))
    run = lock("first.trace", "--check", "dispatch.lock")
    assert run.exit_code == 2
    assert "dispatch.lock, line " in run.stderr
    assert "indented by 3 spaces; use two for each level" in run.stderr
