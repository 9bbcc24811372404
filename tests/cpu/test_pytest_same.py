"""pytest in a recorded process: the status, the summary and the warnings of plain pytest."""

from __future__ import annotations

import re
from importlib.metadata import files

import pytest
from _pytest.config import _iter_rewritable_modules
from launching import Launcher, Run

from tracer.base.package import DISTRIBUTION

pytestmark = pytest.mark.fresh

TESTS = """\
import warnings

import pytest


@pytest.mark.parametrize("number", range(3))
def test_passes(number):
    assert number + 1 > number


def test_fails():
    assert [1, 2] == [1, 3]


def test_warns():
    warnings.warn("of the script", UserWarning)
"""
WITH_TORCH = "import torch\n\n\ndef test_op():\n    assert torch.ones(2).neg().sum().item() == -2\n"
STRICT = "[pytest]\nfilterwarnings = error\n"
OPTIONS = {
    "default": "-m pytest",
    "-W error": "-m pytest -W error",
    "python -W error": "-W error -m pytest",
    "python -OO": "-OO -m pytest -W error::pytest.PytestAssertRewriteWarning",
    "without the plugin": "-m pytest -W error -p no:tracer",
    "plain asserts": "-m pytest -W error --assert=plain",
    "xdist": "-m pytest -W error -n 1",
    "importlib": "-m pytest -W error --import-mode=importlib",
}
# hypothesis takes longer to load than all else, and again in each worker.
PLUGINS = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")


def seen(run: Run) -> tuple[int, str, str]:
    return run.status, re.sub(r"\bin \d+\.\d+s|\[gw\d\]", "...", run.out), run.own_err


def assert_same(launcher: Launcher, options: str) -> Run:
    """Plainly, recorded and with TRACER=; returns the recorded run."""
    flags, _, rest = options.partition("-m ")
    command = (*flags.split(), "-m", *rest.split(), *PLUGINS)
    plain = launcher.python(*command)
    record = (str(launcher.tracer), "record", "--force", "-o", "run.trace")
    at = len(flags.split())
    recorded = launcher.python(*command[:at], *record, *command[at:])
    switched = launcher.python(*command, extra={"TRACER": "switched.trace"})
    assert seen(recorded) == seen(plain)
    assert seen(switched) == seen(plain)
    return recorded


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options(launcher: Launcher, options: str) -> None:
    launcher.write(TESTS, "test_y.py")
    assert " passed" in assert_same(launcher, options).out


def test_a_strict_project_that_runs_ops(launcher: Launcher) -> None:
    launcher.write(STRICT, "pytest.ini")
    launcher.write(WITH_TORCH, "test_y.py")
    recorded = assert_same(launcher, "-m pytest -q")
    assert (recorded.status, "1 passed" in recorded.out) == (0, True)
    assert launcher.traces() == ["run.trace", "switched.trace"]


def test_modules_that_pytest_marks_opt_out() -> None:
    """pytest marks each top-level module of a plugin's distribution."""
    marked = set(_iter_rewritable_modules(map(str, files(DISTRIBUTION) or ())))
    assert {"tracer", "tracer_startup"} <= marked
    for name in marked:
        assert "PYTEST_DONT_REWRITE" in (__import__(name).__doc__ or ""), name


def test_workers_of_xdist_are_recorded_as_the_message_says(launcher: Launcher) -> None:
    launcher.write(WITH_TORCH, "test_y.py")
    launcher.write(WITH_TORCH, "test_z.py")
    command = ("-m", "pytest", "-q", "--dist", "loadfile", *PLUGINS, "-n")
    recorded = launcher.record(*command, "1")
    assert recorded.said == (
        "tracer: nothing was recorded: the script did not import torch; "
        "if its child processes do, run it with TRACER=run.trace instead of tracer record\n"
    )
    launcher.python(*command, "2", extra={"TRACER": "run.trace"})
    assert launcher.traces() == ["run.0002.trace", "run.trace"]
