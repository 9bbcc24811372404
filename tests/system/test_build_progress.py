"""cmake/build_progress.py: what is shown of a build while it runs, and of one that fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from terminals import read_terminal

SCRIPT = Path(__file__).resolve().parents[2] / "cmake/build_progress.py"
BUILD = r"""
echo 'Collecting polars>=1.0 (from dispatch-tracer==0.1.0)'
echo '  Downloading polars-1.40.0-py3-none-any.whl.metadata (10 kB)'
echo '  *** Configuring CMake...'
echo '  [1/4] Generating typed hops'
echo '  [2/4] Building CXX object CMakeFiles/_C.dir/csrc/native/elf.cpp.o'
echo 'csrc/hop.cpp:3:1: error: this is not C++' >&2
echo '  [3/4] Building CUDA object CMakeFiles/override_kernels.dir/csrc/overrides/kernels/mm.cu.o'
echo '  [4/4] Linking CXX shared module _C.cpython-311-x86_64-linux-gnu.so'
echo 'Installing collected packages: polars, dispatch-tracer'
"""
STAGES = [
    "starting",
    "looking for polars",
    "downloading polars-1.40.0-py3-none-any.whl.metadata",
    "configuring",
    "[1/4] Generating typed hops",
    "[2/4] csrc/native/elf.cpp",
    "[3/4] csrc/overrides/kernels/mm.cu",
    "[4/4] Linking CXX shared module _C.cpython-311-x86_64-linux-gnu.so",
    "installing packages",
]


def run(script: str, *options: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *options, "sh", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


def without_seconds(lines: list[str]) -> list[str]:
    assert all(re.search(r" \(\d+ s\)$", line) for line in lines)
    return [line.strip().rpartition(" (")[0] for line in lines]


def test_a_pipe_gets_a_line_now_and_then() -> None:
    assert run(BUILD) == (0, ["   starting (0 s)"])
    status, lines = run("echo '[1/2] a'; sleep 1; echo '[2/2] b'; sleep 1", "--every", "0.3")
    stages = without_seconds(lines)
    assert status == 0
    assert list(dict.fromkeys(stages)) == ["starting", "[1/2] a", "[2/2] b"]
    assert len(stages) > 3  # what takes long is named again
    assert "\r" not in "".join(lines)


def test_the_first_line_comes_at_once() -> None:
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), "sleep", "60"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        began = time.monotonic()
        assert process.stdout.readline() == "   starting (0 s)\n"
        assert time.monotonic() - began < 30
        os.killpg(process.pid, 9)


def test_a_terminal_has_one_line_that_changes_and_goes() -> None:
    ours, theirs = os.openpty()
    with subprocess.Popen([sys.executable, str(SCRIPT), "sh", "-c", BUILD], stdout=theirs) as process:
        os.close(theirs)
        text = read_terminal(ours).decode()
    assert process.returncode == 0
    assert "\n" not in text
    first, *shown, last = text.split("\r\x1b[K")
    assert (first, last) == ("", "")
    assert list(dict.fromkeys(without_seconds(shown))) == STAGES


@pytest.mark.parametrize(("end", "status"), [("exit 3", 3), ("kill -9 $$", 137)])
def test_all_that_a_build_said_is_shown_if_it_fails(end: str, status: int) -> None:
    found, lines = run(f"{BUILD}\n{end}")
    assert found == status
    assert "csrc/hop.cpp:3:1: error: this is not C++" in lines
    assert not [line for line in lines if "[2/4]" in line]
