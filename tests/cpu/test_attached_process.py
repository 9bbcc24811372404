"""What attach reads off the command line of a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tracer.attach.process import Process

WAIT = "print(1, flush=True); input()"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["script.py", "-c", "x"], "script.py"),
        (["-u", "script.py"], "script.py"),
        (["-W", "ignore", "-X", "utf8", "script.py"], "script.py"),
        (["-m", "script"], "script"),
        (["-c", WAIT, "argument.py"], ""),
        (["-uc", WAIT], ""),
    ],
)
def test_the_script_of_a_process(tmp_path: Path, arguments: list[str], expected: str) -> None:
    (tmp_path / "script.py").write_text(WAIT)
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "1\n"
        found = Process(child.pid).script()
        child.communicate("\n")
    assert found == expected
