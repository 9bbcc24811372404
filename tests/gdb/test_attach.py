"""`tracer attach` and `tracer detach`: a running job is recorded, and is as before afterwards."""

from __future__ import annotations

import functools
import os
import platform
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
from launching import TIMEOUT, Launcher, Run
from table_words import build

import tracer
from tracer import _C

pytestmark = pytest.mark.gdb

JOB = str(Path(__file__).parent.parent / "cpu" / "attached_job.py")
PHASES = ("forward", "zero_grad", "backward", "between", "optimizer", "hook", "loader")


def wait_until(is_so: Callable[[], object], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + TIMEOUT
    while not is_so():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


class Job:
    """A job in the launcher's folder, which a test leads from phase to phase."""

    def __init__(self, launcher: Launcher, steps: int, phases: tuple[str, ...]) -> None:
        self.launcher = launcher
        self.process = launcher.start(sys.executable, JOB, str(launcher.folder), str(steps), *phases)
        self.pid = str(self.process.pid)

    def reach(self, turn: int) -> None:
        wait_until((self.launcher.folder / f"at.{turn}").exists, self.process)

    def go(self, *turns: int) -> None:
        for turn in turns:
            (self.launcher.folder / f"go.{turn}").touch()

    def tracer(self, verb: str, *options: str) -> Run:
        return self.launcher.run([str(self.launcher.tracer), verb, self.pid, *options])

    def end(self) -> tuple[str, str]:
        out, err = self.process.communicate(timeout=TIMEOUT)
        assert self.process.returncode == 0, err
        return out, err


@contextmanager
def job(launcher: Launcher, steps: int, *phases: str) -> Iterator[Job]:
    for number in range(len(phases)):
        for mark in ("at", "go"):
            (launcher.folder / f"{mark}.{number}").unlink(missing_ok=True)
    (launcher.folder / "ready").unlink(missing_ok=True)
    started = Job(launcher, steps, phases)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


@pytest.fixture(scope="session")
def words_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("words") / "table_words.so"
    build(library)
    return library


def alone(launcher: Launcher, steps: int) -> str:
    with job(launcher, steps) as plain:
        out, err = plain.end()
    assert err == ""
    return out


def test_every_phase_of_a_step(launcher: Launcher, words_library: Path) -> None:
    """Attached in each phase and detached in each: same results, table, output, hooks, path and names."""
    (launcher.folder / "table_words.so").symlink_to(words_library)
    steps = 4 * len(PHASES) + 4
    expected = alone(launcher, steps)
    assert "table same" in expected
    in_turns = [phase for begin, end in zip(PHASES, reversed(PHASES), strict=True) for phase in (begin, end)]
    with job(launcher, steps, *in_turns) as led:
        for number in range(len(PHASES)):
            led.reach(2 * number)
            began = led.tracer("attach", "-o", f"{number}.trace")
            assert (began.status, began.out) == (0, ""), began.err
            assert f"to end it: tracer detach {led.pid}" in began.err
            led.go(2 * number)
            led.reach(2 * number + 1)
            ended = led.tracer("detach")
            assert (ended.status, ended.out) == (0, ""), ended.err
            assert "complete: nothing dropped" in ended.err
            led.go(2 * number + 1)
        assert led.end() == (expected, "")
    for number in range(len(PHASES)):
        trace = tracer.load(launcher.folder / f"{number}.trace")
        assert trace.certificate["complete"], trace.certificate["verdict"]
        assert trace.certificate["attached"] is True
        assert len(trace.hops) > 100
        assert trace.hops["thread"].n_unique() == 1


def test_what_had_begun_is_null(launcher: Launcher) -> None:
    """A module call, a range and a forward op that began before the recording are not guessed."""
    with job(launcher, 8, "forward", "between") as led:
        led.reach(0)
        assert led.tracer("attach", "-o", "t.trace").status == 0
        led.go(0)
        led.reach(1)
        assert led.tracer("detach").status == 0
        led.go(1)
        led.end()
    trace = tracer.load(launcher.folder / "t.trace")
    hops = trace.hops.with_columns(pl.col("op", "module", "range").cast(pl.String))
    outermost = hops.filter(pl.col("parent").is_null(), pl.col("backward_node").is_null())
    sines, cosines = (outermost.filter(pl.col("op") == f"aten::{name}") for name in ("sin", "cos"))
    assert len(cosines) == len(sines) + 1, "the first step's sin ran before tracer attached"
    assert cosines["module"].to_list()[0] is None
    assert cosines["range"].to_list()[0] is None
    assert cosines["module"].to_list()[1] == "Outer"
    assert cosines["range"].to_list()[1] == "outer range"
    of_sines = hops.filter(
        pl.col("parent").is_null(),
        pl.col("backward_node").cast(pl.String) == "SinBackward0",
        pl.col("op") == "aten::cos",
    )
    assert of_sines["forward_hop"].is_null().to_list() == [True, *[False] * len(sines)]
    assert any("before tracer attached" in clause for clause in trace.certificate["not_visible"])


def test_seconds(launcher: Launcher) -> None:
    expected = alone(launcher, 3000)
    with job(launcher, 3000) as led:
        wait_until((launcher.folder / "ready").exists, led.process)
        done = led.tracer("attach", "--seconds", "0.2", "-o", "t.trace")
        assert led.end() == (expected, "")
    assert (done.status, done.out) == (0, ""), done.err
    assert "complete: nothing dropped" in done.err


def test_steps(launcher: Launcher) -> None:
    expected = alone(launcher, 3000)
    with job(launcher, 3000, "between") as led:
        led.reach(0)
        attach = [str(launcher.tracer), "attach", led.pid, "--steps", "3", "-o", "t.trace"]
        command = launcher.start(*attach)
        assert command.stderr is not None
        assert "until its steps have ended" in command.stderr.readline()
        led.go(0)
        out, err = command.communicate(timeout=TIMEOUT)
        assert (command.returncode, out) == (0, ""), err
        assert led.end() == (expected, "")
    trace = tracer.load(launcher.folder / "t.trace")
    assert trace.certificate["complete"]
    assert trace.hops["step"].drop_nulls().unique().sort().to_list() == [1, 2, 3]
    losses = trace.hops.filter(pl.col("op").cast(pl.String) == "aten::mean", pl.col("parent").is_null())
    assert len(losses) == 3, "whole steps: the one of now is left out"


def test_ctrl_c_ends_it(launcher: Launcher) -> None:
    with job(launcher, 20, "between") as led:
        led.reach(0)
        command = launcher.start(
            str(launcher.tracer), "attach", led.pid, "--seconds", "1000", "-o", "t.trace"
        )
        assert command.stderr is not None
        assert "Ctrl-C ends it earlier" in command.stderr.readline()
        command.send_signal(signal.SIGINT)
        err = command.communicate(timeout=TIMEOUT)[1]
        assert command.returncode == 0
        assert "t.trace" in err
        led.go(0)
        led.end()
    assert "not recorded" in led.tracer("detach").err or "no process" in led.tracer("detach").err


@pytest.mark.parametrize("seconds", [0.3, 0.5, 0.6, 0.7, 0.9, 1.2])
def test_ctrl_c_at_any_moment_leaves_no_recording(launcher: Launcher, seconds: float) -> None:
    code = "import torch, time; print('on', flush=True)\nwhile 1: torch.ones(2).sum(); time.sleep(0.001)"
    # In a session of its own: a signal that gdb passed on to its group would reach no other test.
    with running(sys.executable, "-c", code, start_new_session=True) as process:
        attach = [str(launcher.tracer), "attach", str(process.pid), "--seconds", "1000", "-o", "t.trace"]
        started = launcher.start("setsid", *attach)
        time.sleep(seconds)
        os.killpg(started.pid, signal.SIGINT)  # as a terminal does: gdb gets it too
        started.communicate(timeout=TIMEOUT)
        assert process.poll() is None
        refused(
            launcher.run([str(launcher.tracer), "detach", str(process.pid)]),
            "it is not being recorded",
            advice="begin with: tracer attach",
        )


def test_the_end_of_the_job_ends_it(launcher: Launcher) -> None:
    expected = alone(launcher, 12)
    with job(launcher, 12, "between") as led:
        led.reach(0)
        assert led.tracer("attach", "-o", "t.trace").status == 0
        led.go(0)
        assert led.end()[0].splitlines()[0] == expected.splitlines()[0]
    assert tracer.load(launcher.folder / "t.trace").certificate["complete"]


# ---- refusals -------------------------------------------------------------------------------------


def refused(done: Run, says: str, *, advice: str) -> None:
    """One line on stderr, nothing on stdout, status 2."""
    assert (done.status, done.out) == (2, ""), done.err
    assert done.err.count("\n") == 1
    assert says in done.err
    assert advice in done.err


def attach(launcher: Launcher, pid: int, *options: str, **more: object) -> Run:
    return launcher.run([str(launcher.tracer), "attach", str(pid), *options], **more)


@contextmanager
def running(*command: str, **options: object) -> Iterator[subprocess.Popen[str]]:
    """A process that has written a line."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def test_no_process(launcher: Launcher) -> None:
    refused(attach(launcher, 1 << 22), "no process 4194304 runs here", advice="pgrep -a python")


def test_not_python(launcher: Launcher) -> None:
    with running("sh", "-c", "echo on; read line") as process:
        refused(attach(launcher, process.pid), "is not a Python process", advice="give the number of one")


def test_torch_is_not_loaded(launcher: Launcher) -> None:
    with running(sys.executable, "-c", "print('on', flush=True); input()") as process:
        done = attach(launcher, process.pid)
        refused(done, "has not loaded torch", advice="start the job with: tracer record")


def imitation(folder: Path, source: str, name: str, *options: str) -> str:
    """A small program in C that looks like a Python of some kind: the file, compiled."""
    text = folder / f"{name}.c"
    text.write_text(f"#include <stdio.h>\n#include <fcntl.h>\n#include <sys/mman.h>\n{source}")
    program = folder / name
    subprocess.run(["gcc", *options, "-o", str(program), str(text)], check=True)
    return str(program)


ON = "print('on', flush=True)"
SAYS_ON = 'puts("on"); fflush(stdout); getchar(); return 0;'
MAPS = "mmap(0, 4096, PROT_READ, MAP_PRIVATE, open(given[1], O_RDONLY), 0);"


def torch_of(folder: Path, version: str) -> str:
    """The library of a torch that has nothing but a version."""
    library = folder / "torch" / "lib" / "libtorch_python.so"
    library.parent.mkdir(parents=True)
    library.write_text("x" * 4096)
    (folder / "torch" / "version.py").write_text(f"__version__ = '{version}'\n")
    return str(library)


def test_another_python(launcher: Launcher) -> None:
    source = f"const unsigned long Py_Version = 0x03090200; int main() {{ {SAYS_ON} }}"
    program = imitation(launcher.folder, source, "python", "-rdynamic")
    program = str(Path(program).rename(Path(program).with_name("python3")))
    with running(program) as process:
        done = attach(launcher, process.pid)
        refused(done, "runs Python 3.9, and this tracer is built for 3.", advice="for that Python")


def test_another_torch(launcher: Launcher) -> None:
    library = torch_of(launcher.folder, "2.10.7")
    code = f"import mmap; f = open({library!r}); m = mmap.mmap(f.fileno(), 0, prot=1); {ON}; input()"
    with running(sys.executable, "-c", code) as process:
        done = attach(launcher, process.pid)
        refused(done, "but this is torch 2.10.7", advice="rebuild it")


def test_python_without_symbols(launcher: Launcher) -> None:
    library = torch_of(launcher.folder, tracer._build_info.TORCH_VERSION)  # type: ignore[attr-defined]
    source = f"int main(int count, char** given) {{ {MAPS} {SAYS_ON} }}"
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    with running(imitation(launcher.folder, source, name), library) as process:
        done = attach(launcher, process.pid)
        says = "Python cannot attach" if hasattr(sys, "remote_exec") else "exports no Py_AddPendingCall"
        refused(done, says, advice="start the job with: tracer record")
    assert launcher.traces() == []


@contextmanager
def needs_gdb(launcher: Launcher) -> Iterator[Job]:
    """A job that waits to be attached to, with a gdb."""
    if hasattr(sys, "remote_exec"):
        pytest.skip("this Python needs no gdb")
    with job(launcher, 8, "between") as led:
        led.reach(0)
        yield led


def program(folder: Path, name: str, text: str) -> dict[str, str]:
    """The PATH on which this shell script is found before everything else."""
    (folder / "bin").mkdir()
    (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / "bin" / name).chmod(0o755)
    return {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


def test_gdb_is_missing(launcher: Launcher) -> None:
    with needs_gdb(launcher) as led:
        done = attach(launcher, int(led.pid), extra={"PATH": str(launcher.folder)})
        refused(done, "needs gdb, which is missing: ", advice="apt-get install gdb")


def test_cuda_gdb_is_not_taken(launcher: Launcher) -> None:
    """NVIDIA's debugger, which it starts in the job, crashed one."""
    program(launcher.folder, "cuda-gdb", 'touch taken; exec gdb "$@"')
    with needs_gdb(launcher) as led:
        done = attach(launcher, int(led.pid), extra={"PATH": str(launcher.folder / "bin")})
        refused(done, "gdb, which is missing; cuda-gdb cannot replace it: ", advice="apt-get install gdb")
    assert not (launcher.folder / "taken").exists()


@pytest.mark.parametrize("verb", ["attach", "detach"])
def test_a_gdb_that_cannot_be_executed(launcher: Launcher, verb: str) -> None:
    broken = program(launcher.folder, "gdb", "")
    (launcher.folder / "bin" / "gdb").write_text("")
    options = ["-o", "t.trace"] if verb == "attach" else []
    with needs_gdb(launcher) as led:
        for _ in range(2):
            done = launcher.run([str(launcher.tracer), verb, led.pid, *options], extra=broken)
            refused(done, f"cannot run {launcher.folder}/bin/gdb: Exec format error", advice="install gdb")
            assert launcher.traces() == []


def test_a_gdb_that_hangs(launcher: Launcher) -> None:
    """It is ended, with what it has started, after --timeout or five seconds; a terminal shows the wait."""
    hangs = program(launcher.folder, "gdb", "echo $$ > gdb.pid; sleep 300; true")
    with needs_gdb(launcher) as led:
        ours, theirs = pty.openpty()
        command = [str(launcher.tracer), "attach", led.pid, "--timeout", "4", "-o", "t.trace"]
        begin = time.monotonic()
        environment = {**launcher.environment, **hangs, "TERM": "xterm", "COLUMNS": "300"}
        done = subprocess.run(command, stderr=theirs, cwd=launcher.folder, check=False, env=environment)
        seconds = time.monotonic() - begin
        os.close(theirs)
        said = os.read(ours, 1 << 16).decode()
        os.close(ours)
    assert done.returncode == 2
    assert f"waiting until gdb has attached to process {led.pid}" in said
    assert f"bin/gdb did not attach to process {led.pid} in 5 s, so tracer ended it" in said
    assert "wait longer (--timeout SECONDS)" in said
    assert seconds < 20
    assert launcher.traces() == []
    with pytest.raises(ProcessLookupError):
        os.killpg(int((launcher.folder / "gdb.pid").read_text()), 0)


def test_ctrl_c_ends_a_gdb_that_hangs(launcher: Launcher) -> None:
    hangs = program(launcher.folder, "gdb", "echo $$ > new; mv new gdb.pid; sleep 300; true")
    with needs_gdb(launcher) as led:
        launcher.environment.update(hangs)
        started = launcher.start(str(launcher.tracer), "attach", led.pid, "-o", "t.trace")
        wait_until((launcher.folder / "gdb.pid").exists, started)
        started.send_signal(signal.SIGINT)
        err = started.communicate(timeout=TIMEOUT)[1]
        assert (started.returncode, err) == (2, f"tracer: process {led.pid} was left as it was\n")
    assert launcher.traces() == []
    with pytest.raises(ProcessLookupError):
        os.killpg(int((launcher.folder / "gdb.pid").read_text()), 0)


def test_several_attaches_at_once(launcher: Launcher) -> None:
    """One records; the others wait for its gdb, and say why they do not."""
    code = "import torch, time; print('on', flush=True)\nwhile 1: torch.ones(2).sum(); time.sleep(0.001)"
    with running(sys.executable, "-c", code) as process:
        attach = [str(launcher.tracer), "attach", str(process.pid)]
        started = [launcher.start(*attach, "-o", f"{number}.trace") for number in range(3)]
        ends = [(one.communicate(timeout=TIMEOUT)[1], one.returncode) for one in started]
        assert sorted(status for _, status in ends) == [0, 2, 2], ends
        for said, status in ends:
            expected = ("already being recorded", "already traced by process") if status else ("recording",)
            assert any(text in said for text in expected), said
        assert launcher.run([str(launcher.tracer), "detach", str(process.pid)]).status == 0
    assert len(launcher.traces()) == 1


def test_a_gdb_of_another_attach_is_waited_for(launcher: Launcher) -> None:
    """Before tracer starts its own; it is known by the folder of its commands."""
    code = "import torch, time; print('on', flush=True)\nwhile 1: torch.ones(2).sum(); time.sleep(0.001)"
    traces = "import ctypes, os, sys, time; r = ctypes.CDLL(None).ptrace(16, int(sys.argv[1]), 0, 0); "
    lets_go = "print(r, flush=True); os.waitpid(int(sys.argv[1]), 0x40000000); "
    lets_go += "ctypes.CDLL(None).ptrace(7, int(sys.argv[1]), 0, 0); time.sleep(float(sys.argv[2]))"
    with running(sys.executable, "-c", code) as process:
        other = (sys.executable, "-c", traces + lets_go, str(process.pid))
        with running(*other, "2", "/tmp/tracer-gdb-x/commands"):
            done = attach(launcher, process.pid, "--seconds", "0.1", "-o", "t.trace")
            assert done.status == 0, done.err
        with running(*other, "60"):
            refused(attach(launcher, process.pid), "is already traced by process", advice="end that first")


def test_another_debugger_that_comes_in_between(launcher: Launcher) -> None:
    """It is named, by gdb or as the system knows it: this is not about permission."""
    code = "import torch; print('on', flush=True); input()"
    traces = "import ctypes, sys, time; r = ctypes.CDLL(None).ptrace(16, int(sys.argv[1]), 0, 0); "
    (launcher.folder / "traces.py").write_text(traces + "print('on', r, flush=True); time.sleep(60)\n")
    takes = f"{sys.executable} traces.py $(cat job.pid) >took 2>&1 & while ! test -s took; do sleep 1; done"
    between = program(
        launcher.folder, "gdb", f'test -e took || {{ {takes}; }}\nexec {shutil.which("gdb")} "$@"'
    )
    if hasattr(sys, "remote_exec"):
        pytest.skip("this Python needs no gdb")
    with running(sys.executable, "-c", code) as process:
        (launcher.folder / "job.pid").write_text(str(process.pid))
        done = attach(launcher, process.pid, extra=between)
        tracing = re.search(r"^TracerPid:\s*(\d+)", Path(f"/proc/{process.pid}/status").read_text(), re.M)
        assert tracing is not None
        os.kill(int(tracing[1]), signal.SIGKILL)
        refused(done, f"is already traced by process {tracing[1]} (", advice="end that first")


# What Linux answers a gdb that knows too small a size of the registers of this CPU.
FEWER_REGISTERS = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/ptrace.h>

long ptrace(enum __ptrace_request request, ...) {
  va_list given;
  va_start(given, request);
  long process = va_arg(given, int);
  void *place = va_arg(given, void *), *data = va_arg(given, void *);
  va_end(given);
  if (request == PTRACE_SETREGSET && place == (void*)0x202) {  // NT_X86_XSTATE
    errno = EFAULT;
    return -1;
  }
  long (*ptrace_of_libc)(int, ...) = (long (*)(int, ...))dlsym(RTLD_NEXT, "ptrace");
  return ptrace_of_libc(request, process, place, data);
}
"""


def gdb_of_an_older_cpu(folder: Path) -> dict[str, str]:
    (folder / "registers.c").write_text(FEWER_REGISTERS)
    library = str(folder / "registers.so")
    command = ["gcc", "-shared", "-fPIC", "-o", library, str(folder / "registers.c"), "-ldl"]
    subprocess.run(command, check=True)
    return program(folder, "gdb", f'LD_PRELOAD={library} exec {shutil.which("gdb")} "$@"')


# The main thread waits in a system call, or it runs; an input ends it.
WAITS = "reads.join()"
RUNS = (
    "m = torch.nn.Linear(64, 64); o = torch.optim.SGD(m.parameters(), 0.01)\n"
    "while reads.is_alive(): o.zero_grad(); m(torch.ones(8, 64)).square().mean().backward(); o.step()"
)


@pytest.mark.compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="imitates what Linux does on x86-64")
@pytest.mark.parametrize("work", [WAITS, RUNS], ids=["waits", "runs"])
def test_a_gdb_that_cannot_write_the_registers(launcher: Launcher, work: str) -> None:
    """It says so before it calls anything: a call that breaks off leaves a job with wrong registers."""
    if hasattr(sys, "remote_exec"):
        pytest.skip("this Python needs no gdb")
    older = gdb_of_an_older_cpu(launcher.folder)
    code = f"import threading, torch; reads = threading.Thread(target=input); reads.start(); {ON}\n"
    script = launcher.write(f"{code}{work}\nprint('end')\n")
    with running(sys.executable, str(script)) as process:
        time.sleep(0.5)  # until the main thread waits
        for verb in ("attach", "attach", "detach"):
            done = launcher.run([str(launcher.tracer), verb, str(process.pid)], extra=older)
            refused(done, f"so process {process.pid} was left as it was; ", advice="gdb 14 or newer")
            says = r"tracer: gdb \d+\.\d+ cannot write the registers of this CPU \(.*: Bad address\)"
            assert re.match(says, done.err), done.err
        assert process.communicate("\n", timeout=TIMEOUT)[0] == "end\n"
        assert process.returncode == 0
    assert launcher.traces() == []


@pytest.mark.compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="imitates what Linux does on x86-64")
def test_a_detach_that_cannot_write_the_registers(launcher: Launcher) -> None:
    """The job records on, and finishes the trace itself."""
    older = gdb_of_an_older_cpu(launcher.folder)
    expected = alone(launcher, 8)
    with needs_gdb(launcher) as led:
        assert led.tracer("attach", "-o", "t.trace").status == 0
        done = launcher.run([str(launcher.tracer), "detach", led.pid], extra=older)
        refused(done, "cannot write the registers of this CPU", advice="was left as it was")
        led.go(0)
        out, err = led.end()
        assert (out.splitlines()[0], err) == (expected.splitlines()[0], "")
    assert tracer.load(launcher.folder / "t.trace").certificate["complete"]


def test_the_line_in_which_gdb_fails(launcher: Launcher) -> None:
    says = (
        "echo tracer-attached; echo tracer-written; echo x:12: Error in sourced command file:; "
        "echo It broke.; echo '[Inferior 1 (process 1) detached]'"
    )
    wrong = program(launcher.folder, "gdb", says)
    with needs_gdb(launcher) as led:
        done = attach(launcher, int(led.pid), extra=wrong)
        refused(done, f"gdb could not call a function in process {led.pid}", advice=": It broke.")
    (launcher.folder / "bin" / "gdb").write_text("#!/bin/sh\necho Nothing works.\n")
    with needs_gdb(launcher) as led:
        done = attach(launcher, int(led.pid), extra=wrong)
        said = (
            f"{launcher.folder}/bin/gdb could not attach to process {led.pid} (exit status 0): Nothing works."
        )
        refused(done, said, advice="")


VERSION = 'echo "GNU gdb (GDB) 99.1"; echo "Copyright (C)"; echo "There is NO WARRANTY."'


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("exit 3", "(exit status 3): it said nothing"),
        (f"{VERSION}; kill -SEGV $$", "(ended by SIGSEGV): it said nothing"),
        (f"{VERSION}; echo 'Type \"apropos word\" to search.'; echo No.; exit 1", "(exit status 1): No."),
    ],
)
def test_a_gdb_that_ends_by_itself(launcher: Launcher, does: str, says: str) -> None:
    """How it ended, and not its version, which it was asked for."""
    wrong = program(launcher.folder, "gdb", does)
    with needs_gdb(launcher) as led:
        done = attach(launcher, int(led.pid), extra=wrong)
        refused(done, f"{launcher.folder}/bin/gdb could not attach to process {led.pid} {says}", advice="")


@pytest.mark.skipif(not _C.cuda_is_built(), reason="torch has no CUDA")
def test_why_cuda_is_not_recorded_is_said_by_tracer_alone(launcher: Launcher) -> None:
    """Now for the recording that begins, or at its end; the output of the job is its own."""
    launcher.environment["CUDA_INJECTION64_PATH"] = "/opt/other.so"
    why = "CUDA_INJECTION64_PATH names another tool (/opt/other.so)"
    expected = alone(launcher, 8)
    with job(launcher, 8, "between", "between") as led:
        led.reach(0)
        done = led.tracer("attach", "--cuda", "on", "-o", "t.trace")
        refused(done, f"cannot record CUDA: {why}", advice="--cuda off")
        done = led.tracer("attach", "-o", "t.trace")
        assert (done.status, done.out) == (0, ""), done.err
        assert f"tracer: CUDA will not be recorded: {why}" in done.err
        led.go(0)
        led.reach(1)
        done = led.tracer("detach")
        assert "incomplete: no CUDA: CUDA_INJECTION64_PATH" in " ".join(done.err.split())
        led.go(1)
        assert led.end() == (expected, "")


@pytest.mark.skipif(not _C.cuda_is_built(), reason="torch has no CUDA")
def test_a_process_that_an_attached_job_starts_says_nothing(launcher: Launcher) -> None:
    launcher.environment["CUDA_INJECTION64_PATH"] = "/opt/other.so"
    launcher.write(
        "import subprocess, sys, threading, torch; reads = threading.Thread(target=input); reads.start()\n"
        f"{ON}\nwhile reads.is_alive(): torch.ones(2).sum()\n"
        "child = 'import torch; torch.ones(1); print(1)'\n"
        "subprocess.run([sys.executable, '-c', child], stderr=subprocess.STDOUT, check=True)\n"
    )
    job = {"cwd": launcher.folder, "env": launcher.environment, "stderr": subprocess.STDOUT}
    with running(sys.executable, "script.py", **job) as process:
        assert attach(launcher, process.pid, "-o", "t.trace").status == 0
        assert process.communicate("\n", timeout=TIMEOUT)[0] == "1\n"
    assert len(tracer.load(launcher.folder / "t.trace").processes) == 2


def test_another_debugger(launcher: Launcher) -> None:
    code = "import torch; print('on', flush=True); input()"
    with running(sys.executable, "-c", code) as process:
        script = (
            f"import ctypes, os; c = ctypes.CDLL(None, use_errno=True); r = c.ptrace(16, {process.pid}, 0, 0)"
        )
        with running(sys.executable, "-c", f"{script}; print('on', r, flush=True); input()"):
            done = attach(launcher, process.pid)
            refused(done, "is already traced by process", advice="end that first")


def test_already_recorded(launcher: Launcher) -> None:
    code = "import tracer; r = tracer.start('own.trace'); print('on', flush=True)\nwhile True: sum(range(99))"
    with running(sys.executable, "-c", code, cwd=launcher.folder) as process:
        done = attach(launcher, process.pid, "-o", "t.trace")
        refused(done, "it is already being recorded, to", advice="end that recording first")
        ended = launcher.run([str(launcher.tracer), "detach", str(process.pid)])
        refused(ended, "tracer attach did not begin its recording", advice="end that where it began")
    assert launcher.traces() == ["own.trace"]


def test_not_being_recorded(launcher: Launcher) -> None:
    with running(
        sys.executable, "-c", "import torch; print('on', flush=True)\nwhile 1: sum(range(99))"
    ) as process:
        done = launcher.run([str(launcher.tracer), "detach", str(process.pid)])
        refused(done, "it is not being recorded", advice="begin with: tracer attach")


def test_the_main_thread_waits_in_c(launcher: Launcher) -> None:
    """The request is withdrawn: nothing happens when Python runs again."""
    code = (
        "import torch, sys, threading; done = threading.Event(); print('on', flush=True); "
        "threading.Thread(target=lambda: (input(), done.set())).start(); done.wait(); "
        "[sum(range(99)) for _ in range(999)]; print('tracer' in sys.modules, flush=True); input()"
    )
    with running(sys.executable, "-c", code) as process:
        done = attach(launcher, process.pid, "-o", "t.trace", "--timeout", "1")
        refused(done, "ran no Python on its main thread in 1 s, so nothing was changed", advice="--timeout")
        assert launcher.traces() == []
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout is not None
        assert process.stdout.readline() == "False\n"


def test_a_stopped_process(launcher: Launcher) -> None:
    with running(
        sys.executable, "-c", "import torch; print('on', flush=True)\nwhile 1: sum(range(99))"
    ) as process:
        process.send_signal(signal.SIGSTOP)
        done = attach(launcher, process.pid, "--timeout", "1")
        refused(done, "it is stopped", advice="kill -CONT")


def test_not_permitted(launcher: Launcher) -> None:
    """Somebody else's process, and one that lets nobody trace it."""
    if os.getuid() != 0:
        pytest.skip("needs root, to become somebody else")
    nobody = functools.partial(os.setuid, 65534)
    hidden = "import ctypes; ctypes.CDLL(None).prctl(4, 0); print('on', flush=True); input()"
    cases = (
        (os.getpid, "print('on', flush=True); input()", "belongs to root"),
        (nobody, hidden, "not permitted"),
    )
    for become, code, says in cases:
        with running("python3", "-c", code, preexec_fn=become, cwd="/") as process:
            assert says in checked_as_nobody(process.pid)


def test_root_attaches_to_the_job_of_somebody_else(launcher: Launcher) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root, to become somebody else")
    code = (
        "import torch, os, time; torch.ones(1); os.setgid(65534); os.setuid(65534); print('on', flush=True)\n"
        "while 1: torch.ones(2).sum(); time.sleep(0.001)"
    )
    with tempfile.TemporaryDirectory() as folder, running(sys.executable, "-c", code) as process:
        os.chmod(folder, 0o777)
        done = attach(launcher, process.pid, "--seconds", "0.2", "-o", f"{folder}/t.trace")
        assert done.status == 0, done.err
        assert tracer.load(f"{folder}/t.trace").certificate["complete"]
        os.chmod(folder, 0o700)
        done = attach(launcher, process.pid, "--seconds", "0.2", "-o", f"{folder}/u.trace")
        refused(
            done,
            f"cannot record to {folder}/u.trace",
            advice="give -o a folder that the job's user may write",
        )
        assert "Errno" not in done.err
        assert os.listdir(folder) == ["t.trace"]


def checked_as_nobody(pid: int) -> str:
    """What the checks say to a user who is not root."""
    from tracer.attach.process import Process

    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        try:
            Process(pid).check()
        except tracer.RecordingError as error:
            os.write(theirs, str(error).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    with os.fdopen(ours) as pipe:
        return pipe.read()


def test_two_ways_to_end(launcher: Launcher) -> None:
    done = attach(launcher, os.getpid(), "--seconds", "1", "--steps", "2")
    refused(done, "give --seconds or --steps", advice="not both")


def test_a_folder_and_codes_in_the_name(launcher: Launcher) -> None:
    """Codes are those of the process, not of the command."""
    code = "import torch; print('on', flush=True)\nwhile 1: sum(range(99))"
    environment = {**os.environ, "RANK": "3", "WORLD_SIZE": "8"}
    with running(sys.executable, "-c", code, env=environment) as process:
        for output, name in (("made/", "made/rank3.trace"), ("r%r.%p.trace", f"r3.{process.pid}.trace")):
            done = attach(launcher, process.pid, "--seconds", "0.1", "-o", output)
            assert done.status == 0, done.err
            assert (launcher.folder / name).exists(), done.err
    with running(sys.executable, "-c", code) as process:
        done = attach(launcher, process.pid, "-o", "r%r.trace")
        refused(done, "this process has no rank", advice="use %p or leave %r out")
        done = attach(launcher, process.pid, "-o", "r%r.%p.trace")
        refused(done, "this process has no rank", advice="are not set; leave %r out")


def test_a_long_wait_says_what_for(launcher: Launcher) -> None:
    code = "import torch; print('on', flush=True)\nwhile 1: sum(range(99))"
    with running(sys.executable, "-c", code) as process:
        process.send_signal(signal.SIGSTOP)
        ours, theirs = pty.openpty()
        command = [str(launcher.tracer), "attach", str(process.pid), "--timeout", "4"]
        done = subprocess.run(command, stderr=theirs, cwd=launcher.folder, check=False)
        os.close(theirs)
        said = os.read(ours, 1 << 16).decode()
        os.close(ours)
        assert done.returncode == 2
        assert f"waiting until the main thread of process {process.pid} runs Python" in said
