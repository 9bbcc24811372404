"""For all tests."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import left_behind

# Helpers of the tests whose assertions say what differed.
pytest.register_assert_rewrite("launching", "programs")

# Images for containers set PYTHONDONTWRITEBYTECODE. Then pytest would rewrite every assertion again in each
# process, which takes longer than all else of collecting: it keeps the code that it rewrote.
sys.dont_write_bytecode = False

# A command that a shell runs in the background ignores Ctrl-C, and so does all that the tests start: those
# that send it would wait in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# OpenMP's threads spin while they wait. On a busy machine they take the cores from the threads that have
# work, and the same ops take ten times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ["TRACER_PAGER"] = ""  # a test on a terminal has nobody who leaves it

UNIT = Path(__file__).parent / "unit"
_BEFORE = pytest.StashKey[left_behind.Place]()
_LEFT = pytest.StashKey[list[str]]()
_BEGUN = pytest.StashKey[tuple[left_behind.Place, float]]()
# Without deadlines: an example may take long because the machine is busy, and benchmarks hold times.
hypothesis.settings.register_profile("whole", deadline=None)
hypothesis.settings.register_profile("quick", max_examples=10, deadline=None)


def pytest_configure(config: pytest.Config) -> None:
    """If unit tests run alone, as at each save, property tests try few examples: all in `make test`.

    And polars computes in one thread: for tables of a few rows, its threads cost more than they save.
    """
    # What this session leaves in it is its own: other programs and other workers write to /tmp as well.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # folders of tests are kept
    # The compiler's cache stays where it is without that: each worker would fill one of its own.
    usual = os.path.join(tempfile.gettempdir(), f"torchinductor_{os.getuid()}")
    caches = Path(os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", usual)).absolute()
    left_behind.session_folder = tempfile.mkdtemp(prefix="tracer-tests-")
    tempfile.tempdir = os.environ["TMPDIR"] = left_behind.session_folder
    os.chmod(tempfile.tempdir, 0o1777)  # as /tmp: tests have jobs of other users
    # torch keeps its precompiled header in TMPDIR, whatever the variable above says: one for all workers too.
    caches.mkdir(parents=True, exist_ok=True)
    os.symlink(caches, Path(tempfile.tempdir, f"torchinductor_{getpass.getuser()}"))
    config.stash[_BEFORE] = left_behind.Place.now()
    chosen = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    alone = all(path == UNIT or UNIT in path.parents for path in chosen)
    if not config.getoption("--hypothesis-profile", None):
        hypothesis.settings.load_profile("quick" if alone else "whole")
    if alone:
        os.environ.setdefault("POLARS_MAX_THREADS", "1")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_BEFORE] = left_behind.Place.now()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    item.stash[_BEGUN] = left_behind.Place.now(), time.clock_gettime(time.CLOCK_BOOTTIME)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """A test that leaves something behind fails by itself. Tests of tests/unit start no process."""
    yield
    if _BEGUN not in item.stash:  # it was skipped
        return
    begun, begin = item.stash[_BEGUN]
    lines = left_behind.changed(item.config.stash[_BEFORE], item.stash[_BEFORE], begun)
    if UNIT not in item.path.parents:
        found = left_behind.running_since(begin)
        lines += [f"the process {number}: {command}" for number, command in found]
    if lines:
        item.stash[_BEFORE].put_back()
        pytest.fail("this test left behind: " + "; ".join(lines), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test that failed, or took too long, left running is ended."""
    report = yield
    if report.failed:
        _end_what_runs_since(time.clock_gettime(time.CLOCK_BOOTTIME) - (time.time() - call.start))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        found = config.stash.get(
            _LEFT, []
        )  # what is left of workers, as their fork servers, ends without them
    else:
        found = [f"{number}: {command}" for number, command in left_behind.running_since(0)]
        getattr(config, "workeroutput", {})["left_behind"] = found
    if found:
        print(f"\ntests left these processes behind: {found}", file=sys.stderr)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of pytest-xdist has ended: how its session ended does not reach that of its controller."""
    left = node.config.stash.setdefault(_LEFT, [])
    left += getattr(node, "workeroutput", {}).get("left_behind", [])


def pytest_unconfigure() -> None:
    _end_what_runs_since(0)
    shutil.rmtree(left_behind.session_folder, ignore_errors=True)


def _end_what_runs_since(begin: float) -> None:
    for _ in range(100):  # while they are ended they may start others
        running = [number for number, _ in left_behind.started(begin)]
        if not running:
            return
        for number in running:
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
