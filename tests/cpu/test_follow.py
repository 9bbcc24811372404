"""`tracer tree --follow` beside a program that is being recorded."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import polars as pl
from launching import TIMEOUT, Launcher

import tracer

PROGRAM = """
import pathlib, sys, time, torch
rows = torch.randn(8, 8, requires_grad=True)
calls = int(sys.argv[1])
for number in range(calls):
    (rows @ rows).sum().backward()
    if number % 200 == 199:
        pathlib.Path("progress").write_text(str(number))
        time.sleep(0.02)
while calls > 100_000:
    time.sleep(1)
"""
LINE = re.compile(r" *(\d+\.\d{6}) s \S+ \[\w+\].* \d[\d.]* [um]?s \(self [^)]*\), \d+ hops?(  .*)?")


def outermost(path: Path) -> pl.DataFrame:
    """The outermost op calls that ended, in the order in which they did."""
    return tracer.load(path).hops.filter(pl.col("parent").is_null() & ~pl.col("open")).sort("end_ns")


def assert_same(lines: list[str], path: Path) -> None:
    assert all(LINE.fullmatch(line) for line in lines), [x for x in lines if not LINE.fullmatch(x)][:3]
    hops = outermost(path)
    ops = hops.select(pl.format("{} [{}]", pl.col("op").cast(pl.String), pl.col("key").cast(pl.String)))
    shown = [" ".join(line.split(" s ", 1)[1].split()[:2]) for line in lines]
    assert shown == ops.to_series().to_list()


def start(launcher: Launcher, calls: int) -> subprocess.Popen[str]:
    launcher.write(PROGRAM)
    trace = launcher.folder / "run.trace"
    recording = launcher.start(str(launcher.tracer), "record", "-o", "run.trace", "script.py", str(calls))
    until = time.monotonic() + TIMEOUT
    while not trace.exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    return recording


def follow(launcher: Launcher, *options: str) -> subprocess.Popen[str]:
    return launcher.start(str(launcher.tracer), "tree", "run.trace", "--follow", *options)


def test_every_op_call_is_shown_while_it_runs(launcher: Launcher) -> None:
    recording = start(launcher, 2000)
    following = follow(launcher)
    assert following.stdout is not None
    first = following.stdout.readline()
    assert recording.poll() is None, "the first line came after the program had ended"
    out, err = following.communicate(timeout=TIMEOUT)
    assert recording.wait(timeout=TIMEOUT) == 0
    assert following.returncode == 0
    lines = [first.rstrip("\n"), *out.splitlines()]
    assert_same(lines, launcher.folder / "run.trace")
    hops = len(tracer.load(launcher.folder / "run.trace").hops)
    assert f"the recording is over, its process stopped it; {hops:,} hops in it" in err
    assert any("backward: MmBackward0" in line for line in lines)
    assert any("script.py:6" in line for line in lines)


def test_it_ends_when_the_process_is_killed(launcher: Launcher) -> None:
    recording = start(launcher, 200_000)
    following = follow(launcher)
    until = time.monotonic() + TIMEOUT
    while not (launcher.folder / "progress").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    recording.kill()
    recording.wait(timeout=TIMEOUT)
    out, err = following.communicate(timeout=TIMEOUT)
    assert following.returncode == 0
    assert "its process ended without stopping it" in err
    assert_same(out.splitlines(), launcher.folder / "run.trace")
    # and as well when it was killed before
    again, _ = follow(launcher).communicate(timeout=TIMEOUT)
    assert again == out


def test_a_table_is_printed_at_the_end_or_at_an_interrupt(launcher: Launcher) -> None:
    recording = start(launcher, 1000)
    table = follow(launcher, "--flat", "--limit", "0")
    interrupted = follow(launcher, "--flat", "--by", "op")
    until = time.monotonic() + TIMEOUT
    while not (launcher.folder / "progress").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    time.sleep(1)
    interrupted.send_signal(signal.SIGINT)
    assert recording.wait(timeout=TIMEOUT) == 0
    out, _ = table.communicate(timeout=TIMEOUT)
    after = launcher.run([str(launcher.tracer), "tree", "run.trace", "--flat", "--limit", "0"]).out

    def figures(text: str) -> set[tuple[str, ...]]:
        """Calls, hops and the name; medians of a table that keeps up are rounded."""
        rows = [re.split(r" {2,}", line.strip()) for line in text.splitlines()[1:]]
        return {(*row[:2], row[-1]) for row in rows}

    assert figures(out) == figures(after)
    assert "torch::autograd::VariableType::mm" in out
    half, err = interrupted.communicate(timeout=TIMEOUT)
    assert interrupted.returncode == 0, err
    assert "aten::mm" in half


def test_memory_does_not_grow_with_the_recording(launcher: Launcher) -> None:
    """The whole table of this trace takes twice as much as all that following takes."""
    recording = start(launcher, 20_000)
    following = follow(launcher, "--op", "nothing")
    _, status, used = os.wait4(following.pid, 0)
    following.returncode = os.waitstatus_to_exitcode(status)
    assert recording.wait(timeout=TIMEOUT) == 0
    assert following.returncode == 0
    hops = tracer.load(launcher.folder / "run.trace").hops
    assert len(hops) > 400_000
    assert used.ru_maxrss < 300 << 10  # KiB, of which Python and polars take 100 MiB
