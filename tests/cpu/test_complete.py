"""A recording says "complete" if all that ran is in the trace, at its end and whenever it is read."""

from __future__ import annotations

import os
import re
import signal
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from launching import TIMEOUT, Launcher
from lazily import torch

import tracer
from tracer.trace.bytes import format as fmt


def said(text: str) -> str:
    """What a summary says, without the folding of its lines."""
    return " ".join(text.split())


def certificate(path: Path) -> dict:
    return tracer.load(path).certificate


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


# ---- what is known when the recording ends -------------------------------------------------------


@pytest.mark.promise("tracer.record", "docs/api.md#a-trace-as-tables")
def test_all_is_there(tmp_path: Path) -> None:
    with tracer.record(tmp_path / "t.trace") as recording:
        torch.ones(2)
    assert recording.summary.complete is True
    assert recording.summary.verdict == "complete: nothing dropped"
    assert certificate(tmp_path / "t.trace")["complete"] is True


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], "no op ran"),
        (["--ops", "aten::mm"], "no op ran that matches --ops"),
        (["--steps", "3:6"], "no step ended, so steps 3:6 were not recorded: call tracer.step() after each"),
    ],
)
def test_nothing_was_recorded(launcher: Launcher, options: list[str], why: str) -> None:
    ops = "torch.ones(2)\n" if options else ""
    launcher.write(f"import torch\n{ops}")
    run = launcher.record("-o", "t.trace", *options, "script.py")
    assert f"incomplete: nothing was recorded: {why}" in said(run.said)
    found = certificate(launcher.folder / "t.trace")
    assert found["verdict"] == f"incomplete: 0 hops; nothing was recorded: {why}"
    assert found["complete"] is False
    tree = launcher.run([str(launcher.tracer), "tree", "t.trace"])
    assert f"nothing was recorded: {why}" in tree.err


def test_fewer_steps_than_were_asked_for(launcher: Launcher) -> None:
    launcher.write("import torch, tracer\nfor _ in range(2):\n    torch.ones(2)\n    tracer.step()\n")
    run = launcher.record("-o", "t.trace", "--steps", "3:6", "script.py")
    why = "nothing was recorded: step 3 was not reached: only 2 steps ended"
    assert f"incomplete: {why}" in said(run.said)
    assert why in certificate(launcher.folder / "t.trace")["verdict"]


def test_another_recording_took_the_name(launcher: Launcher) -> None:
    """The figures of the other one are not said under this one's name."""
    launcher.write("import torch\nfor _ in range(3): torch.neg(torch.ones(2))\n", "other.py")
    launcher.write(
        "import os, subprocess, sys, torch\n"
        "for _ in range(1000): torch.abs(torch.ones(2))\n"
        "environment = {k: v for k, v in os.environ.items() if k != 'TRACER_JOIN'}\n"
        f"command = [{str(launcher.tracer)!r}, 'record', '-o', 'other.trace', 'other.py']\n"
        "subprocess.run(command, env=environment, check=True, capture_output=True)\n"
        "os.rename('other.trace', 'run.trace')\n"
    )
    run = launcher.record("-o", "run.trace", "script.py")
    assert run.status == 0
    assert run.err == (
        "tracer: tracer could not end the recording properly: "
        "run.trace was replaced by another recording while it was recorded\n"
    )


@pytest.mark.fresh
def test_a_script_that_breaks_imports(launcher: Launcher) -> None:
    """tracer cannot import at the exit what it needs to end the recording."""
    launcher.write(
        "import builtins, torch\n"
        "torch.ones(3) + 1\n"
        "def broken(*a, **k): raise ImportError('no')\n"
        "builtins.__import__ = broken\n"
    )
    run = launcher.record("-o", "run.trace", "script.py")
    assert run.status == 0
    assert run.err.splitlines()[-1] == (
        "tracer: tracer could not end the recording properly: ImportError: no; the trace has all until then "
        "and says that it was not stopped. A script that replaces builtins such as __import__ may cause this"
    )
    trace = tracer.load(launcher.folder / "run.trace")
    assert "aten::add.Tensor" in trace.hops["op"].to_list()
    assert "ended without a stop" in trace.certificate["verdict"]


def test_something_else_took_the_name(tmp_path: Path) -> None:
    path = tmp_path / "t.trace"
    recording = tracer.start(path)
    torch.ones(2)
    path.rename(tmp_path / "elsewhere.trace")
    path.write_bytes(b"x" * 8192)
    with pytest.raises(tracer.RecordingError, match=r"t\.trace was overwritten while it was recorded"):
        recording.stop()
    assert path.read_bytes() == b"x" * 8192


# ---- processes that outlive it, or die -----------------------------------------------------------

OUTLIVES = """
import os, sys, time, torch
torch.ones(2)
if os.fork() == 0:
    torch.neg(torch.ones(2))
    open("begun", "w").close()
    while not os.path.exists("go"): time.sleep(0.01)
    for _ in range({calls}): torch.neg(torch.ones(2))
    {ending}
while not os.path.exists("begun"): time.sleep(0.01)
"""


@pytest.mark.parametrize("calls", [1, 200_000], ids=["in the chunk that it has", "in further chunks"])
@pytest.mark.parametrize("ending", ["sys.exit(0)", "os._exit(0)"])
def test_a_process_that_outlives_the_recording(launcher: Launcher, calls: int, ending: str) -> None:
    launcher.write(OUTLIVES.format(calls=calls, ending=ending + "  # in the child"))
    with (launcher.folder / "said").open("w") as errors:  # a pipe would stay open until the child ends
        command = f"exec {launcher.tracer} record -o t.trace script.py"
        process = launcher.start("bash", "-c", f"{command} > out 2> {errors.name}")
        assert process.wait(TIMEOUT) == 0
    text = said(Path(errors.name).read_text())
    assert "incomplete: 1 process still runs; what it does from now on is not recorded" in text
    path = launcher.folder / "t.trace"
    ran_on = "1 process continued after the recording ended; what it did then is not recorded"
    assert certificate(path)["verdict"].partition("; ")[2] == ran_on
    pid = tracer.load(path).processes["pid"][1]
    (launcher.folder / "go").touch()
    until(lambda: not Path(f"/proc/{pid}").exists())
    found = certificate(path)
    died = "1 process ended without a stop"
    assert (ran_on if ending.startswith("sys") else died) in found["verdict"]
    assert "cut off" not in found["verdict"], "nothing was cut"
    assert found["complete"] is False


def test_a_process_that_dies(launcher: Launcher) -> None:
    launcher.write(
        "import os, torch\ntorch.ones(2)\n"
        "if (child := os.fork()) == 0:\n    torch.ones(2); os.kill(os.getpid(), 9)\n"
        "os.waitpid(child, 0)\n"
    )
    run = launcher.record("-o", "t.trace", "script.py")
    assert "incomplete: 1 process ended without a stop" in said(run.said)
    found = certificate(launcher.folder / "t.trace")
    assert (found["complete"], found["not_stopped"]) == (False, [1])
    assert found["verdict"].endswith("; 1 process ended without a stop")


def test_a_fork_server_has_no_work_of_its_own(launcher: Launcher) -> None:
    launcher.write(
        "import multiprocessing, torch\n"
        "def work(): torch.neg(torch.ones(2))\n"
        "if __name__ == '__main__':\n"
        "    multiprocessing.set_forkserver_preload(['torch'])\n"
        "    child = multiprocessing.get_context('forkserver').Process(target=work)\n"
        "    child.start(); child.join()\n"
    )
    run = launcher.record("-o", "t.trace", "script.py")
    assert "complete: nothing dropped" in run.said
    assert "3 processes" in run.said
    assert certificate(launcher.folder / "t.trace")["complete"] is True


def test_a_child_of_a_fork_server_that_is_killed(launcher: Launcher) -> None:
    """It has the command of the server."""
    launcher.write(
        "import multiprocessing, os, torch\n"
        f"def work():\n    torch.neg(torch.ones(2))\n    os.kill(os.getpid(), {signal.SIGKILL})\n"
        "if __name__ == '__main__':\n"
        "    torch.neg(torch.ones(2))\n"
        "    child = multiprocessing.get_context('forkserver').Process(target=work)\n"
        "    child.start(); child.join()\n"
    )
    run = launcher.record("-o", "t.trace", "script.py")
    assert "incomplete: 1 process ended without a stop" in said(run.said)
    found = certificate(launcher.folder / "t.trace")
    assert (found["complete"], len(found["not_stopped"])) == (False, 1)


# ---- killed, cut, and still being written --------------------------------------------------------


@pytest.fixture
def killed(launcher: Launcher) -> Path:
    launcher.write(
        "import os, torch\nx = torch.ones(2)\n"
        "for _ in range(100_000): torch.neg(x)\n"
        f"os.kill(os.getpid(), {signal.SIGKILL})\n"
    )
    launcher.record("-o", "t.trace", "script.py")
    return launcher.folder / "t.trace"


def chunk_ends(data: bytes) -> list[int]:
    ends, at = [], fmt.HEADER_BYTES
    while at + 8 <= len(data):
        magic, capacity = struct.unpack_from("<2I", data, at)
        at += capacity if magic == fmt.CHUNK_MAGIC else fmt.CHUNK_ALIGNMENT
        ends += [at] if magic == fmt.CHUNK_MAGIC else []
    return ends


@pytest.mark.fresh
def test_a_killed_recording(launcher: Launcher, killed: Path) -> None:
    found = certificate(killed)
    hops = f"{found['hops']:,} hops"
    assert found["verdict"] == f"killed, or ended without a stop: {hops} until then, nothing dropped"
    assert found["complete"] is False
    tree = launcher.run([str(launcher.tracer), "tree", "t.trace"])
    assert tree.err == f"tracer: {found['verdict']}\n"


@pytest.mark.promise("docs/trace_format.md#what-survives-what")
def test_a_killed_recording_that_was_cut_at_the_end_of_a_chunk(killed: Path) -> None:
    data = killed.read_bytes()
    cut = chunk_ends(data)[3]
    killed.write_bytes(data[:cut])
    found = certificate(killed)
    assert found["missing_bytes"] == len(data) - cut
    assert re.fullmatch(
        rf"killed, .*: [\d,]+ hops until then; {len(data) - cut:,} bytes missing at the end of the file",
        found["verdict"],
    )


def test_a_recording_that_is_read_while_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "t.trace"
    with tracer.record(path):
        torch.ones(2)
        found = certificate(path)
    assert re.fullmatch(r"still being written: \d+ hops so far, nothing dropped", found["verdict"])
    assert found["complete"] is False
    assert certificate(path)["complete"] is True


@pytest.mark.fresh
def test_left_by_exec_or_exit(launcher: Launcher) -> None:
    for ending in ("os._exit(0)", f"os.execl({sys.executable!r}, 'python', '-c', '')"):
        launcher.write(f"import os, torch\ntorch.ones(2)\n{ending}\n")
        launcher.record("--force", "-o", "t.trace", "script.py")
        found = certificate(launcher.folder / "t.trace")
        assert found["verdict"].startswith("killed, or ended without a stop: "), ending
        assert os.path.getsize(launcher.folder / "t.trace") > 0
