"""The reading verbs in processes of their own: terminals, pipes, imports."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from terminals import read_terminal

RUN = """
import sys
import time
from test_cli_tree import put_fake_reader
put_fake_reader(sys.modules)
from tracer.cli.app import main
main()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.trace").write_text("whole")
    return tmp_path


def command(*arguments: str) -> tuple[list[str], dict[str, str]]:
    unit = Path(__file__).parents[1] / "unit"
    path = os.pathsep.join([str(unit), str(unit.parents[1]), os.environ.get("PYTHONPATH", "")])
    plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return [sys.executable, "-c", RUN, *arguments], {**plain, "PYTHONPATH": path, "TERM": "xterm-256color"}


def test_tree_on_a_terminal_is_coloured_and_fits(folder: Path) -> None:
    arguments, environment = command("tree", "run.trace")
    ours, theirs = pty.openpty()
    shown = subprocess.Popen(
        arguments, env={**environment, "COLUMNS": "80"}, stdout=theirs, stderr=theirs, stdin=theirs
    )
    os.close(theirs)
    text = read_terminal(ours)
    assert shown.wait() == 0, text
    assert b"\x1b[" in text
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.decode()).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[3].startswith("  4.0 us    1.0 us  3 x aten::matmul [AutogradCPU]")


@pytest.mark.parametrize("verb", ["tree", "report"])
def test_a_reader_that_goes_away_ends_it_quietly(folder: Path, verb: str) -> None:
    arguments, environment = command(verb, "run.trace")
    shown = subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    shown.stdout.close()
    assert shown.stderr.read() == b""
    assert shown.wait() == 0


def test_help_imports_nothing_heavy(folder: Path) -> None:
    heavy = "{'polars', 'numpy', 'torch', 'rich'}"
    script = f"import sys, tracer.cli.app; print(sorted({heavy} & sys.modules.keys()))"
    _, environment = command()
    loaded = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert loaded.stdout == "[]\n", loaded.stderr
