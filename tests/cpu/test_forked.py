"""Children of the fork server run a script as a fresh interpreter does, and a server that ends is named."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import forked
import polars as pl
import pytest
from launching import MUST_BE_FRESH, TIMEOUT, Launcher, job, plain_environment

import tracer

pytestmark = pytest.mark.skipif(MUST_BE_FRESH, reason="all runs are fresh here")

# What differs from run to run: addresses, sizes of files, the cost of a hop.
CHANGES = re.compile(r"0x[0-9a-f]+|[\d.]+ [KM]iB|at least \d+ ns")
BEGIN = "import os, sys, torch\n"
OPS = """
print(sys.argv[1:], sys.stdin.read(), torch.mm(torch.ones(2, 3), torch.ones(3, 2)))
w = torch.ones(3, requires_grad=True)
(w * 2).relu().sum().backward()
print(w.grad)
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
print(model.weight.shape)
import threading
threads = [threading.Thread(target=torch.ones, args=(2,)) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
@torch.library.custom_op('own::twice', mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
print(torch.ops.own.twice(torch.ones(2)))
"""
SCRIPTS = {
    "ops, arguments, stdin, backward, an optimizer, threads, an operator of its own": OPS,
    "an exception": "def f():\n    torch.mm(torch.ones(2, 3), torch.ones(2, 3))\nf()",
    "an exit status": "import atexit\natexit.register(print, 'last')\ntorch.ones(2)\nsys.exit(3)",
    "a forked child": (
        "torch.ones(2)\nchild = os.fork()\nif child == 0:\n    torch.zeros(2)\n    os._exit(4)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    ),
    "a child that multiprocessing spawns": (
        "import torch.multiprocessing as mp\n"
        "if __name__ == '__main__':\n"
        "    process = mp.get_context('spawn').Process(target=torch.ones, args=(2,))\n"
        "    process.start()\n    process.join()\n    print(process.exitcode)"
    ),
    "a child that nobody joins": (
        "import time\nimport torch.multiprocessing as mp\n"
        "def work():\n    time.sleep(0.5)\n    torch.zeros(2)\n"
        "mp.get_context('fork').Process(target=work).start()\ntorch.ones(2)"
    ),
    "Ctrl-C": "torch.ones(2)\nraise KeyboardInterrupt",
    "no torch": "print('hello')",
}


def hops(trace: Path) -> Counter[tuple[object, ...]] | None:
    if not trace.exists():
        return None
    table = tracer.load(trace).hops.with_columns(pl.selectors.categorical().cast(pl.String))
    columns = ["kind", "op", "key", "kernel", "registered_at", "rule", "source", "module", "raised", "open"]
    return Counter(table.select(*columns, "backward_node").rows())


@pytest.mark.parametrize("kind", SCRIPTS)
def test_a_forked_run_is_as_a_fresh_one(launcher: Launcher, kind: str) -> None:
    launcher.write((BEGIN if kind != "no torch" else "") + SCRIPTS[kind] + "\n")
    found = []
    for fresh in (False, True):
        plain = launcher.python("script.py", "x", stdin="in", fresh=fresh)
        recorded = launcher.record("-o", "run.trace", "script.py", "x", stdin="in", fresh=fresh)
        trace = launcher.folder / "run.trace"
        texts = [CHANGES.sub("_", text) for text in (plain.out, plain.err, recorded.out, recorded.err)]
        found.append((plain.status, recorded.status, *texts, hops(trace)))
        trace.unlink(missing_ok=True)
    assert found[0] == found[1]


def test_torch_is_not_there_before_it_is_imported(launcher: Launcher) -> None:
    launcher.write(
        "import sys\nprint('torch' in sys.modules)\nfrom torch.nn import functional\nprint(functional)\n"
    )
    run = launcher.record("script.py")
    assert run.out.startswith("False\n<module 'torch.nn.functional' from ")
    assert "tracer: script.0001.trace" in run.err


def test_a_variable_that_a_library_reads_early_has_a_fresh_interpreter(launcher: Launcher) -> None:
    launcher.write("import torch\nprint(torch.get_num_threads())\n")
    assert launcher.python("script.py", extra={"OMP_NUM_THREADS": "1"}).out == "1\n"
    assert launcher.python("script.py", extra={"OWN": "1"}).out != ""


def test_a_script_with_a_torch_of_its_own_asks_for_a_fresh_interpreter(launcher: Launcher) -> None:
    launcher.write("", "torch/__init__.py")
    launcher.write("import torch\n")
    assert "fresh=True" in launcher.python("script.py").err
    assert launcher.python("script.py", fresh=True).status == 0


def test_a_server_that_ends_is_named_and_the_next_run_has_another(launcher: Launcher) -> None:
    launcher.write(
        "import os, signal\n"
        "assert 'fork_server' in open(f'/proc/{os.getppid()}/cmdline').read()\n"
        "os.kill(os.getppid(), signal.SIGKILL)\n",
        "kills.py",
    )
    launcher.write("print('next')\n")
    assert launcher.python("script.py").out == "next\n"
    with pytest.raises(forked.ServerEndedError, match=r"ended with status -9 at .*kills.py"):
        launcher.python("kills.py")
    assert launcher.python("script.py").out == "next\n"


def test_a_script_that_hangs_is_killed(launcher: Launcher) -> None:
    launcher.write("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n")
    forked.begin(plain_environment())
    with pytest.raises(subprocess.TimeoutExpired):
        forked.run(["python", "script.py"], launcher.folder, launcher.environment, "", 1.0)
    assert launcher.python("-c", "print(1)").out == "1\n"


def test_the_answer_to_a_script_that_took_too_long_is_no_other_scripts(launcher: Launcher) -> None:
    """It has ended, and its child holds its streams: its status must not be that of the next script."""
    launcher.write(
        "import os, time\nif os.fork() == 0:\n    time.sleep(5)\n    os._exit(0)\nraise SystemExit(2)\n"
    )
    forked.begin(plain_environment())
    with pytest.raises(subprocess.TimeoutExpired):
        forked.run(["python", "script.py"], launcher.folder, launcher.environment, "", 1.0)
    for status in (3, 4, 0):
        assert launcher.python("-c", f"raise SystemExit({status})").status == status
    time.sleep(5)  # then the child has ended


@pytest.mark.parametrize("name", ["TZ", "LC_ALL", "PYTORCH_JIT"])
def test_what_the_server_has_read_is_compared_with_its_own_environment(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Also where the test changes the environment of pytest itself."""
    code = "import sys\nprint('fork_' 'server' in open('/proc/self/cmdline').read())"
    assert launcher.python("-c", code).out == "True\n"
    monkeypatch.setenv(name, "0")
    changed = Launcher(launcher.folder)
    assert changed.python("-c", code).out == "False\n"


def test_a_started_child_runs_while_others_do(launcher: Launcher) -> None:
    launcher.write(
        "import sys, torch\nprint('ready', flush=True)\nprint(sys.stdin.read(), torch.ones(1).item())\n"
        "print('more', file=sys.stderr)\nsys.exit(3)\n"
    )
    started = launcher.start(sys.executable, "script.py", stdin=subprocess.PIPE)
    assert isinstance(started, forked.Started)
    assert started.stdout.readline() == "ready\n"
    assert started.poll() is None
    assert launcher.python("-c", "print(1)").out == "1\n"
    assert started.communicate("in", timeout=60) == ("in 1.0\n", "more\n")
    assert started.returncode == started.poll() == 3
    killed = launcher.start(sys.executable, "-c", "import time\nprint(1, flush=True)\ntime.sleep(60)")
    assert killed.stdout.readline() == "1\n"
    killed.send_signal(signal.SIGTERM)
    assert killed.wait(60) == -signal.SIGTERM
    assert killed.communicate() == ("", "")


def test_a_job_has_its_ranks(launcher: Launcher) -> None:
    launcher.write(
        "import os, sys, torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "x = torch.ones(1)\ndist.all_reduce(x)\nprint(os.environ['LOCAL_RANK'], x.item(), flush=True)\n"
        "dist.barrier()\n"  # torchrun ends the other rank as soon as one has failed
        "dist.destroy_process_group()\nsys.exit(dist.is_initialized() or 5 * (os.environ['RANK'] == '1'))\n"
    )
    run = launcher.job(2, "-o", "job/", "script.py")
    assert sorted(run.out.splitlines()) == ["0 2.0", "1 2.0"]
    assert run.status == 1
    assert len(list((launcher.folder / "job").glob("*.trace"))) == 2


def test_a_rank_that_fails_ends_the_others(launcher: Launcher) -> None:
    launcher.write(
        "import os, sys, time, torch\nprint(os.getpid(), flush=True)\n"
        "if os.environ['RANK'] == '0': sys.exit(3)\ntime.sleep(600)\n"
    )
    begun = time.monotonic()
    run = launcher.job(2, "-o", "job/", "script.py")
    assert run.status == 1
    assert time.monotonic() - begun < 300
    assert not [number for number in run.out.split() if os.path.exists(f"/proc/{number}")]


def test_signals_are_as_in_a_fresh_interpreter(launcher: Launcher) -> None:
    launcher.write("import signal\nprint([(s, signal.getsignal(s)) for s in signal.valid_signals()])\n")
    assert CHANGES.sub("", launcher.python("script.py").out) == CHANGES.sub(
        "", launcher.python("script.py", fresh=True).out
    )
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert os.getpid() != 0


def test_a_job_is_a_child_of_this_process_without_tracer(tmp_path: Path) -> None:
    code = (
        "import atexit, os, sys\nprint('torch' in sys.modules, 'tracer' in sys.modules)\n"
        "class Late:\n    def __del__(self, write=os.write): write(1, b'late')\nlate = Late()\n"
        "import torch\natexit.register(print, 'last')\n"
        "print(input(), os.getpid(), os.getppid(), os.getcwd())\n"
        "print(os.environ['OWN'], torch.ones(2).sum().item(), file=sys.stderr)\nsys.exit(3)"
    )
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = job("-c", code, env=plain_environment() | {"OWN": "1"}, cwd=tmp_path, **streams)
    out, err = process.communicate("in", timeout=TIMEOUT)
    said = f"False False\nin {process.pid} {os.getpid()} {tmp_path}\nlast\nlate"
    assert (process.returncode, out, err) == (3, said, "1 2.0\n")


def test_a_job_is_signalled_and_is_alone_in_its_session(tmp_path: Path) -> None:
    code = "import os, time, torch\nprint(os.getsid(0) == os.getpid(), flush=True)\ntime.sleep(600)"
    process = job("-c", code, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in process.communicate(timeout=TIMEOUT)[0]
    assert process.returncode == -signal.SIGINT
