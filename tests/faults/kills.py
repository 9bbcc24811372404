"""Recordings that are killed, in each phase."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from case import Case, Progress, assert_undamaged, calls, end_group
from rows import row

import tracer

PYTHON, ARMED, RUNNING, ENDED = 1, 2, 3, 4
OLD = b"tracer\n\x1awhat was there before\n"  # --force replaces traces only
FEW, MANY = "6000", "1000000000"
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGABRT)


@dataclass(frozen=True)
class Kill:
    """After which phase it comes, and how many seconds later at most; how many calls a thread makes."""

    phase: int
    longest: Callable[[Progress], float]
    calls: str = MANY
    options: tuple[str, ...] = ()
    fork: bool = False
    only_the_root: bool = False


def _as_long_as_python_took(progress: Progress) -> float:
    return 1.5 * (progress.began(ARMED) - progress.began(PYTHON))


PHASES = {
    "at the begin": Kill(PYTHON, lambda _: 4.0),
    "hooks just set": Kill(ARMED, lambda _: 0.05),
    "running": Kill(RUNNING, lambda _: 0.6),
    "running, with children": Kill(RUNNING, lambda _: 0.6, fork=True),
    "running, the root alone": Kill(RUNNING, lambda _: 0.6, fork=True, only_the_root=True),
    "at the end": Kill(ENDED, lambda progress: 0.3 * _as_long_as_python_took(progress), FEW),
    "a ring": Kill(RUNNING, lambda _: 2.0, options=("--max-size", "16M")),
}
VARIANTS = {
    f"{name}{', --force' if force else ''}": (kill, force)
    for name, kill in PHASES.items()
    for force in (False, True)
}


@row(
    "killed",
    "All that ran until then is in the trace, which says that it was killed. No file is left behind or lost.",
    VARIANTS,
    times=3,
)
def killed(case: Case, variant: tuple[Kill, bool]) -> None:
    kill, force = variant
    progress = Progress(case.folder.parent / f"{case.folder.name}.progress")
    if force:
        (case.folder / "run.trace").write_bytes(OLD)
    arguments = [case.script("threads.py"), f"../{case.folder.name}.progress", kill.calls]
    arguments += ["fork"] if kill.fork else []
    process = case.begin(*(["--force"] if force else []), "-o", "run.trace", *kill.options, *arguments)
    try:
        progress.wait_for(kill.phase, process)
        time.sleep(case.draw.uniform(0, kill.longest(progress)))
        which = case.draw.choice(SIGNALS)
        if kill.fork and not kill.only_the_root:
            os.killpg(process.pid, which)
        else:
            os.kill(process.pid, which)
    except ProcessLookupError:
        pass  # it ended before
    finally:
        process.wait() if process.poll() is None and kill.only_the_root else None
        end_group(process)
    _judge(case, kill, progress, was_killed=process.returncode != 0, forced=force)


def _judge(case: Case, kill: Kill, progress: Progress, was_killed: bool, forced: bool) -> None:
    assert case.left_over("run.trace", "threads.py") == []
    path = case.folder / "run.trace"
    begun = progress.phase() >= ARMED
    assert begun or not forced or path.exists(), "the file that --force replaces is gone"
    data = path.read_bytes() if path.exists() else b""
    if not begun and data in (b"", OLD):
        return
    assert data not in (b"", OLD), "the recording had begun, and no trace is there"
    trace = case.trace()
    assert_undamaged(trace)
    if was_killed and not case.was_closed():
        assert trace.certificate["verdict"].startswith("killed"), trace.certificate["verdict"]
        assert trace.certificate["complete"] is False
    if not kill.options:
        _assert_all_calls(trace, progress)


def _assert_all_calls(trace: tracer.Trace, progress: Progress) -> None:
    """But the one of each thread that was being written."""
    seen = dict(calls(trace).group_by("thread").len().iter_rows())
    for thread, begun, ended in progress.threads():
        count = seen.get(thread, 0)
        assert max(begun - 1, 0) <= count <= begun, (
            f"{count} calls in the trace, {begun} begun, {ended} ended"
        )
