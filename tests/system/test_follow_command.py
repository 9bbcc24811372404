"""`tracer watch` in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from growing import Growing
from lane_moves import Move
from test_follow import recording

TIMEOUT = 600  # seconds; only what hangs takes so long


def command(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tracer.cli.app", "watch", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def test_lines_of_a_trace_that_is_over(tmp_path: Path) -> None:
    writer = recording(
        [[Move(0, 1, True, False, 0), Move(1, 0, False, False, 2), Move(2, 2, False, False, 1)]]
    )
    path = writer.write(tmp_path / "x.trace")
    out, err = command(str(path)).communicate(timeout=TIMEOUT)
    lines = out.splitlines()
    assert [line.split(" s ", 1)[1] for line in lines] == [
        "aten::op0 [AutogradCPU] 0.03 us (self 0.02), 2 hops  train.py:1",
        "aten::op2 [CPU] 0.01 us (self 0.01), 1 hop  train.py:2",
    ]
    assert err == "tracer: the recording stopped; it has 3 hops\n"
    out, _ = command(str(path), "--op", "op1").communicate(timeout=TIMEOUT)
    assert [line.split(" s ", 1)[1] for line in out.splitlines()] == [
        "  aten::op1 [CPU] 0.01 us (self 0.01)  train.py:1"
    ]
    out, _ = command(str(path), "--table", "--by", "op").communicate(timeout=TIMEOUT)
    assert [line.split()[-1] for line in out.splitlines()[1:]] == ["aten::op0", "aten::op1", "aten::op2"]


def test_interrupt_ends_it_and_is_no_error(tmp_path: Path) -> None:
    writer = recording([[Move(0, 1, False, False, 1)] * 5])
    growing = Growing(writer, tmp_path / "x.trace")
    growing.define()
    growing.write(0, 5)
    following = command(str(growing.path))
    assert following.stdout is not None
    assert "aten::op0" in following.stdout.readline()
    following.send_signal(signal.SIGINT)
    assert following.communicate(timeout=TIMEOUT)[1] == ""
    assert following.returncode == 0
    for seconds in (1, 4, 16, 64):  # the table comes at the end; a busy machine may need longer to begin
        following = command(str(growing.path), "--table")
        time.sleep(seconds)
        if "aten::op0" in (table := interrupted(following)):
            break
    assert "aten::op0" in table
    growing.die()


def interrupted(following: subprocess.Popen[str]) -> str:
    following.send_signal(signal.SIGINT)
    out, err = following.communicate(timeout=TIMEOUT)
    if out:  # it had begun
        assert following.returncode == 0, err
        assert err == ""
    return out


def test_the_reader_of_a_pipe_may_go(tmp_path: Path) -> None:
    writer = recording([[Move(0, 1, False, False, 1)] * 5000])
    path = writer.write(tmp_path / "x.trace")
    following = command(str(path))
    assert following.stdout is not None
    following.stdout.readline()
    following.stdout.close()
    assert following.wait(timeout=TIMEOUT) == 0
    assert following.stderr is not None
    assert "Error" not in following.stderr.read()
