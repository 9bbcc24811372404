"""Scripts that make it hard: the recording never changes how they end, and the trace can be read."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from launching import TIMEOUT, Launcher

import tracer
from tracer.analysis.own_cost import own_cost


def hops(launcher: Launcher, name: str = "both.trace") -> pl.DataFrame:
    return tracer.load(launcher.folder / name).hops.with_columns(pl.col("op", "key").cast(pl.String))


def test_the_trace_is_deleted_while_recording(launcher: Launcher) -> None:
    launcher.write(
        "import os, torch\ntorch.ones(2)\nos.path.exists('both.trace') and os.unlink('both.trace')\n"
    )
    traced = launcher.same("script.py")
    assert re.fullmatch(r"tracer: .*both\.trace.*\n", traced.err), traced.err
    assert launcher.traces() == []


@pytest.mark.fresh
@pytest.mark.parametrize("gap", [0.0, 0.01, 0.05, 0.2])
def test_interrupted_twice(launcher: Launcher, gap: float) -> None:
    launcher.write("import torch\nprint('ready', flush=True)\nwhile True: torch.ones(4).add(1)\n")
    process = launcher.start(str(launcher.tracer), "record", "-o", "run.trace", "script.py")
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    time.sleep(gap)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode in (-signal.SIGINT, 1)
    # The folder that the tests run in may be called tracer too, with torch's own frames below it.
    assert f'File "{Path(tracer.__file__).parent}/' not in err, "no frame of tracer in a traceback"
    assert tracer.load(launcher.folder / "run.trace").certificate["closed_in_order"] == {0: True}


@pytest.mark.fresh
@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", "<&- >&- 2>&-", ">/dev/full 2>&1"])
def test_standard_streams_that_fail(launcher: Launcher, redirection: str) -> None:
    launcher.write("import torch\ntorch.ones(2)\n")
    command = f'exec "$0" record -o run.trace script.py {redirection}'
    process = launcher.start("bash", "-c", command, str(launcher.tracer))
    process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0
    assert len(hops(launcher, "run.trace")) > 0


@pytest.mark.fresh
@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("os._exit(7)", 7),
        ("os.kill(os.getpid(), 15)", -15),
        ("os.abort()", -6),
        ("os.execl(sys.executable, sys.executable, '-c', 'raise SystemExit(3)')", 3),
    ],
)
def test_endings_without_atexit(launcher: Launcher, ending: str, status: int) -> None:
    launcher.write(f"import os, sys, torch\nprint(torch.ones(2), flush=True)\n{ending}\n")
    assert launcher.same("script.py").status == status
    assert "aten::ones" in set(hops(launcher)["op"])


@pytest.mark.fresh
def test_exec_into_another_script_goes_on_in_the_same_file(launcher: Launcher) -> None:
    launcher.write("import torch\nprint(torch.neg(torch.ones(2)))\n", "next.py")
    launcher.write(
        "import os, sys, torch\ntorch.ones(2)\nos.execl(sys.executable, sys.executable, 'next.py')\n"
    )
    said = launcher.says("tensor([-1., -1.])\n", "script.py").said
    assert "aten::neg" in set(hops(launcher)["op"])
    assert said.startswith("tracer: both.trace\n")
    assert "incomplete: 1 program became another one (exec) without a stop" in said


EXECUTES_ITSELF = """\
import os, sys, torch
level = int(sys.argv[1])
if os.fork() == 0:
    torch.ones(2).cos()
    raise SystemExit
os.wait()
torch.ones(2).neg()
print("level", level, flush=True)
if level:
    os.execv(sys.executable, [sys.executable, __file__, str(level - 1)])
"""


@pytest.mark.fresh
def test_a_script_that_executes_itself(launcher: Launcher) -> None:
    launcher.write(EXECUTES_ITSELF)
    said = launcher.says("level 2\nlevel 1\nlevel 0\n", "script.py", "2").said
    trace = tracer.load(launcher.folder / "both.trace")
    ops = trace.hops.filter(trace.hops["kind"] == "call")["op"].to_list()
    assert (ops.count("aten::neg"), ops.count("aten::cos")) == (3, 3)
    certificate = trace.certificate
    assert certificate["why"][0] == "2 programs became another one (exec) without a stop"
    assert (certificate["complete"], certificate["not_stopped"], certificate["outlived"]) == (False, [], 0)
    assert certificate["verdict"].startswith("incomplete: ")
    assert said.count("tracer: both.trace\n") == 1
    assert f"{certificate['hops']} hops, 6 threads, 6 processes" in " ".join(said.split())
    assert "incomplete: 2 programs became another one (exec) without a stop" in said
    assert os.path.getsize(launcher.folder / "both.trace") < 1 << 20, "it is trimmed"


@pytest.mark.fresh
def test_a_child_that_executes_another_script(launcher: Launcher) -> None:
    launcher.write("import torch\ntorch.ones(2).neg()\n", "next.py")
    launcher.write(
        "import os, sys, torch\n"
        "if os.fork() == 0:\n"
        "    torch.ones(2)\n    os.execl(sys.executable, sys.executable, 'next.py')\n"
        "os.wait()\ntorch.ones(2)\n"
    )
    said = launcher.says("", "script.py").said
    certificate = tracer.load(launcher.folder / "both.trace").certificate
    assert certificate["why"][0] == "1 program became another one (exec) without a stop"
    assert (certificate["not_stopped"], certificate["processes"]) == ([], 3)
    assert "incomplete: 1 program became another one (exec) without a stop" in said


@pytest.mark.fresh
def test_a_recording_of_the_scripts_own_goes_on_after_exec_and_says_nothing(launcher: Launcher) -> None:
    launcher.write("import torch\ntorch.ones(2).neg()\n", "next.py")
    launcher.write(
        "import os, sys, torch, tracer\n"
        "tracer.start('own.trace')\ntorch.ones(2)\n"
        "os.execl(sys.executable, sys.executable, 'next.py')\n"
    )
    run = launcher.python("script.py")
    assert (run.status, run.err) == (0, "")
    trace = tracer.load(launcher.folder / "own.trace")
    assert "aten::neg" in set(trace.hops["op"])
    assert trace.certificate["verdict"].startswith("incomplete: ")


@pytest.mark.fresh
def test_ops_while_the_interpreter_ends(launcher: Launcher) -> None:
    launcher.write(
        "import atexit, torch\n"
        "class Late:\n    def __init__(self, name): self.name, self.ones = name, torch.ones\n"
        "    def __del__(self): print(self.name, self.ones(2).add(1).sum().item(), flush=True)\n"
        "torch.kept = Late('in a module')\n"
        "kept = Late('global')\n"
        "cycle = [Late('cycle')]; cycle.append(cycle)\n"
        "atexit.register(lambda: print('atexit', torch.ones(2).sum().item()))\n"
    )
    launcher.same("script.py", fresh=True)


@pytest.mark.fresh
def test_daemon_threads_at_exit(launcher: Launcher) -> None:
    launcher.write(
        "import threading, time, torch\n"
        "torch.set_num_threads(1)\n"
        "def work():\n    x = torch.ones(2)\n    while True: torch.neg(x); time.sleep(0)\n"
        "for _ in range(2): threading.Thread(target=work, daemon=True).start()\n"
        "time.sleep(0.3)\n"
        "print('end', flush=True)\n"
    )
    traced = launcher.record("-o", "run.trace", "script.py")
    assert traced.out == "end\n"
    assert traced.status in (0, -6)
    certificate = tracer.load(launcher.folder / "run.trace").certificate
    assert certificate["closed_in_order"] == {0: True}
    assert certificate["damaged_chunks"] == certificate["torn_events"] == certificate["unmatched_exits"] == 0


@pytest.mark.fresh
def test_a_child_that_never_ends(launcher: Launcher) -> None:
    launcher.write(
        "import os, time, torch\n"
        "torch.ones(2)\n"
        "read, write = os.pipe()\n"
        "if (child := os.fork()) == 0:\n"
        "    os.close(1); os.close(2)\n"
        "    torch.neg(torch.ones(1)); os.write(write, b'x')\n"
        "    while True: time.sleep(1)\n"
        "os.read(read, 1)\n"
        "print(child)\n"
    )
    traced = launcher.record("-o", "run.trace", "script.py")
    assert traced.status == 0
    try:
        found = tracer.load(launcher.folder / "run.trace")
        assert found.certificate["closed_in_order"] == {0: True, 1: False}
        assert "aten::neg" in set(found.hops["op"].cast(pl.String))
    finally:
        os.kill(int(traced.out), signal.SIGKILL)


def test_thousands_of_short_threads_share_lanes(launcher: Launcher) -> None:
    launcher.write(
        "import threading, torch\n"
        "x = torch.ones(2)\n"
        "for _ in range(3000):\n"
        "    thread = threading.Thread(target=torch.neg, args=(x,)); thread.start(); thread.join()\n"
    )
    launcher.same("script.py")
    trace = tracer.load(launcher.folder / "both.trace")
    negs = hops(launcher).filter(pl.col("op") == "aten::neg")
    assert len(negs.filter(pl.col("key") == "CPU")) == 3000
    assert trace.certificate["verdict"].startswith("complete: ")
    assert (launcher.folder / "both.trace").stat().st_size < 4 << 20


def test_an_op_within_itself_1500_deep(launcher: Launcher) -> None:
    launcher.write(
        "import resource, sys, threading, torch\n"
        "sys.setrecursionlimit(1_000_000)\n"
        "threading.stack_size(1 << 30)\n"
        "library = torch.library.Library('deep', 'DEF')\n"
        "library.define('down(Tensor x, int n) -> Tensor')\n"
        "library.impl('down', lambda x, n: x + 1 if n == 0 else torch.ops.deep.down(x, n - 1), 'CPU')\n"
        "thread = threading.Thread(target=lambda: print(torch.ops.deep.down(torch.ones(2), 1500)))\n"
        "thread.start(); thread.join()\n"
    )
    launcher.same("script.py")
    found = hops(launcher).filter((pl.col("op") == "deep::down") & (pl.col("key") == "CPU"))
    assert len(found) == 1501  # CPython 3.12 itself ends below 1,700
    depth = dict.fromkeys([None], 0)
    for row in hops(launcher).iter_rows(named=True):
        depth[row["id"]] = depth[row["parent"]] + 1
    assert max(depth.values()) >= 3002, "an autograd and a CPU hop at each level"
    assert launcher.python("-m", "tracer.cli.app", "tree", "both.trace").status == 0
    assert launcher.python("-m", "tracer.cli.app", "report", "both.trace").status == 0


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="CPython 3.12 itself ends below 1,700")
def test_an_op_within_itself_deeper_than_the_file_says(launcher: Launcher) -> None:
    launcher.write(
        "import sys, threading, torch\n"
        "sys.setrecursionlimit(1_000_000)\n"
        "threading.stack_size(1 << 30)\n"
        "library = torch.library.Library('deep', 'DEF')\n"
        "library.define('down(Tensor x, int n) -> Tensor')\n"
        "library.impl('down', lambda x, n: x + 1 if n == 0 else torch.ops.deep.down(x, n - 1), 'CPU')\n"
        "def work():\n    for n in (5000, 0, 4500): torch.ops.deep.down(torch.ones(2), n)\n"
        "thread = threading.Thread(target=work)\nthread.start(); thread.join()\n"
    )
    launcher.same("script.py")
    certificate = tracer.load(str(launcher.folder / "both.trace")).certificate
    assert certificate["complete"], certificate["why"]
    depth = dict.fromkeys([None], 0)
    for row in hops(launcher).iter_rows(named=True):
        depth[row["id"]] = depth[row["parent"]] + 1
    assert max(depth.values()) > 10_002, "an autograd and a CPU hop at each level"


def test_lists_of_ten_thousand_tensors(launcher: Launcher) -> None:
    launcher.write(
        "import torch\n"
        "xs = [torch.full((2,), float(i)) for i in range(10_000)]\n"
        "print(torch.cat(xs).sum(), torch.stack(xs).shape)\n"
        "torch._foreach_add_(xs, 1)\n"
        "print(torch.cat(xs).sum())\n"
    )
    launcher.same("script.py")
    assert len(hops(launcher).filter((pl.col("op") == "aten::cat") & pl.col("parent").is_null())) == 2


def test_names_with_spaces_and_other_letters(launcher: Launcher) -> None:
    name = "größe ünd 形.py"
    launcher.write(
        "import os, torch\nos.chdir('..')\ndef fünf(): return torch.ones(5)\nprint(fünf())\n", f"a b/{name}"
    )
    run = launcher.record("-o", "spur 跡.trace", f"a b/{name}")
    assert run.status == 0
    sources = set(hops(launcher, "spur 跡.trace")["source"].cast(pl.String))
    assert any(source.endswith(f"/a b/{name}:3") or source == f"a b/{name}:3" for source in sources), sources
    tree = launcher.python("-m", "tracer.cli.app", "tree", "spur 跡.trace")
    assert tree.status == 0
    assert name in tree.out


@pytest.mark.fresh
def test_the_script_closes_all_descriptors(launcher: Launcher) -> None:
    launcher.write(
        "import os, torch\n"
        "torch.ones(2)\n"
        "os.closerange(3, 4096)\n"
        "held = [os.open('/dev/null', os.O_RDWR) for _ in range(20)]\n"
        "for _ in range(60_000): torch.neg(torch.ones(2))\n"
        "own = os.open('own.txt', os.O_RDWR | os.O_CREAT)\n"
        "os.write(own, b'precious')\n"
    )
    traced = launcher.record("-o", "run.trace", "script.py")
    assert traced.status == 0, traced.err
    assert (launcher.folder / "own.txt").read_bytes() == b"precious"
    assert Path("/dev/null").is_char_device()


def test_no_descriptors_are_left(launcher: Launcher) -> None:
    launcher.write(
        "import resource, torch\n"
        "held = []\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "try:\n    while True: held.append(open('/dev/null'))\n"
        "except OSError: pass\n"
        "print(torch.ones(2).neg().sum().item())\n"
    )
    traced = launcher.record("-o", "run.trace", "script.py")
    plain = launcher.python("script.py")
    assert plain.status == 0
    assert (traced.status, traced.out) == (plain.status, plain.out)
    assert "Traceback" not in traced.err


@pytest.mark.parametrize("room", [512, 1024, 1536])
def test_address_space_that_is_short_to_the_end(launcher: Launcher, room: int) -> None:
    """Less KiB than the 2 MiB in which tracer measures what a hop costs, when the script has ended."""
    launcher.write(
        "import resource, torch\n"
        "x = torch.ones(2)\n"
        "torch.neg(x)\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
        f"resource.setrlimit(resource.RLIMIT_AS, (used + ({room} << 10), resource.RLIM_INFINITY))\n"
        "for _ in range(30_000): torch.neg(x)\n"
        "print('done', flush=True)\n"
    )
    traced = launcher.record("-o", "run.trace", "script.py")
    assert (traced.status, traced.out, traced.own_err) == (0, "done\n", "")
    certificate = tracer.load(launcher.folder / "run.trace").certificate
    assert certificate["complete"] is True, certificate["verdict"]
    assert own_cost(certificate, 0) is None
    assert certificate["ns_per_hop"] is None
    assert "per hop" not in traced.said


NOTHING_LEFT = """\
import resource, torch
x = torch.ones(2)
resource.setrlimit(resource.{limit}, (4096, resource.RLIM_INFINITY))
for _ in range(20_000): torch.neg(x)
print("done", flush=True)
"""


@pytest.mark.fresh  # a child of the fork server ends without the destructors that come to the hooks
@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_DATA"])
@pytest.mark.parametrize("options", [(), ("--memory", "--stack", "8", "--values", "all")])
def test_no_memory_to_the_end(launcher: Launcher, limit: str, options: tuple[str, ...]) -> None:
    launcher.write(NOTHING_LEFT.format(limit=limit))
    traced = launcher.record("-o", "run.trace", *options, "script.py")
    assert (traced.status, traced.out) == (0, "done\n"), traced.err
    assert "terminate called" not in traced.err


def can_hide_proc() -> bool:
    hide = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/proc"]
    return shutil.which("unshare") is not None and subprocess.run(hide, capture_output=True).returncode == 0


@pytest.mark.fresh
def test_without_proc(launcher: Launcher) -> None:
    """The loader looks up what is called for the first time, and writes beside our hooks."""
    if not can_hide_proc():
        pytest.skip("needs a mount namespace of its own")
    launcher.write(
        "import os, sys, torch\ntorch.ones(2)\n"
        "if os.fork() == 0: torch.neg(torch.ones(1)); sys.exit()\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    )
    hidden = 'mount -t tmpfs none /proc && exec "$@"'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", hidden, "sh"]
    process = launcher.start(*command, str(launcher.tracer), "record", "-o", "run.trace", "script.py")
    out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out) == (0, "0\n"), err
    assert "aten::neg" in set(hops(launcher, "run.trace")["op"])


@pytest.mark.fresh
def test_a_namespace_of_pids_with_the_proc_of_another(launcher: Launcher) -> None:
    """Processes have other numbers there than in /proc: `unshare -p -f` without --mount-proc."""
    unshared = ["unshare", "--map-root-user", "--pid", "--fork"]
    if not shutil.which("unshare") or subprocess.run([*unshared, "true"], capture_output=True).returncode:
        pytest.skip("needs a namespace of pids of its own")
    launcher.write(
        "import subprocess, sys, torch\ntorch.ones(2)\n"
        "subprocess.run([sys.executable, '-c', 'import torch; torch.neg(torch.ones(1))'], check=True)\n"
    )
    process = launcher.start(*unshared, str(launcher.tracer), "record", "-o", "run.trace", "script.py")
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, err
    assert "aten::neg" in set(hops(launcher, "run.trace")["op"])


def test_no_file_beside_the_trace_is_overwritten(launcher: Launcher) -> None:
    mine = launcher.write("mine", "both.trace.trimmed")
    launcher.write("import torch\ntorch.ones(2)\n")
    launcher.same("script.py")
    assert mine.read_text() == "mine"
    assert sorted(path.name for path in launcher.folder.iterdir()) == [
        "both.trace",
        "both.trace.trimmed",
        "script.py",
    ]


@pytest.mark.fresh
def test_times_are_known_of_a_process_that_is_killed_at_once(launcher: Launcher) -> None:
    launcher.write(
        "import os, time, torch\nbegin = time.monotonic()\ntorch.ones(2)\ntime.sleep(0.25)\ntorch.ones(2)\n"
        "print(time.monotonic() - begin, flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    most = float(launcher.record("-o", "run.trace", "script.py").out)
    assert tracer.load(launcher.folder / "run.trace").certificate["clock_known"]
    first, second = hops(launcher, "run.trace").filter(op="aten::ones", kind="call")["start_ns"]
    assert 0.25 <= (second - first) / 1e9 <= most


def test_memory_that_cannot_be_mapped(launcher: Launcher) -> None:
    """The largest number of mappings is reached for a while: the script lives, the gap is said."""
    launcher.write(
        "import ctypes, threading, torch\n"
        "c = ctypes.CDLL(None)\n"
        "c.mmap.restype = ctypes.c_void_p\n"
        "c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]\n"
        "c.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]\n"
        "x, go = torch.ones(1), threading.Event()\n"
        "def work():\n"
        "    go.wait()\n"
        "    for _ in range(10_000): torch.neg(x)\n"
        "threads = [threading.Thread(target=work) for _ in range(4)]\n"
        "for thread in threads: thread.start()\n"
        "taken = []\n"
        "while True:\n"
        "    place = c.mmap(None, 4096, 1 if len(taken) % 2 else 3, 0x22, -1, 0)\n"
        "    if place in (None, 2**64 - 1): break\n"
        "    taken.append(place)\n"
        "for _ in range(6): c.munmap(taken.pop(), 4096)\n"
        "go.set()\n"
        "for thread in threads: thread.join()\n"
        "for place in taken: c.munmap(place, 4096)\n"
        "print('ran')\n"
    )
    traced = launcher.same("script.py")
    assert "incomplete: " in traced.said
    certificate = tracer.load(launcher.folder / "both.trace").certificate
    assert certificate["lost_hops"] or "Cannot allocate memory" in certificate["verdict"], certificate


HANDLER = """
#include <signal.h>
#include <unistd.h>
static void handle(int) { if (write(1, "handled\\n", 8) < 0) _exit(1); }
extern "C" void install(void) { signal(SIGINT, handle); }
"""


@pytest.mark.fresh
def test_a_handler_of_interrupts_that_python_does_not_know(launcher: Launcher, tmp_path: Path) -> None:
    (tmp_path / "handler.cpp").write_text(HANDLER)
    library = tmp_path / "handler.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, tmp_path / "handler.cpp"], check=True)
    launcher.write(
        "import ctypes, os, signal, torch, tracer\n"
        f"ctypes.CDLL({str(library)!r}).install()\n"
        "with tracer.record('own.trace'): torch.ones(2)\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
    )
    run = launcher.python("script.py")
    assert (run.status, run.out) == (0, "handled\n"), run.err
