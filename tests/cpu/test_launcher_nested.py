"""The launcher with scripts that start processes, record themselves or become other programs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from launching import TIMEOUT, Launcher

import tracer

pytestmark = pytest.mark.fresh

WITH_TORCH = "import torch\ntorch.add(torch.ones(4), 1)\n"


def test_children_do_not_speak(launcher: Launcher) -> None:
    launcher.write(
        "import os, subprocess, sys, torch, multiprocessing as mp\n"
        "def work(x):\n    return torch.ones(x).sum().item()\n"
        "if __name__ == '__main__':\n"
        "    for method in ('fork', 'spawn', 'forkserver'):\n"
        "        with mp.get_context(method).Pool(1) as pool:\n"
        "            print(method, pool.map(work, [1, 2, 3]), flush=True); pool.close(); pool.join()\n"
        "    print(subprocess.run([sys.executable, '-c', 'import torch; print(torch.ones(2))'],"
        " capture_output=True, text=True), flush=True)\n"
        "    if (child := os.fork()) == 0:\n        torch.ones(2).mul(3); sys.exit(9)\n"
        "    print(os.waitpid(child, 0)[1])\n"
    )
    ran = [sys.executable, "-c", "import torch; print(torch.ones(2))"]
    done = subprocess.CompletedProcess(ran, 0, "tensor([1., 1.])\n", "")
    pools = "".join(f"{method} [1.0, 2.0, 3.0]\n" for method in ("fork", "spawn", "forkserver"))
    traced = launcher.says(f"{pools}{done}\n{9 << 8}\n", "script.py")
    assert traced.said.count("next: ") == 1


def test_the_line_that_calls_a_launcher_of_kernels(launcher: Launcher) -> None:
    """Of packages that call the user's kernels, the line in them says nothing; of others it does."""
    for package in ("numba", "other"):
        text = "import torch\ndef run():\n    torch.ones(2).neg()\n"
        launcher.write(text, f"packages/{package}/__init__.py")
    launcher.write("import other, numba\nother.run()\nnumba.run()\n")
    packages = {"PYTHONPATH": str(launcher.folder / "packages")}
    run = launcher.record("-o", "t.trace", "script.py", extra=packages)
    assert run.status == 0, run.err
    hops = tracer.load(launcher.folder / "t.trace").hops.filter(op="aten::neg")
    lines = {str(Path(source).relative_to(launcher.folder)) for source in hops["source"]}
    assert sorted(lines) == ["packages/other/__init__.py:3", "script.py:3"]


def test_a_stand_in_for_a_launcher_of_kernels(launcher: Launcher) -> None:
    """Scripts that cannot have Triton put an empty module in its place."""
    launcher.write(
        "import sys, types\nsys.modules['triton'] = types.ModuleType('triton')\n"
        "import torch\nprint(torch.ones(2).neg())\n"
    )
    launcher.same("script.py")
    assert "aten::neg" in set(tracer.load(launcher.folder / "both.trace").hops["op"])


def test_fork_before_torch(launcher: Launcher) -> None:
    launcher.write(
        "import os, sys\n"
        "child = os.fork()\n"
        "import torch\n"
        "torch.ones(2)\n"
        "if child: print(os.waitpid(child, 0)[1])\n"
    )
    traced = launcher.same("script.py")
    assert traced.said.count("next: ") == 1


NESTED = """
import multiprocessing, os, torch, tracer
def with_block():
    with tracer.record('inner.trace', steps='0:1') as recording:
        torch.neg(torch.ones(2)); tracer.step(); recording.step()
    return recording
def start_and_stop():
    recording = tracer.start('inner.trace')
    torch.neg(torch.ones(2))
    assert tracer.stop() is recording.summary
    return recording
def unnamed():
    recording = tracer.start()
    recording.stop()
    return recording
def errors(*calls):
    for call in calls:
        try: call()
        except tracer.RecordingError as error: print(error)
def use():
    for run in (with_block, start_and_stop, unnamed):
        recording = run()
        print(os.path.basename(recording.path), type(recording.summary).__name__)
        recording.summary.text(), recording.summary.verdict
        for left in os.listdir(): left.startswith(('inner', 'script.0')) and os.unlink(left)
    recording = tracer.start('inner.trace')
    errors(recording.start, tracer.start)
    tracer.stop()
    errors(recording.start, tracer.stop, tracer.record('x.trace').stop)
    for left in os.listdir(): left.startswith('inner') and os.unlink(left)
if __name__ == '__main__':
    use()
    for method in ('fork', 'spawn'):
        child = multiprocessing.get_context(method).Process(target=use)
        child.start(); child.join(); print(child.exitcode)
    torch.abs(torch.ones(2))
"""


def test_a_script_that_records_itself_runs_as_it_does_alone(launcher: Launcher) -> None:
    launcher.write(NESTED)
    plain, traced = launcher.both("script.py")
    assert (plain.status, plain.err) == (0, "")
    numbered = re.compile(r"script\.\d+\.trace")  # there is nothing that could be numbered
    assert numbered.sub("script.trace", plain.out) == traced.out
    assert (traced.status, traced.own_err) == (0, "")
    said = "tracer: inner.trace will not be written: this process is already being recorded, to "
    assert [line.startswith(said) for line in traced.said.splitlines()].count(True) == 2, traced.said
    hops = tracer.load(launcher.folder / "both.trace").hops
    assert len(hops.filter((hops["op"] == "aten::neg") & (hops["kind"] == "call"))) == 3 * 2
    assert "aten::abs" in set(hops["op"]), "the recording around it goes on"


def test_what_a_recording_inside_a_recording_says(launcher: Launcher) -> None:
    launcher.write(
        "import torch, tracer\n"
        "with tracer.record('inner.trace') as recording: torch.ones(2)\n"
        "print(recording.summary.verdict)\n"
    )
    traced = launcher.record("-o", "run.trace", "script.py")
    path = launcher.folder / "run.trace"
    assert traced.out == f"incomplete: empty: this process was recorded to {path}\n"
    assert launcher.traces() == ["run.trace"]


def test_launcher_inside_a_recording(launcher: Launcher) -> None:
    launcher.write(WITH_TORCH, "inner.py")
    traced = launcher.record("-o", "outer.trace", str(launcher.tracer), "record", "inner.py")
    assert traced.status == 0, traced.err
    path = launcher.folder / "outer.trace"
    assert (
        f"tracer: inner.trace will not be written: this process is already being recorded, to {path}\n"
        in traced.err
    )
    assert launcher.traces() == ["outer.trace"]
    assert len(tracer.load(path).hops) > 0


def test_a_script_that_becomes_another_before_torch(launcher: Launcher) -> None:
    launcher.write(WITH_TORCH, "inner.py")
    launcher.write("import os, sys\nos.execv(sys.executable, [sys.executable, 'inner.py'])\n")
    traced = launcher.record("-o", "run.trace", "script.py")
    assert traced.status == 0, traced.err
    assert traced.said.startswith("tracer: run.trace\n"), traced.err
    trace = tracer.load(launcher.folder / "run.trace")
    assert len(trace.hops) > 0
    assert trace.certificate["complete"], trace.certificate["verdict"]


def test_a_script_that_becomes_another_replaces_an_older_trace(launcher: Launcher) -> None:
    launcher.write(WITH_TORCH, "older.py")
    launcher.record("-o", "run.trace", "older.py", fresh=False)
    launcher.write("import torch\ntorch.neg(torch.ones(2))\n", "inner.py")
    launcher.write("import os, sys\nos.execv(sys.executable, [sys.executable, 'inner.py'])\n")
    traced = launcher.record("--force", "-o", "run.trace", "script.py")
    assert traced.status == 0, traced.err
    assert traced.said.startswith("tracer: run.trace\n"), traced.err
    assert "aten::neg" in set(tracer.load(launcher.folder / "run.trace").hops["op"].cast(pl.String))


def test_a_script_that_becomes_one_without_torch(launcher: Launcher) -> None:
    launcher.write("print('no torch')\n", "inner.py")
    launcher.write("import os, sys\nos.execv(sys.executable, [sys.executable, 'inner.py'])\n")
    traced = launcher.record("script.py")
    assert (traced.status, traced.out) == (0, "no torch\n")
    assert "nothing was recorded: the script did not import torch" in traced.said
    assert launcher.traces() == []


def test_a_script_that_starts_the_launcher(launcher: Launcher) -> None:
    launcher.write("import sys, torch\nprint(torch.neg(torch.ones(2)).tolist())\nsys.exit(3)\n", "inner.py")
    launcher.write(
        "import subprocess, sys, torch\ntorch.abs(torch.ones(2))\n"
        f"print(subprocess.run([{str(launcher.tracer)!r}, 'record', *sys.argv[1:], 'inner.py']).returncode)\n"
    )
    launcher.fresh = False  # what is asked is the launcher that the script starts: it is a process of its own
    traced = launcher.record("-o", "run.trace", "script.py", "-o", "made.trace")
    assert traced.status == 0, traced.err
    assert traced.out.splitlines() == ["[-1.0, -1.0]", "3"]
    assert launcher.traces() == ["run.trace"]
    trace = tracer.load(launcher.folder / "run.trace")
    assert {"aten::abs", "aten::neg"} <= set(trace.hops["op"].cast(pl.String))
    assert trace.certificate["complete"], trace.certificate["verdict"]
    refused = launcher.record("-o", "again.trace", "script.py", "--override", "mm")
    assert refused.out == "2\n"
    assert "enable overrides in the command that began that recording" in refused.err


ENDINGS = {"in order": "", "killed": "os.kill(os.getpid(), 9)\n", "without a stop": "os._exit(0)\n"}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_shell_that_outlives_the_recording(launcher: Launcher, ending: str) -> None:
    """What a recorded script left in the environment of a shell or a service counts as long as it records."""
    launcher.write("import torch\nprint(torch.ones(2).neg().sum().item())\n", "later.py")
    later = (
        "cat gate; cp outer.trace before.trace; "
        f"{sys.executable} later.py; {launcher.tracer} record -o later.trace later.py; echo $?; : > done"
    )
    os.mkfifo(launcher.folder / "gate")
    launcher.write(
        "import os, subprocess, torch\ntorch.ones(2)\n"
        "with open('log', 'w') as log:\n"
        f"    subprocess.Popen(['bash', '-c', {later!r}], stdout=log, stderr=log, start_new_session=True)\n"
        + ending
    )
    launcher.record("-o", "outer.trace", "script.py")
    (launcher.folder / "gate").write_text("")
    end = time.monotonic() + TIMEOUT
    while not (launcher.folder / "done").exists() and time.monotonic() < end:
        time.sleep(0.05)
    first, second, *said, status = (launcher.folder / "log").read_text().splitlines()
    assert (first, second, status) == ("-2.0", "-2.0", "0")
    assert said[0] == "tracer: later.trace"
    before, after = (tracer.load(launcher.folder / name) for name in ("before.trace", "outer.trace"))
    assert len(after.processes) == len(before.processes) == 1
    assert "aten::neg" in set(tracer.load(launcher.folder / "later.trace").hops["op"])


REQUEST = {
    "path": "PATH",
    "shown": "x",
    "session": 1,
    "process": [1, 1, 1],
    "cupti_unusable": "",
    "reserved": True,
    "force": True,
    "override": ["none:such"],
}

STALE = {
    "garbage": "garbage",
    "a list": "[1]",
    "no fields": "{}",
    "a descriptor as path": '{"path": 0, "reserved": true}',
    "of another process": json.dumps(REQUEST),
}


@pytest.mark.parametrize("request_", STALE.values(), ids=STALE)
@pytest.mark.parametrize("variable", ["TRACER_RECORD", "TRACER_JOIN"])
def test_variables_that_nobody_set_for_this_process(launcher: Launcher, request_: str, variable: str) -> None:
    empty = launcher.write("", "empty.trace")
    extra = {variable: request_.replace("PATH", str(empty))}
    for script in ("import torch\nprint(torch.ones(2))\n", "print(1)\n"):
        launcher.write(script)
        plain = launcher.python("script.py", fresh=False)
        run = launcher.python("script.py", extra=extra)
        assert (run.status, run.out, run.own_err) == (plain.status, plain.out, plain.err)
        assert run.said.count("\n") <= ("torch" in script)
        assert empty.exists()
        assert empty.stat().st_size == 0
    assert launcher.record("-o", "t.trace", "script.py", extra=extra).status == 0


def test_api(launcher: Launcher) -> None:
    launcher.write(
        "import os, torch, tracer\n"
        "with tracer.record('run.trace') as recording:\n    torch.ones(4)\n"
        "print(recording.summary.verdict, 'TRACER_JOIN' in os.environ)\n"
        "try:\n    tracer.start('run.trace')\nexcept tracer.RecordingError as error:\n    print(error)\n"
        "print(os.path.basename(tracer.start('run.trace', force=True).path)); tracer.stop()\n"
        "try:\n    tracer.stop()\nexcept tracer.RecordingError as error:\n    print(error)\n"
        "print(os.path.basename(tracer.start().path))\n"
    )
    run = launcher.python("script.py")
    assert run.err == ""
    assert run.out.splitlines() == [
        "complete: nothing dropped False",
        "run.trace already exists; give another file or overwrite it (--force)",
        "run.trace",
        "no recording is running; begin one with tracer.start()",
        "script.0001.trace",
    ]
    assert launcher.traces() == ["run.trace", "script.0001.trace"]
    assert sorted(p.name for p in launcher.folder.iterdir() if "replaced" in p.name) == []
