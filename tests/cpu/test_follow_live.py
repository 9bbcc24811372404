"""`tracer watch` beside a program that is being recorded."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import polars as pl
import pytest
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
while not pathlib.Path("end").exists():
    time.sleep(0.01)
"""
NUMBER = re.compile(r"\d+\.\d+")
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
    wait_for(trace, recording)
    return recording


def wait_for(path: Path, recording: subprocess.Popen[str]) -> None:
    until = time.monotonic() + TIMEOUT
    while not path.exists():
        assert time.monotonic() < until
        assert recording.poll() is None, recording.communicate()[1]
        time.sleep(0.01)


def follow(launcher: Launcher, *options: str) -> subprocess.Popen[str]:
    return launcher.start(str(launcher.tracer), "watch", "run.trace", *options)


@pytest.mark.promise("watch", "docs/tree.md#while-it-runs-tracer-watch")
def test_every_op_call_is_shown_while_it_runs(launcher: Launcher) -> None:
    recording = start(launcher, 2000)
    following = follow(launcher)
    assert following.stdout is not None
    first = following.stdout.readline()
    assert recording.poll() is None
    (launcher.folder / "end").touch()
    out = following.stdout.read()  # communicate() would leave out what is buffered
    assert following.stderr is not None
    err = following.stderr.read()
    assert recording.wait(timeout=TIMEOUT) == 0
    assert following.wait(timeout=TIMEOUT) == 0
    lines = [first.rstrip("\n"), *out.splitlines()]
    assert_same(lines, launcher.folder / "run.trace")
    hops = len(tracer.load(launcher.folder / "run.trace").hops)
    assert f"the recording stopped; it has {hops:,} hops" in err
    assert any("backward: MmBackward0" in line for line in lines)
    assert any("script.py:6" in line for line in lines)


def test_it_ends_when_the_process_is_killed(launcher: Launcher) -> None:
    recording = start(launcher, 2000)  # and it does not end by itself
    following = follow(launcher)
    wait_for(launcher.folder / "progress", recording)
    recording.kill()
    recording.wait(timeout=TIMEOUT)
    out, err = following.communicate(timeout=TIMEOUT)
    assert following.returncode == 0
    assert "the recording ended without a stop" in err
    assert_same(out.splitlines(), launcher.folder / "run.trace")
    # and as well when it was killed before
    again, _ = follow(launcher).communicate(timeout=TIMEOUT)
    assert NUMBER.sub("#", again) == NUMBER.sub("#", out)
    # While it ran, the rate of its clock was known less well.
    for one, other in zip(NUMBER.findall(out), NUMBER.findall(again), strict=True):
        last_digit = 10.0 ** -len(other.partition(".")[2])  # where both are rounded
        assert float(one) == pytest.approx(float(other), rel=1e-3, abs=1.1 * last_digit)


def test_a_table_is_printed_at_the_end_or_at_an_interrupt(launcher: Launcher) -> None:
    recording = start(launcher, 12_000)
    table = follow(launcher, "--table", "--limit", "0")
    wait_for(launcher.folder / "progress", recording)
    for seconds in (1, 4, 16, 64):  # a busy machine may need longer until something is read
        interrupted = follow(launcher, "--table", "--by", "op")
        time.sleep(seconds)
        interrupted.send_signal(signal.SIGINT)
        half, err = interrupted.communicate(timeout=TIMEOUT)
        if "aten::mm" in half:
            break
    assert interrupted.returncode == 0, err
    assert "aten::mm" in half
    assert recording.poll() is None
    (launcher.folder / "end").touch()
    assert recording.wait(timeout=TIMEOUT) == 0
    out, _ = table.communicate(timeout=TIMEOUT)
    after = launcher.run([str(launcher.tracer), "top", "run.trace", "--limit", "0"]).out

    def figures(text: str) -> set[tuple[str, ...]]:
        """Calls, hops and the name; medians of a table that keeps up are rounded."""
        rows = [re.split(r" {2,}", line.strip()) for line in text.splitlines()[1:]]
        return {tuple(row[-3:]) for row in rows}

    assert figures(out) == figures(after)
    assert "torch::autograd::VariableType::mm" in out


def peak_memory(process: subprocess.Popen[str]) -> int:
    """Bytes, of a program that runs until now; what wait4() reports counts its parent's as well."""
    peak = 0
    while process.poll() is None:
        text = Path(f"/proc/{process.pid}/status").read_text()
        if match := re.search(r"^VmHWM:\s+(\d+) kB", text, re.MULTILINE):
            peak = int(match[1]) << 10
        time.sleep(0.05)
    return peak


def test_memory_does_not_grow_with_the_recording(launcher: Launcher) -> None:
    """The whole table of this trace takes twice as much as all that following takes."""
    recording = start(launcher, 20_000)
    following = follow(launcher, "--op", "nothing")
    (launcher.folder / "end").touch()
    peak = peak_memory(following)
    assert recording.wait(timeout=TIMEOUT) == 0
    assert following.returncode == 0
    hops = tracer.load(launcher.folder / "run.trace").hops
    assert len(hops) > 400_000
    assert 80 << 20 < peak < 300 << 20  # Python and polars alone take 100 MiB
