"""The command itself, without a verb."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tracer

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tracer.cli.app", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"tracer {tracer.__version__}\n", "")


def test_help_names_the_verbs() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(verb in done.stdout for verb in ("record", "report", "tree", "pack"))


def test_no_verb_shows_the_help_and_an_unknown_one_is_an_error() -> None:
    assert "record" in run().stdout + run().stderr
    unknown = run("recrod")
    assert unknown.returncode == 2
    assert "recrod" in unknown.stderr


def as_module(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tracer", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_package_is_the_command() -> None:
    assert as_module("--version").stdout == f"tracer {tracer.__version__}\n"
    unknown = as_module("recrod")
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("Usage: tracer ")


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", "complete -o default -F _tracer_completion tracer"),
        ("zsh", "compdef _tracer_completion tracer"),
        ("fish", "complete --command tracer "),
    ],
)
def test_each_shell_can_complete(tmp_path: Path, shell: str, line: str) -> None:
    done = as_module("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert line in done.stdout
    if shutil.which(shell):
        (tmp_path / "completion").write_text(done.stdout)
        subprocess.run([shell, "-n", tmp_path / "completion"], check=True)


@pytest.mark.promise("docs/install.md#shell-completion")
def test_bash_completes_a_verb(tmp_path: Path) -> None:
    (tmp_path / "tracer").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tracer "$@"\n')
    (tmp_path / "tracer").chmod(0o755)
    script = (
        f'PATH="{tmp_path}:$PATH"\neval "$(_TRACER_COMPLETE=source_bash tracer)"\n'
        'COMP_WORDS=(tracer ce) COMP_CWORD=1\n_tracer_completion tracer\necho "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "certificate\n"


def test_help_imports_little() -> None:
    code = (
        "import sys; from tracer.cli.app import app; app(['-h'], standalone_mode=False); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "typer" in loaded
    assert not loaded & {"torch", "numpy", "polars", "rich.markdown", "yaml"}


def test_an_old_spelling_finds_its_command_among_all() -> None:
    """A command makes its own options alone; the one that is typed is not the one that runs."""
    for option, command in {"--flat": "top", "--steps": "steps", "-f": "watch"}.items():
        done = run("--no-pager", "tree", option, "--help")
        assert (done.returncode, done.stderr) == (
            0,
            f"tracer: tracer tree {option} is tracer {command} now\n",
        )
        assert done.stdout.startswith(f"Usage: tracer {command} ")


BROKEN = """
import sys
from tracer.cli import app, common
def broken(file):
    raise IndexError("of a\\x1b[31m\\nlist")
common.analysing = broken
import tracer.cli.certificate as command
command.analysing = broken
sys.argv = ["tracer", "certificate", "x.trace"]
app.main()
"""


def test_what_nobody_thought_of_is_one_line_of_a_reading_command(tmp_path: Path) -> None:
    """A stranger's trace may have any numbers: five commands ended in a traceback."""
    (tmp_path / "x.trace").write_bytes(b"")

    def ran(**environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", BROKEN]
        return subprocess.run(
            command, cwd=tmp_path, env=os.environ | environment, capture_output=True, text=True, check=False
        )

    done = ran()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "tracer: certificate cannot show this: its trace is damaged, or tracer has a bug (IndexError: of "
        "a\\x1b[31m list); TRACER_TRACEBACK=1 shows where\n"
    )
    assert "Traceback (most recent call last):" in ran(TRACER_TRACEBACK="1").stderr
