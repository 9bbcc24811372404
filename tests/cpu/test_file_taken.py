"""What scripts and other processes do to the trace and its descriptor: no file of the user's is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from launching import TIMEOUT, Launcher

import tracer
from tracer.trace.bytes import format as fmt

OLD = "tracer\n\x1a and the rest of an old trace"
SIZE = 3 << 20
# The recorder's descriptor, as the script can find it.
OURS = """
import os, torch
torch.ones(2)
def ours():
    for name in os.listdir('/proc/self/fd'):
        try:
            if os.readlink(f'/proc/self/fd/{name}').endswith('run.trace'):
                return int(name)
        except OSError:
            pass
with open('data.bin', 'wb') as file: file.write(b'D' * (3 << 20))
"""
USE = "for _ in range(20_000): torch.neg(torch.ones(2))\nprint('done')\n"
TAKEN = {
    "a daemon closes what it inherited": "os.closerange(3, 4096)\nstore = open('data.bin', 'r+b')\n",
    "dup2 onto the recorder's number": "os.dup2(os.open('data.bin', os.O_RDWR), ours() or 3)\n",
    "closed, and the number is used again": (
        "number = ours() or 3\nos.closerange(3, 4096)\nwhile os.open('data.bin', os.O_RDWR) < number: pass\n"
    ),
}


@pytest.mark.parametrize("take", TAKEN.values(), ids=TAKEN.keys())
def test_a_descriptor_that_the_script_takes(launcher: Launcher, take: str) -> None:
    launcher.write(OURS + take + USE)
    traced = launcher.record("-o", "run.trace", "script.py")
    assert (traced.status, traced.out, traced.own_err) == (0, "done\n", "")
    assert (launcher.folder / "data.bin").read_bytes() == b"D" * SIZE
    trace = tracer.load(launcher.folder / "run.trace")
    assert trace.hops.filter(trace.hops["op"].cast(str) == "aten::neg")["id"].len() >= 20_000
    assert trace.certificate["verdict"].startswith("complete")


def test_a_descriptor_that_is_taken_when_the_file_is_gone_too(launcher: Launcher) -> None:
    launcher.write(
        OURS + "os.unlink('run.trace')\nos.closerange(3, 4096)\nstore = open('data.bin', 'r+b')\n" + USE
    )
    traced = launcher.record("-o", "run.trace", "script.py")
    assert (traced.status, traced.out, traced.own_err) == (0, "done\n", "")
    assert (launcher.folder / "data.bin").read_bytes() == b"D" * SIZE
    assert "the script closed the trace's descriptor, and tracer cannot open the file again" in traced.said
    assert launcher.traces() == []


@pytest.mark.fresh
def test_no_descriptor_is_free_at_the_end(launcher: Launcher) -> None:
    launcher.write(
        OURS + "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))\nos.closerange(3, 4096)\n"
        "taken = []\n"
        "try:\n    while True: taken.append(os.open('data.bin', os.O_RDONLY))\n"
        "except OSError: pass\n" + USE
    )
    traced = launcher.record("-o", "run.trace", "script.py")
    assert (traced.status, traced.out, traced.own_err) == (0, "done\n", "")
    assert "run.trace cannot be read at its end: Too many open files" in traced.said
    assert not tracer.load(launcher.folder / "run.trace").certificate["complete"]


RUNS_ON = """
import os, sys, time, torch
x = torch.ones(2)
for _ in range(60_000): torch.neg(x)
print('ready', flush=True)
sys.stdin.readline()
for _ in range(60_000): torch.neg(x)
print('finished')
"""
CHANGES = {
    "emptied": ": >run.trace",
    "cut": "truncate -s 1500000 run.trace",
    "overwritten with another trace": "cp other.trace run.trace",
    "its begin written over": "printf 'x%.0s' $(seq 200) 1<>run.trace",
}


@pytest.mark.parametrize("ring", [(), ("--max-size", "16M")], ids=["whole", "ring"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_another_process_changes_the_file(launcher: Launcher, change: str, ring: tuple[str, ...]) -> None:
    launcher.write("import torch\ntorch.ones(2)\n", "other.py")
    launcher.record("-o", "other.trace", "other.py")
    launcher.write(RUNS_ON)
    with Recorded(launcher, *ring) as process:
        subprocess.run(["bash", "-c", change], cwd=launcher.folder, check=True)
        out, err = process.communicate("go\n", timeout=TIMEOUT)
    assert (process.returncode, out) == (0, "finished\n"), err
    assert err.count("tracer: ") == 1
    assert "another process cut or replaced" in err


def chunks_of(data: bytes) -> Iterator[tuple[int, fmt.ChunkHeader]]:
    at = int.from_bytes(data[12:16], "little")
    while at + fmt.CHUNK_HEADER.size <= len(data):
        header = fmt.ChunkHeader(*fmt.CHUNK_HEADER.unpack_from(data, at))
        if header.magic == fmt.CHUNK_MAGIC:
            yield at, header
        at += header.capacity or fmt.HEADER_BYTES  # claimed, and not begun


def longer_name(data: bytes) -> int:
    """Where the length of an op's name is."""
    for at, header in chunks_of(data):
        place, size = at + fmt.CHUNK_HEADER.size, fmt.DEFINITION_HEAD.size
        while header.stream == fmt.DEFINITIONS and place + size <= at + header.capacity and size:
            size, kind, _, _ = fmt.DEFINITION_HEAD.unpack_from(data, place)
            if kind == fmt.HOP:
                return place + fmt.DEFINITION_HEAD.size + 28
            place += size
    raise AssertionError("no hop is defined")


def more_used(data: bytes) -> int:
    """Where the first full chunk says how many bytes it has used."""
    return next(at for at, header in chunks_of(data) if header.stream == fmt.HOPS and header.used) + 8


@pytest.mark.parametrize("place", [longer_name, more_used])
def test_another_process_changes_a_length(launcher: Launcher, place: Callable[[bytes], int]) -> None:
    """The end of the recording reads it: the script lives, and nothing says complete."""
    launcher.write(RUNS_ON)
    with Recorded(launcher) as process:
        with (launcher.folder / "run.trace").open("r+b") as file:
            at = place(file.read())
            file.seek(at)
            file.write((0x7FFFFFF8).to_bytes(4, "little"))
        out, err = process.communicate("go\n", timeout=TIMEOUT)
    assert (process.returncode, out) == (0, "finished\n"), err
    assert "  incomplete: 1 chunk damaged\n" in err
    certificate = tracer.load(launcher.folder / "run.trace").certificate
    assert not certificate["complete"]
    assert certificate["hops"] >= 120_000


class Recorded:
    """`tracer record` of script.py, once it has said that it is ready, with a pipe to its stdin."""

    def __init__(self, launcher: Launcher, *options: str) -> None:
        command = [str(launcher.tracer), "record", "-o", "run.trace", *options, "script.py"]
        self.process = launcher.start(*command, stdin=subprocess.PIPE)

    def __enter__(self) -> subprocess.Popen[str]:
        assert self.process.stdout.readline() == "ready\n", self.process.communicate()[1]
        return self.process

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


# Memory of a file of the script's own, which is cut while it is mapped.
OWN_FAULT = """
import mmap, os
with open('own.bin', 'w+b') as file:
    file.write(b'x' * 8192)
    file.flush()
    own = mmap.mmap(file.fileno(), 8192)
    os.ftruncate(file.fileno(), 0)
"""
HANDLERS = {
    "none": "import torch\ntorch.ones(2)\n",
    "faulthandler before": "import faulthandler; faulthandler.enable()\nimport torch\ntorch.ones(2)\n",
    "faulthandler after": "import torch\ntorch.ones(2)\nimport faulthandler; faulthandler.enable()\n",
    "faulthandler between two chunks": (
        "import torch\ntorch.ones(2)\nimport faulthandler; faulthandler.enable()\n"
        "import threading\nx = torch.ones(2)\nthread = threading.Thread(target=torch.neg, args=(x,))\n"
        "thread.start(); thread.join()\n"
    ),
    "ignored": "import signal; signal.signal(signal.SIGBUS, signal.SIG_IGN)\nimport torch\ntorch.ones(2)\n",
}


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS.keys())
def test_a_bus_error_of_the_scripts_own(launcher: Launcher, handler: str) -> None:
    launcher.write(handler + OWN_FAULT + "print('now', flush=True)\nown[0]\n")
    assert launcher.same("script.py").status == -signal.SIGBUS


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_bus_error_that_is_sent_to_a_handler_of_the_scripts(launcher: Launcher, when: str) -> None:
    install = "import signal; signal.signal(signal.SIGBUS, lambda *_: print('handled', flush=True))\n"
    load = "import torch\ntorch.ones(2)\n"
    launcher.write(
        (install + load if when == "before" else load + install)
        + "import os, threading\nthread = threading.Thread(target=torch.ones, args=(2,))\n"
        "thread.start(); thread.join()\n"
        "os.kill(os.getpid(), signal.SIGBUS)\nprint(signal.getsignal(signal.SIGBUS).__name__)\n"
    )
    assert launcher.same("script.py").out == "handled\n<lambda>\n"


def test_a_bus_error_in_a_worker_of_a_data_loader(launcher: Launcher) -> None:
    launcher.write(
        "import torch\nfrom torch.utils.data import DataLoader, Dataset\n"
        "class Data(Dataset):\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, index):\n"
        "        torch.ones(2)\n"
        + "".join(f"        {line}\n" for line in OWN_FAULT.strip().splitlines())
        + "        return own[0]\n"
        "try:\n    list(DataLoader(Data(), num_workers=1))\n"
        "except RuntimeError as error:\n    print(str(error).split('(')[0])\n"
    )
    plain, traced = launcher.both("script.py")
    assert "insufficient shared memory" in plain.err
    assert traced.err.startswith(plain.err)
    assert (traced.status, traced.out) == (plain.status, plain.out)


def test_one_output_has_one_recorder(launcher: Launcher) -> None:
    launcher.write(RUNS_ON)
    with Recorded(launcher) as process:
        launcher.write("import torch\ntorch.neg(torch.ones(2))\nprint('second')\n", "second.py")
        second = launcher.record("--force", "-o", "run.trace", "second.py")
        assert (second.status, second.out) == (0, "second\n")
        assert "another recording is writing run.trace; this one goes to run.0001.trace" in second.said
        out, err = process.communicate("go\n", timeout=TIMEOUT)
    assert (process.returncode, out) == (0, "finished\n")
    assert "complete: nothing dropped" in err
    assert launcher.traces() == ["run.0001.trace", "run.trace"]
    assert tracer.load(launcher.folder / "run.trace").hops.height > 120_000


def test_two_recorders_that_begin_at_once(launcher: Launcher) -> None:
    launcher.write(OLD, "run.trace")
    launcher.write("import torch\nfor _ in range(30_000): torch.neg(torch.ones(2))\nprint('ran')\n")
    command = [str(launcher.tracer), "record", "--force", "-o", "run.trace", "script.py"]
    both = [launcher.start(*command) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, out) == (0, "ran\n"), err
        assert "Bus error" not in err
    for name in launcher.traces():
        assert tracer.load(launcher.folder / name).certificate["verdict"].startswith("complete"), name


def test_force_follows_a_link(launcher: Launcher) -> None:
    (launcher.folder / "real").mkdir()
    launcher.write(OLD, "real/old.trace")
    (launcher.folder / "run.trace").symlink_to("real/old.trace")
    launcher.write("import torch\ntorch.ones(2)\n")
    assert launcher.record("--force", "-o", "run.trace", "script.py").status == 0
    assert os.readlink(launcher.folder / "run.trace") == "real/old.trace"
    assert tracer.load(launcher.folder / "real/old.trace").hops.height > 0


def test_force_keeps_who_may_read_the_file(launcher: Launcher) -> None:
    launcher.write("import torch\ntorch.ones(2)\n")
    old = launcher.folder / "old.trace"
    old.write_text(OLD)
    old.chmod(0o600)
    assert launcher.record("--force", "-o", "old.trace", "script.py").status == 0
    assert old.stat().st_mode & 0o777 == 0o600
    assert old.read_bytes().startswith(fmt.MAGIC)


def test_force_keeps_the_old_file_if_nothing_is_recorded(launcher: Launcher) -> None:
    launcher.write(OLD, "run.trace")
    launcher.write("print('no torch')\n")
    launcher.record("--force", "-o", "run.trace", "script.py")
    assert (launcher.folder / "run.trace").read_text() == OLD
    assert sorted(os.listdir(launcher.folder)) == ["run.trace", "script.py"]


@pytest.mark.fresh
@pytest.mark.parametrize("wait", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0])
def test_a_kill_while_it_begins_leaves_the_old_file_or_the_new_one(launcher: Launcher, wait: float) -> None:
    launcher.write(OLD, "run.trace")
    launcher.write("print('ready', flush=True)\nimport torch\nwhile True: torch.ones(2)\n")
    process = launcher.start(str(launcher.tracer), "record", "--force", "-o", "run.trace", "script.py")
    assert process.stdout.readline() == "ready\n"
    time.sleep(wait)
    process.kill()
    process.communicate(timeout=TIMEOUT)
    assert sorted(os.listdir(launcher.folder)) == ["run.trace", "script.py"]
    data = (launcher.folder / "run.trace").read_bytes()
    assert data == OLD.encode() or data.startswith(fmt.MAGIC)


FORKS = """
import os, sys, threading, time, torch, tracer
for turn in range(4):
    recording = tracer.record('forks.trace', force=True)
    if BEGIN:
        thread = threading.Thread(target=recording.start)
    else:
        recording.start()
        for _ in range(50): torch.neg(torch.ones(2))
        thread = threading.Thread(target=recording.stop)
    thread.start()
    children = []
    while thread.is_alive():
        child = os.fork()
        if child == 0: sys.exit(0)
        children.append(child)
        time.sleep(0.01)
    thread.join()
    if BEGIN: recording.stop()
    for child in children: assert os.waitpid(child, 0)[1] == 0
print('all ended')
"""


@pytest.mark.fresh
@pytest.mark.parametrize("begin", [False, True], ids=["stop", "start"])
def test_children_that_are_forked_while_a_recording_begins_or_ends(launcher: Launcher, begin: bool) -> None:
    launcher.write(FORKS.replace("BEGIN", str(begin)))
    process = launcher.start(sys.executable, "script.py")
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (0, "all ended\n"), err


def test_children_that_are_forked_while_the_dispatchers_lock_is_held(launcher: Launcher) -> None:
    """The hooks of Python's fork do not wait here: only the extension's.

    The thread sleeps between: one that takes the lock at once again keeps all others out, children or not.
    """
    launcher.write(
        "import os, sys, threading, time, torch\n"
        "from tracer import _C\n"
        "_C.create('forks.trace', 1, True, True)\n"
        "ended = threading.Event()\n"
        "def work():\n"
        "    while not ended.is_set():\n        _C.arm()\n        _C.restore()\n        time.sleep(0.001)\n"
        "thread = threading.Thread(target=work)\nthread.start()\n"
        "for turn in range(20):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        torch.library.Library('forked', 'DEF').define('op(Tensor x) -> Tensor')\n"
        "        os._exit(0)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "ended.set()\nthread.join()\n_C.close()\nprint('all ended')\n"
    )
    process = launcher.start(sys.executable, "script.py")
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (0, "all ended\n"), err


BUS = """
import os, signal, torch
{install}
x = torch.ones(2)
for _ in range(20_000): torch.neg(x)
{then}
"""
CUT = "os.truncate('run.trace', 0)\nfor _ in range(1000): torch.neg(x)\nprint('finished')"


@pytest.mark.parametrize(
    "install",
    ["import faulthandler; faulthandler.enable()", "signal.signal(signal.SIGBUS, lambda *_: print('?'))"],
    ids=["faulthandler", "of Python"],
)
def test_the_file_is_cut_and_a_handler_was_installed_meanwhile(launcher: Launcher, install: str) -> None:
    launcher.write(BUS.format(install=install, then=CUT))
    run = launcher.record("-o", "run.trace", "script.py")
    assert (run.status, run.out) == (0, "finished\n"), run.err
    assert "another process cut or replaced" in run.err


def test_a_bus_error_that_the_script_waits_for(launcher: Launcher) -> None:
    """It is sent to the process: no thread of tracer's may take it, and there is none of NumPy's."""
    launcher.write(
        BUS.format(
            install="signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGBUS])",
            then="os.kill(os.getpid(), signal.SIGBUS)\nprint(signal.sigwait([signal.SIGBUS]))",
        )
    )
    # The fork server's child has no other thread yet.
    alone = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"} if launcher.fresh else {}
    assert launcher.same("script.py", extra=alone).out == f"{int(signal.SIGBUS)}\n"


PROBE = """
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
static sigjmp_buf back;
static void jump(int signal) { siglongjmp(back, signal); }
extern "C" void install(void) {
  struct sigaction action = {0};
  action.sa_handler = jump;
  sigaction(SIGBUS, &action, 0);
}
extern "C" int can_write(int fd) {
  char* page = (char*)mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (sigsetjmp(back, 1)) return 0;
  page[0] = 1;
  return 1;
}
"""


def test_a_handler_that_jumps_out_of_bus_errors(launcher: Launcher, tmp_path: Path) -> None:
    (tmp_path / "probe.c").write_text(PROBE)
    command = ["g++", "-shared", "-fPIC", "-o", str(tmp_path / "probe.so"), str(tmp_path / "probe.c")]
    subprocess.run(command, check=True)
    probe = f"import ctypes; probe = ctypes.CDLL({str(tmp_path / 'probe.so')!r}); probe.install()"
    then = "file = open('empty', 'w+b')\nfor _ in range(3): print(probe.can_write(file.fileno()))"
    launcher.write(BUS.format(install=probe, then=then))
    assert launcher.same("script.py").out == "0\n0\n0\n"


@pytest.mark.fresh
@pytest.mark.parametrize("stop", ["", "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, -1))"])
def test_a_largest_file_that_kills(launcher: Launcher, stop: str) -> None:
    launcher.write(
        "import resource, signal, torch\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
        "x = torch.ones(2)\nfor _ in range(30000): torch.neg(x)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5 << 20, -1))\n"
        f"for _ in range(100000): torch.neg(x)\n{stop}\nprint('finished')\n"
    )
    traced = launcher.same("script.py")
    assert "File too large" in traced.err


def test_a_file_of_the_scripts_that_has_the_number_of_stderr(launcher: Launcher) -> None:
    """As of a daemon that closes all descriptors and opens its own."""
    launcher.write(
        "import os, torch\nos.closerange(0, 1024)\n"
        "for name in 'abcd': os.write(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), b'mine')\n"
        "torch.neg(torch.ones(2))\n"
    )
    assert launcher.record("--max-size", "4M", "--then-stop", "script.py").status == 0
    assert [(launcher.folder / name).read_bytes() for name in "abcd"] == [b"mine"] * 4


def test_children_that_are_forked_while_threads_run_their_first_op(launcher: Launcher) -> None:
    """Which copies torch's list of callbacks, with a lock."""
    launcher.write(
        "import os, threading, time, torch\nx = torch.ones(2)\nended = threading.Event()\n"
        "def work():\n    while not ended.is_set():\n        one()\n"
        "def one():\n"
        "    thread = threading.Thread(target=torch.neg, args=(x,))\n    thread.start()\n    thread.join()\n"
        "threads = [threading.Thread(target=work) for _ in range(6)]\n"
        "for thread in threads: thread.start()\n"
        "for turn in range(300):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n        one()\n        os._exit(0)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "ended.set()\nfor thread in threads: thread.join()\nprint('all ended')\n"
    )
    process = launcher.start(str(launcher.tracer), "record", "--max-size", "16M", "script.py")
    out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out) == (0, "all ended\n"), err
