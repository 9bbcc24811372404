"""`tracer attach` to a job that ends, has not begun, forks or executes: it ends as without tracer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attaching import MAPS, attach, imitation, program, refused, torch_of, wait_until
from launching import TIMEOUT, Launcher, Run

import tracer

pytestmark = pytest.mark.gdb
START_IT = "start the job with: tracer record"
needs_gdb = pytest.mark.skipif(hasattr(sys, "remote_exec"), reason="this Python needs no gdb")

# `say` is also there when Python is not: it makes a file of this name in the job's folder.
HELPER = """\
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

void say(const char* name) { close(open(name, O_CREAT | O_WRONLY, 0600)); }
static void wait_for_go(void) {
  for (int i = 0; i < 6000 && access("go", F_OK); ++i) usleep(10000);
}
static void last(void) { say("at"); wait_for_go(); }
void wait_at_the_end(void) { atexit(last); }
static void before_fork(void) { say("at"); wait_for_go(); }
static void parent_waits(void) { usleep(1000000); }
void wait_in_fork(void) { pthread_atfork(before_fork, parent_waits, 0); }
void wait_in_vfork(void) {
  if (vfork() == 0) {
    say("at");
    wait_for_go();
    _exit(0);
  }
}
void end_this_thread(void) { pthread_exit(0); }
"""
BEGIN = """\
import atexit, ctypes, os, sys, threading, time
import torch
helper = ctypes.CDLL("./helper.so")
def arrive(open=open):
    open("at", "w").close()
def spin(seconds=60.0, exists=os.path.exists, now=time.monotonic, pause=time.sleep):
    end = now() + seconds
    while now() < end and not exists("go"):
        torch is None or torch.ones(2).sum()
        pause(0.001)
"""
RESULT = 'print("result", torch.ones(3).sum().item(), flush=True)\n'


class Ending:
    """A job in the launcher's folder that has reached the place where the test attaches."""

    def __init__(self, launcher: Launcher, process: subprocess.Popen[str]) -> None:
        self.launcher = launcher
        self.process = process

    def attach(self, *options: str, **more: object) -> Run:
        return attach(self.launcher, self.process.pid, *options, "-o", "t.trace", **more)

    def go(self) -> None:
        (self.launcher.folder / "go").touch()

    def end(self) -> str:
        """Its output. It ends with status 0, and says nothing on stderr."""
        out, err = self.process.communicate(timeout=TIMEOUT)
        assert (self.process.returncode, err) == (0, "")
        return out


@pytest.fixture
def ending(launcher: Launcher) -> Iterator[Callable[[str], Ending]]:
    """Start a job of this text, and wait until it is where it says so."""
    (launcher.folder / "helper.c").write_text(HELPER)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-o", "helper.so", "helper.c", "-lpthread"],
        cwd=launcher.folder,
        check=True,
    )
    started: list[subprocess.Popen[str]] = []

    def start(text: str) -> Ending:
        process = launcher.start_job(str(launcher.write(BEGIN + text)))
        started.append(process)
        wait_until((launcher.folder / "at").exists, process)
        return Ending(launcher, process)

    yield start
    for process in started:
        process.kill()
        process.communicate()


# ---- Python ends ----------------------------------------------------------------------------------


@needs_gdb
def test_python_has_ended(ending: Callable[[str], Ending]) -> None:
    """The libraries still end, as CUDA does; what a call in Python would use is gone."""
    job = ending(f"helper.wait_at_the_end()\n{RESULT}")
    for _ in range(2):
        refused(job.attach(), "has ended, so nothing was changed", advice=START_IT)
    done = job.launcher.run([str(job.launcher.tracer), "detach", str(job.process.pid)])
    refused(done, "has ended, so nothing was changed", advice="it ends a recording itself")
    job.go()
    assert job.end() == "result 3.0\n"
    assert job.launcher.traces() == []


@needs_gdb
@pytest.mark.fresh
def test_python_ends(ending: Callable[[str], Ending]) -> None:
    """Its modules are being emptied: in one of them an object runs Python."""
    text = "class Last:\n    def __del__(self, arrive=arrive, spin=spin): arrive(); spin()\nlast = Last()\n"
    job = ending(text + RESULT)
    refused(job.attach(), "has ended, so nothing was changed", advice=START_IT)
    job.go()
    assert job.end() == "result 3.0\n"
    assert job.launcher.traces() == []


def test_functions_of_atexit_run(ending: Callable[[str], Ending]) -> None:
    job = ending(f"atexit.register(lambda: (arrive(), spin(), print('last')))\n{RESULT}")
    refused(job.attach(), "is ending, so nothing was changed", advice=START_IT)
    job.go()
    assert job.end() == "result 3.0\nlast\n"
    assert job.launcher.traces() == []


@pytest.mark.fresh
@pytest.mark.parametrize("then", ["pass", "atexit.register(print, 'last')"])
def test_a_function_of_atexit_waits_in_c(ending: Callable[[str], Ending], then: str) -> None:
    """What was added runs when the modules are being emptied, or never."""
    job = ending(
        "class Late:\n    def __del__(self, say=print): say([i for i in range(3)])\nlate = Late()\n"
        f"{then}\natexit.register(time.sleep, 4)\natexit.register(arrive)\n{RESULT}"
    )
    refused(job.attach(), "nothing was changed", advice=START_IT)
    last = "last\n" if "last" in then else ""
    assert job.end() == f"result 3.0\n{last}[0, 1, 2]\n"
    assert job.launcher.traces() == []


def test_the_main_thread_waits_for_threads(ending: Callable[[str], Ending]) -> None:
    """At the end, with a daemon thread that runs Python: the request is withdrawn."""
    job = ending(
        "def work():\n    while threading.main_thread().is_alive(): time.sleep(0.01)\n    arrive(); spin()\n"
        "def forever():\n    while True: time.sleep(0.001)\n"
        "threading.Thread(target=work).start()\nthreading.Thread(target=forever, daemon=True).start()\n"
        f"{RESULT}"
    )
    refused(job.attach("--timeout", "1"), "so nothing was changed: its main thread waits", advice="--timeout")
    job.go()
    assert job.end() == "result 3.0\n"
    assert job.launcher.traces() == []


def test_the_job_ends_while_the_recording_begins(launcher: Launcher, ending: Callable[[str], Ending]) -> None:
    """Python ends when tracer has begun to load: the trace is whole."""
    job = ending(
        "import importlib.abc\n"
        "class Waits(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'tracer.recording.attached':\n"
        "            open('go', 'w').close(); time.sleep(2)\n"
        f"sys.meta_path.insert(0, Waits())\narrive()\nspin()\n{RESULT}"
    )
    done = job.attach("--seconds", "60")
    assert (done.status, done.out) == (0, ""), done.err
    assert job.end() == "result 3.0\n"
    certificate = tracer.load(launcher.folder / "t.trace").certificate
    assert certificate["complete"] or "no op ran" in certificate["verdict"], certificate["verdict"]


@needs_gdb
def test_python_has_ended_before_the_recording_is_ended(
    launcher: Launcher, ending: Callable[[str], Ending]
) -> None:
    """The job has finished the trace, and says so."""
    job, attaching = recorded_until_it_ends(launcher, ending, "helper.wait_at_the_end()")
    out, err = attaching.communicate(timeout=TIMEOUT)
    assert (attaching.returncode, out) == (0, ""), err
    assert "complete: nothing dropped" in err
    done = launcher.run([str(launcher.tracer), "detach", str(job.process.pid)])
    refused(done, "nothing was changed", advice="it ends a recording itself")
    job.go()
    assert job.end() == "result 3.0\n"
    assert tracer.load(launcher.folder / "t.trace").certificate["complete"]


def test_functions_of_atexit_run_when_the_recording_is_to_end(
    launcher: Launcher, ending: Callable[[str], Ending]
) -> None:
    """tracer waits until the job has ended it."""
    job, attaching = recorded_until_it_ends(launcher, ending, "atexit.register(lambda: (arrive(), spin()))")
    done = launcher.run([str(launcher.tracer), "detach", str(job.process.pid)])
    refused(done, "nothing was changed", advice="it ends a recording itself")
    job.go()
    out, err = attaching.communicate(timeout=TIMEOUT)
    assert (attaching.returncode, out) == (0, ""), err
    assert "complete: nothing dropped" in err
    assert job.end() == "result 3.0\n"
    assert tracer.load(launcher.folder / "t.trace").certificate["complete"]


def recorded_until_it_ends(
    launcher: Launcher, ending: Callable[[str], Ending], last: str
) -> tuple[Ending, subprocess.Popen[str]]:
    """A job that `last` holds at its end, and the `tracer attach` that recorded it and is to end that."""
    job = ending(f"arrive()\nspin()\n{last}\nos.unlink('at'); os.unlink('go')\n{RESULT}")
    command = [str(launcher.tracer), "attach", str(job.process.pid), "-o", "t.trace", "--seconds", "1"]
    attaching = launcher.start(*command)
    assert attaching.stderr is not None
    assert "recording process" in attaching.stderr.readline()
    time.sleep(0.2)
    job.go()
    wait_until(lambda: not (launcher.folder / "go").exists(), job.process)
    wait_until((launcher.folder / "at").exists, job.process)
    time.sleep(2)
    return job, attaching


def test_the_main_thread_has_ended(ending: Callable[[str], Ending]) -> None:
    """Others go on, and nothing runs what is added for it."""
    job = ending(
        "def work():\n    time.sleep(1); arrive(); spin(); print('end', flush=True); os._exit(0)\n"
        "threading.Thread(target=work).start()\nhelper.end_this_thread()\n"
    )
    refused(
        job.attach(), "the main thread of process", advice=f"has ended, so tracer cannot attach; {START_IT}"
    )
    job.go()
    assert job.end() == "end\n"


# ---- it forks, or executes ------------------------------------------------------------------------


@needs_gdb
def test_a_child_does_not_take_the_request(launcher: Launcher, ending: Callable[[str], Ending]) -> None:
    """What was added before the fork is there in both, and the child comes to it first."""
    job = ending(
        f"helper.wait_in_fork()\nchild = os.fork()\nspin_end = time.monotonic() + 4\n"
        "while time.monotonic() < spin_end: torch.ones(2).sum(); time.sleep(0.001)\n"
        "if child == 0: print('tracer' in sys.modules, flush=True); os._exit(0)\n"
        f"os.waitpid(child, 0)\n{RESULT}"
    )
    command = [str(launcher.tracer), "attach", str(job.process.pid), "-o", "t.trace", "--seconds", "0.3"]
    attaching = launcher.start(*command)
    time.sleep(2)  # until gdb has been there
    job.go()
    err = attaching.communicate(timeout=TIMEOUT)[1]
    assert attaching.returncode == 0, err
    assert job.end() == "False\nresult 3.0\n"
    trace = tracer.load(launcher.folder / "t.trace")
    assert [process["pid"] for process in trace.processes.to_dicts()] == [job.process.pid]


def test_a_child_that_is_forked_while_the_recording_begins(ending: Callable[[str], Ending]) -> None:
    """It ends as any child does: it has no thread of tracer's for which it would wait."""
    job = ending(
        "import importlib.abc\n"
        "class Forks(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'tracer.recording.attached' and not os.path.exists('go'):\n"
        "            open('go', 'w').close(); time.sleep(2)\n"
        "sys.meta_path.insert(0, Forks())\narrive()\nspin()\n"
        f"child = os.fork()\nif child == 0: sys.exit(3)\nprint(os.waitpid(child, 0)[1] >> 8)\n{RESULT}"
    )
    done = job.attach("--seconds", "0.3")
    assert done.status == 0, done.err
    assert job.end() == "3\nresult 3.0\n"


@needs_gdb
def test_it_waits_in_the_kernel(ending: Callable[[str], Ending]) -> None:
    """gdb cannot stop it in time; what gdb has sent does not stop it later."""
    job = ending(f"helper.wait_in_vfork()\n{RESULT}")
    refused(
        job.attach("--timeout", "1"),
        "waits in the kernel",
        advice="so nothing was changed; attach again later",
    )
    job.go()
    assert job.end() == "result 3.0\n"


@needs_gdb
@pytest.mark.parametrize("other", ["sleep", "python"])
def test_another_program_was_begun(launcher: Launcher, ending: Callable[[str], Ending], other: str) -> None:
    """After tracer looked for the functions to call, and before gdb attached."""
    then = (
        "'/bin/sh', ['sh', '-c', 'touch begun; sleep 3; echo other']"
        if other == "sleep"
        else "sys.executable, ['python', 'other.py']"
    )
    launcher.write("import time; open('begun', 'w').close(); time.sleep(3); print('other')\n", "other.py")
    job = ending(f"arrive()\nspin()\nos.execv({then})\n")
    late = program(
        launcher.folder,
        "gdb",
        f'touch go; while ! test -e begun; do sleep 0.1; done\nexec {shutil.which("gdb")} "$@"',
    )
    refused(job.attach(extra=late), "has begun another program", advice="attach again")
    assert job.end() == "other\n"


# ---- Python in a program, and what crashes --------------------------------------------------------


@contextmanager
def waiting(command: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@needs_gdb
def test_python_has_not_begun(launcher: Launcher) -> None:
    """A program that runs Python later, and again."""
    folder, library = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("LDLIBRARY") or ""
    if ".so" not in library or not Path(folder, library).exists():
        pytest.skip("this Python has no shared library")
    torch = torch_of(launcher.folder, tracer._build_info.TORCH_VERSION)  # type: ignore[attr-defined]
    source = (
        "void Py_Initialize(void); int Py_FinalizeEx(void); int PyRun_SimpleString(const char*);\n"
        f'void wait_here(void) {{ puts("on"); fflush(stdout); getchar(); }}\n'
        f"int main(int count, char** given) {{ {MAPS} wait_here();\n"
        "for (int i = 0; i < 2; ++i) { Py_Initialize();\n"
        "PyRun_SimpleString(\"print('ran', flush=True)\"); Py_FinalizeEx(); wait_here(); } return 0; }"
    )
    text = imitation(
        launcher.folder,
        source,
        "embeds",
        f"-L{folder}",
        f"-Wl,-rpath,{folder}",
        "-Wl,--no-as-needed",
        f"-l{library.removeprefix('lib').partition('.so')[0]}",
    )
    with waiting([text, torch], launcher.folder) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            expected = ["on\n"] if number == 0 else ["ran\n", "on\n"]
            assert [process.stdout.readline() for _ in expected] == expected
            done = attach(launcher, process.pid)
            refused(done, "has ended or not begun, so nothing was changed", advice=START_IT)
            process.stdin.write("\n")
            process.stdin.flush()
        assert process.wait(TIMEOUT) == 0
    assert launcher.traces() == []


CRASHES = """#include <pthread.h>
#include <signal.h>
static volatile sig_atomic_t caught;
static int lost, ends;
int Py_IsInitialized(void) { return 1; }
int PyRun_SimpleString(const char* text) { return text != 0; }
int Py_AddPendingCall(int (*function)(void*), void* given) { CRASH return function == given; }
static void catches(int number) { caught = 1; }
static void* raises(void* nothing) {
  while (!ends) {
    caught = 0;
    raise(SIGSEGV);
    lost += !caught;
  }
  return nothing;
}
"""


@needs_gdb
@pytest.mark.parametrize("crash", ["*(volatile int*)8 = 1;", "__builtin_trap();", "raise(SIGABRT);"])
def test_a_call_that_crashes(launcher: Launcher, crash: str) -> None:
    """It is undone. Another thread gets each of the signals of this kind that it handles."""
    torch = torch_of(launcher.folder, tracer._build_info.TORCH_VERSION)  # type: ignore[attr-defined]
    source = CRASHES.replace("CRASH", crash) + (
        f"int main(int count, char** given) {{ {MAPS} pthread_t other;\n"
        "signal(SIGSEGV, catches); pthread_create(&other, 0, raises, 0);\n"
        'puts("on"); fflush(stdout); getchar(); ends = 1; pthread_join(other, 0);\n'
        'printf("lost %d\\n", lost); return 7; }'
    )
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    with waiting(
        [imitation(launcher.folder, source, name, "-rdynamic", "-pthread"), torch], launcher.folder
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        for _ in range(3):
            done = attach(launcher, process.pid)
            refused(done, "a call in process", advice=f"and was undone; {START_IT}")
        assert process.communicate("\n", timeout=TIMEOUT)[0] == "lost 0\n"
        assert process.returncode == 7
    assert launcher.traces() == []


def test_a_job_that_has_no_memory_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Linux takes it from a process that ends, before it counts as ended."""
    from tracer.attach.process import Process, PythonEndsError

    process = Process(os.getpid())
    monkeypatch.setattr(process, "_maps", dict)
    with pytest.raises(PythonEndsError, match="ended before tracer could attach"):
        process.entrances()
