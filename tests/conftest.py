"""For all tests."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

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

# What a test starts has this mark in its environment, with the number of the pytest process: so it is found
# when its parents have ended. A worker of pytest-xdist has one that begins with its parent's.
_MARK = "STARTED_BY_TESTS"
TICK = 1 / os.sysconf("SC_CLK_TCK")  # the kernel notes when a process began in whole ones
os.environ[_MARK] = _OURS = f"{os.environ.get(_MARK, '')}{os.getpid()}-{time.time_ns()}/"


UNIT = Path(__file__).parent / "unit"
hypothesis.settings.register_profile("quick", max_examples=10, deadline=None)


def pytest_configure(config: pytest.Config) -> None:
    """If unit tests run alone, as at each save, property tests try few examples: all in `make test`.

    And polars computes in one thread: for tables of a few rows, its threads cost more than they save.
    """
    chosen = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    alone = all(path == UNIT or UNIT in path.parents for path in chosen)
    if alone and not config.getoption("--hypothesis-profile", None):
        hypothesis.settings.load_profile("quick")
    if alone:
        os.environ.setdefault("POLARS_MAX_THREADS", "1")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test that failed, or took too long, left running is ended."""
    report = yield
    if report.failed:
        _end_what_runs_since(time.clock_gettime(time.CLOCK_BOOTTIME) - (time.time() - call.start))
    return report


def pytest_unconfigure() -> None:
    _end_what_runs_since(0)


def _end_what_runs_since(begin: float) -> None:
    for _ in range(100):  # while they are ended they may start others
        running = [number for number, start in _started() if start >= begin - TICK]
        if not running:
            return
        for number in running:
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)


def _started() -> Iterator[tuple[int, float]]:
    """Processes that tests started and that have not ended: number, and start in seconds since boot."""
    mark = f"{_MARK}={_OURS}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        number = int(folder.name)
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            marked = any(each.startswith(mark) for each in (folder / "environ").read_bytes().split(b"\0"))
        except OSError:  # it has ended, or belongs to another user
            continue
        forked = int(fields[1]) == os.getpid()  # by the test itself: it has the environment of pytest
        if (marked or forked) and fields[0] != "Z" and number != os.getpid():
            yield number, int(fields[19]) * TICK
