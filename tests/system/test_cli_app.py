"""The command itself, without a verb."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
