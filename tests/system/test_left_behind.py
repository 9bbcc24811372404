"""A test that leaves something behind fails by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"
BEGIN = "import os, subprocess, sys, tempfile\nimport pytest\n"


def run(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """pytest on one file with the project's conftest.py."""
    (folder / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(CONFTEST.parent)!r})\n"
        f"exec(compile(open({str(CONFTEST)!r}).read(), {str(CONFTEST)!r}, 'exec'))\n"
    )
    (folder / "test_it.py").write_text(BEGIN + text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:tracer",
        "--rootdir",
        ".",
    ]
    return subprocess.run(
        [*command, *options, "test_it.py"], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("leaves", "said"),
    [
        ("os.environ['LEFT'] = 'x'", "the environment variable LEFT is 'x'"),
        ("os.environ.pop('TMPDIR')", "the environment variable TMPDIR is None"),
        ("os.chdir('/')", "the current folder is /"),
        ("tempfile.mkdtemp(prefix='left-')", "/left-"),
        ("subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])", "time.sleep(60)"),
        ("subprocess.run('sleep 61 & true', shell=True)", "sleep 61"),
    ],
)
def test_what_is_left_behind_fails_the_test_that_left_it(tmp_path: Path, leaves: str, said: str) -> None:
    done = run(tmp_path, f"def test_leaves():\n    {leaves}\ndef test_next():\n    pass\n")
    assert "2 passed, 1 error" in done.stdout, done.stdout
    assert "this test left behind: " in done.stdout
    assert said in done.stdout
    assert "ERROR test_it.py::test_leaves" in done.stdout


FIXTURES = """
@pytest.fixture(scope="module", autouse=True)
def of_module():
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("MODULE", "1")
        yield


def test_one(monkeypatch, tmp_path):
    monkeypatch.setenv("ONE", "1")
    monkeypatch.chdir(tmp_path)


def test_two(tmp_path):
    (tmp_path / "x").write_text("x")
    subprocess.run(["true"])
"""
LEFT_BY_A_FIXTURE = """
@pytest.fixture(scope="session", autouse=True)
def left():
    subprocess.Popen(["sleep", "62"])
    subprocess.run(["sleep", "0.1"])


def test_one():
    pass
"""


def test_what_a_test_has_changed_is_put_back_for_the_next(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "def test_leaves():\n    os.environ['LEFT'] = 'x'\n    del os.environ['HOME']\n    os.mkdir('gone')\n"
        "    os.chdir('gone')\n    os.rmdir('../gone')\n"
        "def test_next():\n    assert 'LEFT' not in os.environ\n    assert 'HOME' in os.environ\n"
        "    assert os.path.exists('test_it.py')\n",
    )
    assert "2 passed, 1 error" in done.stdout, done.stdout
    assert "the current folder is one that is gone" in done.stdout


def test_what_fixtures_set_and_put_back_is_no_fault(tmp_path: Path) -> None:
    done = run(tmp_path, FIXTURES)
    assert "2 passed" in done.stdout, done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "in a worker"])
def test_what_a_fixture_of_the_session_leaves_running_fails_the_session(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    done = run(tmp_path, LEFT_BY_A_FIXTURE, *workers)
    assert done.returncode == 1, done.stdout
    assert "tests left these processes behind" in done.stderr
    assert "sleep 62" in done.stderr
