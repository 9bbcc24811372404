"""A test that fails leaves no process behind, nor does one that is given up after its time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
# The shell ends at once: what it started has no parent that the test knows. It is in a session of its own.
TESTS = """
import os, subprocess, time
from test_left_running import runs

SLEEPER = "setsid sleep 600 > /dev/null & echo $! > "


def test_fails():
    subprocess.run(["sh", "-c", SLEEPER + "failed"], check=True)
    assert False


def test_takes_too_long():
    subprocess.run(["sh", "-c", SLEEPER + "late; wait"], timeout=1)


def test_forks_and_fails():
    if (child := os.fork()) == 0:
        while True:
            time.sleep(600)
    open("forked", "w").write(str(child))
    assert False


def test_after_them():
    for name in ("failed", "late", "forked"):
        assert not runs(name)


def test_passes():
    subprocess.run(["sh", "-c", SLEEPER + "passed"], check=True)
"""


def runs(file: str | Path) -> bool:
    """Whether the process runs whose number is in the file."""
    try:
        stat = Path("/proc", Path(file).read_text().strip(), "stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"  # nobody may have waited for it


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["alone", "in a worker"])
def test_what_tests_left_running_is_ended(tmp_path: Path, workers: list[str]) -> None:
    shutil.copy(CONFTEST, tmp_path)
    shutil.copy(__file__, tmp_path)
    (tmp_path / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull]
    command += [*workers, "test_some.py"]
    environment = os.environ | {"PYTHONPATH": str(CONFTEST.parent)}  # of left_behind.py
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "3 failed, 2 passed, 1 error" in done.stdout, done.stdout
    for name in ("failed", "late", "forked", "passed"):
        assert not runs(tmp_path / name), name


SLOW_SERVER = """
import subprocess, sys, time, types, pytest

@pytest.fixture(scope="session", autouse=True)
def server():
    server = subprocess.Popen(["sh", "-c", "read line; sleep 4"], stdin=subprocess.PIPE)
    forked = sys.modules["forked"] = types.ModuleType("forked")
    forked.is_the_server = lambda number: number == server.pid
    time.sleep(0.1)


def test_one():
    pass
"""


def test_what_ends_a_while_after_its_worker_is_no_fault(tmp_path: Path) -> None:
    """As a fork server on a busy machine: the controller of the workers looks when they have ended."""
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "test_some.py").write_text(SLOW_SERVER)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, "-n", "1"]
    environment = os.environ | {"PYTHONPATH": str(CONFTEST.parent)}
    done = subprocess.run(
        [*command, "test_some.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr
