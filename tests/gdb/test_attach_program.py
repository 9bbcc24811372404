"""Attach to jobs with definitions, limits and handlers of their own, which it neither uses nor disturbs."""

from __future__ import annotations

import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from attaching import IN_TURN, ON, WORKS, act, answers, attach, begin, made, refused, running_job
from launching import TIMEOUT, Launcher
from typer.testing import CliRunner

import tracer
from tracer.attach.session import Session
from tracer.cli.app import app

UNTIL_INPUT = f"import threading, time\nreads = threading.Thread(target=input); reads.start()\n{ON}\n{WORKS}"


def program(launcher: Launcher, begin: str, end: str = "") -> str:
    """A script that works with torch until it gets a line, between what begins and what ends it."""
    return str(launcher.write(f"import os, sys, torch\n{begin}\n{UNTIL_INPUT}{end}\n"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The number of a job for several tests, that says nothing."""
    with running_job(
        program(Launcher(tmp_path_factory.mktemp("plain")), ""), stderr=subprocess.PIPE
    ) as process:
        yield process.pid
        assert process.communicate("\n", timeout=TIMEOUT) == ("", "")
        assert process.returncode == 0


def test_names_of_main_are_not_used_and_none_is_left(launcher: Launcher) -> None:
    begin = "".join(
        f"def {name}(*given, **more): print('called {name} with', given)\n" for name in ("exec", "__import__")
    )
    script = program(launcher, begin, "print(sorted(n for n in globals() if 'tracer' in n))")
    with running_job(script, stderr=subprocess.PIPE) as process:
        done = attach(launcher, process.pid, "--seconds", "0.3", "-o", "t.trace")
        assert done.status == 0, done.err
        assert process.communicate("\n", timeout=TIMEOUT) == ("[]\n", "")
    assert tracer.load(launcher.folder / "t.trace").certificate["complete"]


# Before each recording a function is replaced: in the place of a handler it raises, when attach has called it
# for the beginning or the end. The lines of the input tell the recordings apart. It is not waited for with
# is_alive(): an exception there marks a thread that lives as ended, in Python 3.11 (bpo-45274).
INTERRUPTED = """\
import atexit, _thread, threading, time, torch
class Due(Exception): pass
def interrupt(module, name, error, visit):
    visits, real = [], getattr(module, name)
    def interrupted(*given):
        result = real(*given)
        visits.extend([1] * (given[0].__name__ in ('work', 'at_exit')))
        if len(visits) == visit:
            setattr(module, name, real)
            raise error
        return result
    setattr(module, name, interrupted)
cases = [(error, visit) for error in (Due('kept'), KeyboardInterrupt('kept')) for visit in (1, 2)]
ends = []
threading.Thread(target=lambda: [ends.append(input()) for _ in cases]).start()
for number, case in enumerate(cases):
    interrupt(MODULE, 'NAME', *case)
    print('on', flush=True)
    while len(ends) == number:
        try:
            while len(ends) == number: torch.ones(2).sum(); time.sleep(0.001)
        except (Due, KeyboardInterrupt) as error:
            print(type(error).__name__, error, flush=True)
print('end')
"""


@pytest.mark.parametrize("call", ["atexit.register", "_thread.start_new_thread"])
def test_no_exception_of_a_handler_is_lost(launcher: Launcher, call: str) -> None:
    """Handlers run between any two instructions of the main thread, so also in what attach runs there.

    What is asked for is done nevertheless, once: also if its thread had been started already.
    """
    module, _, name = call.partition(".")
    script = launcher.write(INTERRUPTED.replace("MODULE", module).replace("NAME", name))
    with running_job(str(script), stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number, error in enumerate(("Due", "Due", "KeyboardInterrupt", "KeyboardInterrupt")):
            done = attach(launcher, process.pid, "--seconds", "0.2", "-o", f"{number}.trace")
            assert done.status == 0, done.err
            assert select.select([process.stdout], [], [], 60)[0], "it is lost"
            assert process.stdout.readline() == f"{error} kept\n"
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == ("on\n" if number < 3 else "end\n")
        assert process.communicate(timeout=TIMEOUT) == ("", "")
    for trace in launcher.traces():
        assert tracer.load(launcher.folder / trace).certificate["complete"]
    assert len(launcher.traces()) == 4


def test_an_exception_that_the_job_handles_stays_handled(launcher: Launcher) -> None:
    script = program(launcher, "")
    text = (
        Path(script)
        .read_text()
        .replace(
            WORKS,
            f"try: raise ValueError\nexcept ValueError:\n {WORKS}print('end')\n",
        )
    )
    Path(script).write_text(text)
    with running_job(script, stderr=subprocess.PIPE) as process:
        done = attach(launcher, process.pid, "--seconds", "0.2")
        assert done.status == 0, done.err
        assert process.communicate("\n", timeout=TIMEOUT) == ("end\n", "")


def test_a_job_without_warnings(launcher: Launcher) -> None:
    script = program(launcher, "sys.modules['warnings'] = None")
    with running_job(script, stderr=subprocess.PIPE) as process:
        done = attach(launcher, process.pid, "--seconds", "0.3")
        assert done.status == 0, done.err
        assert process.communicate("\n", timeout=TIMEOUT) == ("", "")


def test_it_warns_later_of_its_own_threads(launcher: Launcher) -> None:
    """Python from 3.12 on: of a fork beside a thread. What attach does against that ends with its thread."""
    end = (
        "import time, warnings\n"
        "print(sum(type(one[1]).__name__ == 'OneThreadMore' for one in warnings.filters) <= 1)\n"
        "threading.Thread(target=time.sleep, args=(1,)).start()\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('default')\n"
        "    if os.fork() == 0: os._exit(0)\n"
        "print(len(caught) == (sys.version_info >= (3, 12)))"
    )
    with running_job(program(launcher, "torch.set_num_threads(1)", end), stderr=subprocess.PIPE) as process:
        for _ in range(3):
            done = attach(launcher, process.pid, "--seconds", "0.1")
            assert done.status == 0, done.err
        assert process.communicate("\n", timeout=TIMEOUT) == ("True\nTrue\n", "")


def test_no_free_files(launcher: Launcher) -> None:
    begin = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096))\n"
        "held = []\n"
        "try:\n"
        "    while True: held.append(os.open('/dev/null', os.O_RDONLY))\n"
        "except OSError: pass"
    )
    with running_job(program(launcher, begin)) as process:
        done = attach(launcher, process.pid)
        refused(done, f"process {process.pid} has 64 of at most 64 files open", advice="raise that limit: ")
        raises = done.err.rpartition(": ")[2].split()
        assert subprocess.run(raises, check=False).returncode == 0
        assert attach(launcher, process.pid, "--seconds", "0.1").status == 0
        assert process.communicate("\n", timeout=TIMEOUT)[0] == ""


@pytest.mark.parametrize("room", [0, 32])
def test_no_free_memory(launcher: Launcher, room: int) -> None:
    """An extension for which there is no memory ended the job."""
    begin = (
        "import resource, re\n"
        "used = int(re.search(r'VmSize:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        f"resource.setrlimit(resource.RLIMIT_AS, (used * 1024 + ({room} << 20), resource.RLIM_INFINITY))"
    )
    code = f"import os, sys, time, torch\n{begin}\n{ON}\ntime.sleep(1.5); print('end')\n"
    with running_job(str(launcher.write(code))) as process:
        done = attach(launcher, process.pid)
        refused(done, "and a recording needs 512 more", advice=f"prlimit --pid {process.pid} --as=")
        assert process.communicate(timeout=TIMEOUT)[0] == "end\n"
        assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_an_attach_that_is_ended_while_it_begins(launcher: Launcher, number: signal.Signals) -> None:
    """The job is not recorded on, and no folder is left."""
    tickets = launcher.folder / "tickets"
    tickets.mkdir()
    begin = (
        "import importlib.abc, time\n"
        "class Slow(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'tracer.recording.attached': open('begins', 'w').close(); time.sleep(1)\n"
        "sys.meta_path.insert(0, Slow())"
    )
    with running_job(program(launcher, begin), cwd=launcher.folder) as process:
        command = [str(launcher.tracer), "attach", str(process.pid), "--seconds", "60", "-o", "t.trace"]
        environment = launcher.environment | {"TMPDIR": str(tickets)}
        with subprocess.Popen(
            command, cwd=launcher.folder, env=environment, stderr=subprocess.PIPE, text=True
        ) as attached:
            while not (launcher.folder / "begins").exists():
                assert attached.poll() is None
                time.sleep(0.02)
            attached.send_signal(number)
            attached.communicate(timeout=TIMEOUT)
        done = launcher.run([str(launcher.tracer), "detach", str(process.pid)])
        refused(done, "it is not being recorded", advice="tracer attach")
        assert process.communicate("\n", timeout=TIMEOUT)[0] == ""
    assert bool(list(tickets.iterdir())) == (number == signal.SIGKILL)


TOGETHER = """\
import json, sys, threading, torch
sys.setswitchinterval(1e-6)
both = threading.Barrier(2)
def act(given):
    names = {}
    with open(sys.argv[1]) as file:
        exec(file.read(), names)
    both.wait()
    names["act"](*json.loads(given))
threads = [threading.Thread(target=act, args=(given,)) for given in sys.argv[2:]]
for thread in threads: thread.start()
for thread in threads: thread.join()
torch.ones(2).sum()
"""


def test_two_requests_at_once_begin_one_recording(launcher: Launcher) -> None:
    """Each is executed on a thread of its own, in a process that has not loaded tracer."""
    for turn in range(3):
        paths = [launcher.folder / f"{turn}.{number}.trace" for number in range(2)]
        with made(begin(paths[0])) as one, made(begin(paths[1])) as other:
            act(launcher, TOGETHER, one, other)
            first, last = sorted([answers(one)[0], answers(other)[0]])
        assert (first[0], last[0]) == ("failed", "started"), (first, last)
        assert "it is already being recorded" in first[1]
        (trace,) = launcher.traces()
        (launcher.folder / trace).unlink()


def test_an_attach_ends_no_recording_of_another(launcher: Launcher) -> None:
    """Its own may have ended in this moment, and another one begun."""
    path, other = (launcher.folder / name for name in ("t.trace", "other.trace"))
    with (
        made(begin(path)) as first,
        made({"action": "end", "path": str(other)}) as wrong,
        made({"action": "end", "path": str(path)}) as right,
    ):
        act(launcher, IN_TURN, first, wrong, right)
        found = [answers(ticket) for ticket in (first, wrong, right)]
    assert [[kind for kind, _ in one] for one in found] == [["started", "ended"], ["failed"], ["ended"]], (
        found
    )
    assert "other.trace has ended; now it is recorded to" in found[1][0][1]


def test_who_asked_has_gone(launcher: Launcher) -> None:
    """Nothing is recorded that nobody knows of; only what may also happen later still happens."""
    path = launcher.folder / "t.trace"
    with made(begin(path)) as gone:
        pass
    act(launcher, IN_TURN, gone)
    assert launcher.traces() == []
    with made(begin(path)) as first, made({"action": "end", "path": str(path), "later": True}) as last:
        with last:
            pass
        act(launcher, IN_TURN, first, last)
        assert [kind for kind, _ in answers(first)] == ["started", "ended"]
    assert tracer.load(path).certificate["complete"]


def test_stderr_is_closed(launcher: Launcher, plain: int) -> None:
    command = ["sh", "-c", 'exec "$0" attach "$1" --seconds 0.3 -o t.trace 2>&-']
    done = launcher.run([*command, str(launcher.tracer), str(plain)])
    assert (done.status, done.err) == (0, "")
    assert tracer.load(launcher.folder / "t.trace").certificate["complete"]


def test_what_cannot_be_asked_leaves_no_file(launcher: Launcher, plain: int) -> None:
    command = ["prlimit", "--fsize=0", str(launcher.tracer), "attach", str(plain), "-o", "t.trace"]
    done = launcher.run(command)
    assert done.status == 2
    assert done.err.startswith("tracer: the request cannot be written to a temporary folder: ")
    assert done.err.endswith("; set TMPDIR to another folder\n")
    assert not (launcher.folder / "t.trace").exists()


@pytest.mark.parametrize("most", [8, 15])
def test_too_few_files_for_gdb(launcher: Launcher, plain: int, most: int) -> None:
    command = ["prlimit", f"--nofile={most}", str(launcher.tracer), "attach", str(plain)]
    done = launcher.run(command)
    assert (done.status, done.said) == (
        2,
        f"tracer: this command may open only {most} files, and gdb needs more; "
        "raise that limit: ulimit -n 64\n",
    )
    assert list(launcher.folder.glob("*.trace")) == []


def test_an_error_of_tracer_leaves_no_file(
    launcher: Launcher, plain: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError("not expected")

    monkeypatch.setattr(Session, "_inject", fails)
    path = launcher.folder / "t.trace"
    done = CliRunner().invoke(app, ["attach", str(plain), "-o", str(path)])
    assert isinstance(done.exception, OSError)
    assert not path.exists()
