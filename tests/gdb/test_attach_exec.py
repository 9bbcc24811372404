"""`tracer attach` to a job that begins another program, or is stopped, while it is recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from attaching import SPINS, attach, refused, running, running_job, wait_until
from launching import TIMEOUT, Launcher

import tracer
from tracer.attach.process import already_traced

pytestmark = pytest.mark.gdb
# It becomes `other` once there is a file `go`. A child that it started joins the recording, if it runs then.
JOB = """\
import os, subprocess, sys, time
import torch
print('on', flush=True)
while not os.path.exists('go'):
    torch.ones(2).sum(); time.sleep(0.001)
children = [subprocess.Popen([sys.executable, 'child.py']) for _ in sys.argv[1:]]
while children and not os.path.exists('joined'): time.sleep(0.01)
torch.ones(2).sum()  # is recorded, whatever this process had come to before
os.execv(OTHER)
"""
PYTHON = "sys.executable, [sys.executable, 'other.py']"
OTHER = """\
import os, subprocess, sys, time
import torch
open('begun', 'w').write(str('TRACER_JOIN' in os.environ))
end = time.monotonic() + 60
while not os.path.exists('end') and time.monotonic() < end:
    torch.ones(2).sum(); time.sleep(0.001)
"""
CHILD = """\
import os, time
import torch
torch.ones(2).sum()
open('joined', 'w').close()
end = time.monotonic() + 60
while not os.path.exists('end') and time.monotonic() < end:
    torch.ones(2).sum(); time.sleep(0.001)
"""


def job(launcher: Launcher, other: str = PYTHON) -> str:
    launcher.write(OTHER, "other.py")
    launcher.write(CHILD, "child.py")
    return str(launcher.write(JOB.replace("OTHER", other)))


def wait_for(path: Path) -> None:
    end = time.monotonic() + TIMEOUT
    while not path.exists() or not path.stat().st_size:
        assert time.monotonic() < end, path
        time.sleep(0.01)


def stays_as_it_is(trace: Path) -> bool:
    """Nobody writes to it any more, once what was begun is written."""
    time.sleep(0.5)
    before = trace.stat().st_size
    time.sleep(1)
    return trace.stat().st_size == before


@pytest.mark.parametrize("other", [PYTHON, "'/bin/sh', ['sh', '-c', 'echo x > begun; exec sleep 60']"])
def test_the_recording_ends(launcher: Launcher, other: str) -> None:
    """With what the process did before; the program that it becomes is not recorded."""
    trace = launcher.folder / "t.trace"
    with running_job(job(launcher, other), cwd=launcher.folder) as process:
        command = [str(launcher.tracer), "attach", str(process.pid), "-o", "t.trace", "--seconds", "60"]
        attaching = launcher.start(*command)
        assert attaching.stderr is not None
        assert "recording process" in attaching.stderr.readline()
        (launcher.folder / "go").touch()
        err = attaching.communicate(timeout=TIMEOUT)[1]
        assert attaching.returncode == 0, err
        assert f"process {process.pid} began another program, so its recording ended" in err
        assert "op calls" in err
        wait_for(launcher.folder / "begun")
        assert stays_as_it_is(trace)
        if other == PYTHON:
            assert (launcher.folder / "begun").read_text() == "False"
            done = launcher.run([str(launcher.tracer), "detach", str(process.pid)])
            refused(done, "it is not being recorded", advice="tracer attach")
            done = attach(launcher, process.pid, "--seconds", "0.2", "-o", "u.trace")
            assert done.status == 0, done.err
            assert tracer.load(launcher.folder / "u.trace").certificate["complete"]
        (launcher.folder / "end").touch()
    found = tracer.load(trace).certificate
    assert (found["executed"], found["processes"]) == (True, 1)
    assert found["verdict"].endswith("the process began another program (exec), which is not recorded")
    assert found["hops"] > 0


def test_detach_ends_it_for_the_children_too(launcher: Launcher) -> None:
    trace = launcher.folder / "t.trace"
    with running_job(job(launcher), "child", cwd=launcher.folder) as process:
        done = attach(launcher, process.pid, "-o", "t.trace")
        assert done.status == 0, done.err
        (launcher.folder / "go").touch()
        wait_for(launcher.folder / "begun")
        done = launcher.run([str(launcher.tracer), "detach", str(process.pid)])
        assert done.status == 0, done.err
        assert "began another program, so its recording ended" in done.err
        assert stays_as_it_is(trace)
        (launcher.folder / "end").touch()
        process.wait(TIMEOUT)
    found = tracer.load(trace).certificate
    assert (found["executed"], found["processes"]) == (True, 2)


def test_a_child_that_goes_on(launcher: Launcher) -> None:
    """The recording of a child ends when that of the job ends; what it starts then is not recorded."""
    trace = launcher.folder / "t.trace"
    launcher.write(
        "import os, subprocess, sys\n" + CHILD + "print('TRACER_JOIN' in os.environ)\n", "grandchild.py"
    )
    child = CHILD + "import subprocess, sys\nsubprocess.run([sys.executable, 'grandchild.py'])\n"
    launcher.write(child, "child.py")
    code = (
        "import os, subprocess, sys, time, torch\nprint('on', flush=True)\n"
        "while not os.path.exists('go'): torch.ones(2).sum(); time.sleep(0.001)\n"
        "child = subprocess.Popen([sys.executable, 'child.py'])\n"
        "while not os.path.exists('end'): torch.ones(2).sum(); time.sleep(0.001)\n"
        "child.wait(); print('TRACER_JOIN' in os.environ)\n"
    )
    with running_job("-c", code, cwd=launcher.folder) as process:
        assert attach(launcher, process.pid, "-o", "t.trace").status == 0
        (launcher.folder / "go").touch()
        wait_until((launcher.folder / "joined").exists, process)
        done = launcher.run([str(launcher.tracer), "detach", str(process.pid)])
        assert done.status == 0, done.err
        assert stays_as_it_is(trace)
        (launcher.folder / "end").touch()
        assert process.communicate(timeout=TIMEOUT)[0] == "False\nFalse\n"
    found = tracer.load(trace).certificate
    assert found["processes"] == 2


def test_it_is_stopped_while_it_is_recorded(launcher: Launcher) -> None:
    """The recording ends when the process goes on."""
    trace = launcher.folder / "t.trace"
    with running_job("-c", SPINS, cwd=launcher.folder) as process:
        command = [str(launcher.tracer), "attach", str(process.pid), "-o", "t.trace", "--seconds", "2"]
        attaching = launcher.start(*command, "--timeout", "5")
        assert attaching.stderr is not None
        assert "recording process" in attaching.stderr.readline()
        wait_until(lambda: tracer.load(trace).certificate["hops"], process)  # without any it is incomplete
        process.send_signal(signal.SIGSTOP)
        err = attaching.communicate(timeout=TIMEOUT)[1]
        assert attaching.returncode == 1
        assert f"kill -CONT {process.pid}; if it goes on then: tracer detach {process.pid}" in err
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: tracer.load(trace).certificate["complete"], process)


STOPS = """\
import importlib.abc, os, signal, sys
class Stops(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == 'tracer.recording.attached': os.kill(os.getpid(), signal.SIGSTOP)
sys.meta_path.insert(0, Stops())
"""


def test_it_is_stopped_while_the_recording_begins(launcher: Launcher) -> None:
    """It then begins none, and leaves no ticket."""
    tickets = launcher.folder / "tickets"
    tickets.mkdir()
    with running_job("-c", STOPS + SPINS, cwd=launcher.folder) as process:
        began = time.monotonic()
        options = ("-o", "t.trace", "--seconds", "0.3", "--timeout", "5")
        done = attach(launcher, process.pid, *options, extra={"TMPDIR": str(tickets)})
        refused(done, "is stopped, so its recording has not begun, and will not", advice="kill -CONT")
        assert time.monotonic() - began < 60
        process.send_signal(signal.SIGCONT)
        time.sleep(2)
        assert launcher.traces() == []
    assert list(tickets.iterdir()) == []


def test_who_traces_it() -> None:
    """gdb of tracer's, another one, and one that has ended meanwhile."""
    ended = subprocess.Popen(["true"])  # not waited for: a zombie has no command line
    with running(sys.executable, "-c", "print('on', flush=True); input()", "tracer-gdb-x") as ours:
        assert "another tracer attach or detach started" in str(already_traced(1, ours.pid))
    assert "a debugger, strace" in str(already_traced(1, os.getpid()))
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    for _ in range(2):
        assert "which has ended meanwhile; try again" in str(already_traced(1, ended.pid))
        ended.wait()
