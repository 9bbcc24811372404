"""`tracer attach` and `tracer detach` where gdb is missing, fails, hangs or cannot write: the job goes on."""

from __future__ import annotations

import os
import platform
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attaching import (
    ON,
    SPINS,
    Job,
    alone,
    attach,
    job,
    program,
    refused,
    running,
    running_job,
    wait_until,
)
from launching import TIMEOUT, Launcher

import tracer
from tracer.attach import gdb

pytestmark = pytest.mark.gdb


@contextmanager
def needs_gdb(launcher: Launcher) -> Iterator[Job]:
    """A job that waits to be attached to, with a gdb."""
    if hasattr(sys, "remote_exec"):
        pytest.skip("this Python needs no gdb")
    with job(launcher, 8, "between") as led:
        led.reach(0)
        yield led


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The number of such a job, for all tests whose gdb does nothing. It ends as if they had not been."""
    expected = alone(8)
    with needs_gdb(Launcher(tmp_path_factory.mktemp("untouched"))) as led:
        yield int(led.pid)
        led.go(0)
        assert led.end() == (expected, "")


def test_gdb_is_missing(launcher: Launcher, untouched: int) -> None:
    done = attach(launcher, untouched, extra={"PATH": str(launcher.folder)})
    refused(done, "needs gdb, which is missing: ", advice="apt-get install gdb")


def test_cuda_gdb_is_not_taken(launcher: Launcher, untouched: int) -> None:
    """NVIDIA's debugger, which it starts in the job, crashed one."""
    program(launcher.folder, "cuda-gdb", 'touch taken; exec gdb "$@"')
    done = attach(launcher, untouched, extra={"PATH": str(launcher.folder / "bin")})
    refused(done, "gdb, which is missing; cuda-gdb cannot replace it: ", advice="apt-get install gdb")
    assert not (launcher.folder / "taken").exists()


@pytest.mark.parametrize("verb", ["attach", "detach"])
def test_a_gdb_that_cannot_be_executed(launcher: Launcher, untouched: int, verb: str) -> None:
    broken = program(launcher.folder, "gdb", "")
    (launcher.folder / "bin" / "gdb").write_text("")
    options = ["-o", "t.trace"] if verb == "attach" else []
    for _ in range(2):
        done = launcher.run([str(launcher.tracer), verb, str(untouched), *options], extra=broken)
        refused(done, f"cannot run {launcher.folder}/bin/gdb: Exec format error", advice="install gdb")
        assert launcher.traces() == []


def test_a_gdb_that_hangs(launcher: Launcher, untouched: int) -> None:
    """It is ended, with what it has started, after --timeout or five seconds; a terminal shows the wait."""
    hangs = program(launcher.folder, "gdb", "echo $$ > gdb.pid; sleep 300; true")
    ours, theirs = pty.openpty()
    command = [str(launcher.tracer), "attach", str(untouched), "--timeout", "4", "-o", "t.trace"]
    begin = time.monotonic()
    environment = {**launcher.environment, **hangs, "TERM": "xterm", "COLUMNS": "300"}
    done = subprocess.run(command, stderr=theirs, cwd=launcher.folder, check=False, env=environment)
    seconds = time.monotonic() - begin
    os.close(theirs)
    said = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.returncode == 2
    assert f"waiting until gdb has attached to process {untouched}" in said
    assert f"bin/gdb did not attach to process {untouched} in 5 s, so tracer ended it" in said
    assert "wait longer (--timeout SECONDS)" in said
    assert seconds < 20
    assert launcher.traces() == []
    with pytest.raises(ProcessLookupError):
        os.killpg(int((launcher.folder / "gdb.pid").read_text()), 0)


def test_ctrl_c_ends_a_gdb_that_hangs(launcher: Launcher, untouched: int) -> None:
    hangs = program(launcher.folder, "gdb", "echo $$ > new; mv new gdb.pid; sleep 300; true")
    launcher.environment.update(hangs)
    started = launcher.start(str(launcher.tracer), "attach", str(untouched), "-o", "t.trace")
    wait_until((launcher.folder / "gdb.pid").exists, started)
    started.send_signal(signal.SIGINT)
    err = started.communicate(timeout=TIMEOUT)[1]
    assert (started.returncode, err) == (2, f"tracer: process {untouched} was left as it was\n")
    assert launcher.traces() == []
    with pytest.raises(ProcessLookupError):
        os.killpg(int((launcher.folder / "gdb.pid").read_text()), 0)


def test_several_attaches_at_once(launcher: Launcher) -> None:
    """One records; the others wait for its gdb, and say why they do not."""
    with running_job("-c", SPINS) as process:
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
    traces = "import ctypes, os, sys, time; r = ctypes.CDLL(None).ptrace(16, int(sys.argv[1]), 0, 0); "
    lets_go = "print(r, flush=True); os.waitpid(int(sys.argv[1]), 0x40000000); "
    lets_go += "ctypes.CDLL(None).ptrace(7, int(sys.argv[1]), 0, 0); time.sleep(float(sys.argv[2]))"
    with running_job("-c", SPINS) as process:
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
    with running_job("-c", code) as process:
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
    with running_job(str(script)) as process:
        time.sleep(0.5)  # until the main thread waits
        for verb in ("attach", "attach", "detach"):
            done = launcher.run([str(launcher.tracer), verb, str(process.pid)], extra=older)
            says = r"tracer: gdb (\d+)\.\d+ cannot write the registers of this CPU \(.*: Bad address\)"
            found = re.match(says, done.err)
            assert found is not None, done.err
            advice = "gdb 14 or newer" if int(found[1]) < 14 else "tracer record"
            refused(done, f"so process {process.pid} was left as it was; ", advice=advice)
        assert process.communicate("\n", timeout=TIMEOUT)[0] == "end\n"
        assert process.returncode == 0
    assert launcher.traces() == []


@pytest.mark.compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="imitates what Linux does on x86-64")
def test_a_detach_that_cannot_write_the_registers(launcher: Launcher) -> None:
    """The job records on, and finishes the trace itself."""
    older = gdb_of_an_older_cpu(launcher.folder)
    expected = alone(8)
    with needs_gdb(launcher) as led:
        assert led.tracer("attach", "-o", "t.trace").status == 0
        done = launcher.run([str(launcher.tracer), "detach", led.pid], extra=older)
        refused(done, "cannot write the registers of this CPU", advice="was left as it was")
        led.go(0)
        out, err = led.end()
        assert (out.splitlines()[0], err) == (expected.splitlines()[0], "")
    assert tracer.load(launcher.folder / "t.trace").certificate["complete"]


# Half of the registers that only AVX-512 has, and none of the others, as memcpy() of glibc uses them.
HOLDS = """\
#include <string.h>
#define LOAD(register, at) "vmovdqu64 " #at "(%1), %%ymm" #register "\\n"
#define STORE(register, at) "vmovdqu64 %%ymm" #register ", " #at "(%2)\\n"
#define EACH(DO) DO(16, 0) DO(17, 32) DO(18, 64) DO(19, 96) DO(20, 128) DO(21, 160) DO(22, 192) DO(23, 224)

int hold(unsigned long turns) {
  unsigned char in[256], out[256];
  for (int i = 0; i < 256; ++i) in[i] = i | 1;
  __asm__ volatile("vzeroupper\\n" EACH(LOAD) "1: dec %0\\n jnz 1b\\n" EACH(STORE)
                   : "+r"(turns) : "r"(in), "r"(out)
                   : "memory", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23");
  return memcmp(in, out, 256) != 0;
}
"""


@pytest.mark.compiler
@pytest.mark.skipif("avx512vl" not in Path("/proc/cpuinfo").read_text(), reason="a CPU without AVX-512")
def test_no_register_changes(launcher: Launcher) -> None:
    """gdb 13 takes them to be where Intel's CPUs save them, and clears others on those of AMD."""
    folder = launcher.folder
    (folder / "hold.c").write_text(HOLDS)
    command = ["gcc", "-O1", "-mavx512vl", "-shared", "-fPIC", "-o", "hold.so", "hold.c"]
    subprocess.run(command, check=True, cwd=folder)
    script = launcher.write(
        "import ctypes, threading, torch; reads = threading.Thread(target=input); reads.start()\n"
        f"hold = ctypes.PyDLL('{folder}/hold.so').hold; {ON}; wrong = 0\n"
        "while reads.is_alive(): wrong += hold(200_000_000)\nprint(wrong)\n"
    )
    with running_job(str(script)) as process:
        for _ in range(2):
            done = attach(launcher, process.pid, "--seconds", "0.1", "-o", "t.trace", "--force")
            assert done.status == 0, done.err
        assert process.communicate("\n", timeout=TIMEOUT)[0] == "0\n"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only there registers are kept by gdb's Python")
def test_a_gdb_without_python(launcher: Launcher) -> None:
    """The versions before 14 may change registers then."""
    (launcher.folder / "empty").touch()
    without = program(
        launcher.folder,
        "gdb",
        f"for one; do shift; case $one in *keep_registers.py) one={launcher.folder}/empty;; esac; "
        f'set -- "$@" "$one"; done; exec {shutil.which("gdb")} "$@"',
    )
    expected = alone(8)
    with needs_gdb(launcher) as led:
        done = attach(launcher, int(led.pid), "-o", "t.trace", extra=without)
        if done.status:
            assert re.match(r"tracer: gdb (\d|1[0-3])\.\d+ cannot write the registers of this CPU", done.err)
            refused(done, "(it has no Python, so it may change others), so", advice="install gdb 14 or newer")
        led.go(0)
        assert led.end()[0].splitlines()[0] == expected.splitlines()[0]
    assert bool(done.status) == (launcher.traces() == [])


def test_a_folder_for_temporary_files_with_any_name(launcher: Launcher) -> None:
    """gdb's commands take the names of files apart in several ways."""
    folders = [launcher.folder / name for name in ("a b", 'it\'s $x; #"1"')]
    with needs_gdb(launcher) as led:
        for folder in folders:
            folder.mkdir()
            named = {"TMPDIR": str(folder)}
            done = attach(launcher, int(led.pid), "-o", "t.trace", "--force", extra=named)
            assert done.status == 0, done.err
            done = launcher.run([str(launcher.tracer), "detach", led.pid], extra=named)
            assert done.status == 0, done.err
            assert list(folder.iterdir()) == []


def test_the_line_in_which_gdb_fails(launcher: Launcher, untouched: int) -> None:
    says = (
        "echo tracer-attached; echo tracer-written; echo x:12: Error in sourced command file:; "
        "echo It broke.; echo '[Inferior 1 (process 1) detached]'"
    )
    wrong = program(launcher.folder, "gdb", says)
    done = attach(launcher, untouched, extra=wrong)
    refused(done, f"gdb could not call a function in process {untouched}", advice=": It broke.")
    (launcher.folder / "bin" / "gdb").write_text("#!/bin/sh\necho Nothing works.\n")
    done = attach(launcher, untouched, extra=wrong)
    said = (
        f"{launcher.folder}/bin/gdb could not attach to process {untouched} (exit status 0): Nothing works."
    )
    refused(done, said, advice="")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("", "tracing process {pid} is not permitted: "),
        (
            "echo warning: process $p is already traced by process 4194304; ",
            "which has ended meanwhile; try again",
        ),
    ],
)
def test_a_refusal_by_the_gdb_of_ubuntu(launcher: Launcher, untouched: int, more: str, says: str) -> None:
    """Version 15.1 of Ubuntu 24.04 says this; the system had said: Operation not permitted."""
    refuses = (
        "echo 'Could not attach to process.  If your uid matches the uid of the target'; "
        f"echo x:8: Error in sourced command file:; {more}"
        "echo ptrace: Inappropriate ioctl for device.; exit 1"
    )
    wrong = program(launcher.folder, "gdb", refuses)
    done = attach(launcher, untouched, extra=wrong)
    refused(done, says.format(pid=untouched), advice=str(untouched))


VERSION = 'echo "GNU gdb (GDB) 99.1"; echo "Copyright (C)"; echo "There is NO WARRANTY."'


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("exit 3", "(exit status 3): it said nothing"),
        (f"{VERSION}; kill -SEGV $$", "(ended by SIGSEGV): it said nothing"),
        (f"{VERSION}; echo 'Type \"apropos word\" to search.'; echo No.; exit 1", "(exit status 1): No."),
    ],
)
def test_a_gdb_that_ends_by_itself(launcher: Launcher, untouched: int, does: str, says: str) -> None:
    """How it ended, and not its version, which it was asked for."""
    wrong = program(launcher.folder, "gdb", does)
    done = attach(launcher, untouched, extra=wrong)
    refused(done, f"{launcher.folder}/bin/gdb could not attach to process {untouched} {says}", advice="")


def test_a_signal_while_the_folder_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    remove, calls = shutil.rmtree, []

    def interrupted(folder: Path, **options: bool) -> None:
        calls.append(folder)
        if len(calls) == 1:
            raise KeyboardInterrupt
        remove(folder, **options)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt), gdb._folder() as folder:
        (folder / "commands").touch()
    assert calls == [folder, folder]
    assert not folder.exists()
