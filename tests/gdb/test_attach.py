"""`tracer attach` and `tracer detach`: a running job is recorded, and is as before afterwards."""

from __future__ import annotations

import functools
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
from attaching import (
    MAPS,
    ON,
    PHASES,
    RUNS,
    SAYS_ON,
    SPINS,
    WORKS,
    alone,
    attach,
    imitation,
    job,
    refused,
    running,
    running_job,
    torch_of,
)
from launching import TIMEOUT, Launcher
from table_words import build
from typer.testing import CliRunner

import tracer
from tracer import _build_info
from tracer.attach import gdb
from tracer.attach.process import Process
from tracer.cli.app import app

pytestmark = pytest.mark.gdb


@pytest.fixture(scope="session")
def words_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("words") / "table_words.so"
    build(library)
    return library


def test_every_phase_of_a_step(launcher: Launcher, words_library: Path) -> None:
    """Attached in each phase and detached in each: same results, table, output, hooks, path and names."""
    (launcher.folder / "table_words.so").symlink_to(words_library)
    steps = 4 * len(PHASES) + 4
    expected = alone(steps)
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


@pytest.mark.fresh
@pytest.mark.promise("attach", "detach", "docs/attach.md")
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


# The second and the fourth turn: a job of twelve steps stays in step 2, and then in step 8 until its
# recording has ended.
STAYS = ("between", "nowhere", "nowhere", "between")


def test_seconds(launcher: Launcher) -> None:
    expected = alone(12)
    with job(launcher, 12, *STAYS) as led:
        led.reach(0)
        command = launcher.start(str(launcher.tracer), "attach", led.pid, "--seconds", "3", "-o", "t.trace")
        assert command.stderr is not None
        assert "for 3 s" in command.stderr.readline()
        led.go(0)
        out, err = command.communicate(timeout=TIMEOUT)
        led.go(3)
        assert led.end() == (expected, "")
    assert (command.returncode, out) == (0, ""), err
    assert "complete: nothing dropped" in err


@pytest.mark.fresh
@pytest.mark.promise("attach", "docs/attach.md")
def test_steps(launcher: Launcher) -> None:
    expected = alone(12)
    with job(launcher, 12, *STAYS) as led:
        led.reach(0)
        attach = [str(launcher.tracer), "attach", led.pid, "--steps", "3", "-o", "t.trace"]
        command = launcher.start(*attach)
        assert command.stderr is not None
        assert "until its steps have ended" in command.stderr.readline()
        led.go(0)
        out, err = command.communicate(timeout=TIMEOUT)
        assert (command.returncode, out) == (0, ""), err
        led.go(3)
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
    err = led.tracer("detach").err
    assert "not recorded" in err or "no process" in err


@pytest.mark.parametrize("moments", [(0.3, 0.5, 0.7), (0.6, 0.9, 1.2)])
def test_ctrl_c_at_any_moment_leaves_no_recording(launcher: Launcher, moments: tuple[float, ...]) -> None:
    # In a session of its own: a signal that gdb passed on to its group would reach no other test.
    with running_job("-c", SPINS, start_new_session=True) as process:
        for seconds in moments:
            begin = [str(launcher.tracer), "attach", str(process.pid), "--seconds", "1000"]
            started = launcher.start("setsid", *begin, "-o", "t.trace", "--force")
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
    expected = alone(12)
    with job(launcher, 12, "between") as led:
        led.reach(0)
        assert led.tracer("attach", "-o", "t.trace").status == 0
        led.go(0)
        assert led.end()[0].splitlines()[0] == expected.splitlines()[0]
    assert tracer.load(launcher.folder / "t.trace").certificate["complete"]


# ---- refusals -------------------------------------------------------------------------------------


def test_no_process(launcher: Launcher) -> None:
    refused(attach(launcher, 1 << 22), "no process 4194304 runs here", advice="pgrep -a python")


def test_not_python(launcher: Launcher) -> None:
    with running("sh", "-c", "echo on; read line") as process:
        refused(attach(launcher, process.pid), "is not a Python process", advice="give the number of one")


def test_torch_is_not_loaded(launcher: Launcher) -> None:
    with running(sys.executable, "-c", "print('on', flush=True); input()") as process:
        done = attach(launcher, process.pid)
        refused(done, "has not loaded torch", advice="start the job with: tracer record")


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


@pytest.mark.skipif(_build_info.CUDA_HEADERS is None, reason="torch has no CUDA")
def test_why_cuda_is_not_recorded_is_said_by_tracer_alone(launcher: Launcher) -> None:
    """Now for the recording that begins, or at its end; the output of the job is its own."""
    # With a GPU the optimizer would initialise CUDA: the driver has looked at the variable before then.
    launcher.environment |= {"CUDA_INJECTION64_PATH": "/opt/other.so", "CUDA_VISIBLE_DEVICES": ""}
    why = "CUDA_INJECTION64_PATH names another tool (/opt/other.so)"
    expected = alone(8)
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


@pytest.mark.skipif(_build_info.CUDA_HEADERS is None, reason="torch has no CUDA")
def test_a_process_that_an_attached_job_starts_says_nothing(launcher: Launcher) -> None:
    launcher.environment["CUDA_INJECTION64_PATH"] = "/opt/other.so"
    launcher.write(
        "import subprocess, sys, threading, torch; reads = threading.Thread(target=input); reads.start()\n"
        f"import time; {ON}\n{WORKS}"
        "child = 'import torch; torch.ones(1); print(1)'\n"
        "subprocess.run([sys.executable, '-c', child], stderr=subprocess.STDOUT, check=True)\n"
    )
    job = {"cwd": launcher.folder, "env": launcher.environment, "stderr": subprocess.STDOUT}
    with running_job("script.py", **job) as process:
        assert attach(launcher, process.pid, "-o", "t.trace").status == 0
        assert process.communicate("\n", timeout=TIMEOUT)[0] == "1\n"
    assert len(tracer.load(launcher.folder / "t.trace").processes) == 2


def test_another_debugger(launcher: Launcher) -> None:
    code = "import torch; print('on', flush=True); input()"
    with running_job("-c", code) as process:
        script = (
            f"import ctypes, os; c = ctypes.CDLL(None, use_errno=True); r = c.ptrace(16, {process.pid}, 0, 0)"
        )
        with running(sys.executable, "-c", f"{script}; print('on', r, flush=True); input()"):
            done = attach(launcher, process.pid)
            refused(done, "is already traced by process", advice="end that first")


def test_already_recorded(launcher: Launcher) -> None:
    code = f"import torch, tracer; r = tracer.start('own.trace'); {RUNS}"
    with running_job("-c", code, cwd=launcher.folder) as process:
        done = attach(launcher, process.pid, "-o", "t.trace")
        refused(done, "it is already being recorded, to", advice="end that recording first")
        ended = launcher.run([str(launcher.tracer), "detach", str(process.pid)])
        refused(ended, "tracer attach did not begin its recording", advice="end that where it began")
    assert launcher.traces() == ["own.trace"]


@pytest.fixture(scope="module")
def left_alone() -> Iterator[subprocess.Popen[str]]:
    """A job for several tests: no recording begins in it."""
    with running_job("-c", RUNS) as process:
        yield process
        assert process.poll() is None


@contextmanager
def stopped(process: subprocess.Popen[str]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    yield
    process.send_signal(signal.SIGCONT)


def test_not_being_recorded(launcher: Launcher, left_alone: subprocess.Popen[str]) -> None:
    done = launcher.run([str(launcher.tracer), "detach", str(left_alone.pid)])
    refused(done, "it is not being recorded", advice="begin with: tracer attach")


def test_the_main_thread_waits_in_c(launcher: Launcher) -> None:
    """The request is withdrawn: nothing happens when Python runs again."""
    code = (
        "import torch, sys, threading; done = threading.Event(); print('on', flush=True); "
        "threading.Thread(target=lambda: (input(), done.set())).start(); done.wait(); "
        "[sum(range(99)) for _ in range(999)]; print('tracer' in sys.modules, flush=True); input()"
    )
    with running_job("-c", code) as process:
        done = attach(launcher, process.pid, "-o", "t.trace", "--timeout", "1")
        refused(done, "ran no Python on its main thread in 1 s, so nothing was changed", advice="--timeout")
        assert launcher.traces() == []
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout is not None
        assert process.stdout.readline() == "False\n"


def test_a_stopped_process(launcher: Launcher, left_alone: subprocess.Popen[str]) -> None:
    with stopped(left_alone):
        done = attach(launcher, left_alone.pid, "--timeout", "1")
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


# A job whose user is not root.
NOBODYS = (
    "import torch, os, time; torch.ones(1); os.setgid(65534); os.setuid(65534); print('on', flush=True)\n"
    "while 1: torch.ones(2).sum(); time.sleep(0.001)"
)
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become somebody else")


@needs_root
def test_root_attaches_to_the_job_of_somebody_else(launcher: Launcher) -> None:
    package = Path(tracer.__file__)
    if not all(path.stat().st_mode & 0o001 for path in package.parents):
        pytest.skip("needs a tracer in a folder that all may read")
    with tempfile.TemporaryDirectory() as folder, running_job("-c", NOBODYS) as process:
        os.chmod(folder, 0o777)
        done = attach(launcher, process.pid, "--seconds", "0.2", "-o", f"{folder}/t.trace")
        assert done.status == 0, done.err
        assert tracer.load(f"{folder}/t.trace").certificate["complete"]
        assert os.stat(f"{folder}/t.trace").st_uid == 65534
        os.chmod(folder, 0o700)
        done = attach(launcher, process.pid, "--seconds", "0.2", "-o", f"{folder}/u.trace")
        refused(
            done,
            f"as nobody, whose job it is: cannot write {folder}/u.trace: Permission denied",
            advice="give another place with -o",
        )
        assert "Errno" not in done.err
        assert os.listdir(folder) == ["t.trace"]


@needs_root
def test_a_script_in_a_file_of_root(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python 3.14 takes it; here gdb has the job execute that file."""

    def remote_exec(pid: int, file: str) -> None:
        gdb.inject(Process(pid), gdb.find(), f"exec(open({file!r}).read())", 30)

    if hasattr(sys, "remote_exec"):
        pytest.skip("this Python's own is in all tests of this file")
    monkeypatch.setattr(sys, "remote_exec", remote_exec, raising=False)
    with tempfile.TemporaryDirectory() as folder, running_job("-c", NOBODYS) as process:
        os.chmod(folder, 0o777)
        path = f"{folder}/t.trace"
        done = CliRunner().invoke(app, ["attach", str(process.pid), "--seconds", "0.2", "-o", path])
        assert done.exit_code == 0, done.output
        assert tracer.load(path).certificate["complete"]
        assert os.stat(path).st_uid == 65534


@needs_root
def test_a_tracer_that_the_user_of_the_job_may_not_read(launcher: Launcher) -> None:
    """As the one of root's own folder."""
    hidden = launcher.folder / "hidden"
    shutil.copytree(Path(tracer.__file__).parent, hidden / "tracer")
    hidden.chmod(0o700)
    with tempfile.TemporaryDirectory() as folder, running_job("-c", NOBODYS) as process:
        os.chmod(folder, 0o777)
        done = attach(launcher, process.pid, "-o", f"{folder}/", extra={"PYTHONPATH": str(hidden)})
        assert os.listdir(folder) == []
    refused(
        done,
        f"its user may not read tracer, which is in {hidden}/tracer",
        advice="use a tracer that is installed where all may read it",
    )


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
    environment = {**os.environ, "RANK": "3", "WORLD_SIZE": "8"}
    with running(sys.executable, "-c", RUNS, env=environment) as process:
        for output, name in (("made/", "made/rank3.trace"), ("r%r.%p.trace", f"r3.{process.pid}.trace")):
            done = attach(launcher, process.pid, "--seconds", "0.1", "-o", output)
            assert done.status == 0, done.err
            assert (launcher.folder / name).exists(), done.err
    with running_job("-c", RUNS) as process:
        done = attach(launcher, process.pid, "-o", "r%r.trace")
        refused(done, "this process has no rank", advice="use %p or leave %r out")
        done = attach(launcher, process.pid, "-o", "r%r.%p.trace")
        refused(done, "this process has no rank", advice="are not set; leave %r out")


def test_a_long_wait_says_what_for(launcher: Launcher, left_alone: subprocess.Popen[str]) -> None:
    with stopped(left_alone):
        ours, theirs = pty.openpty()
        command = [str(launcher.tracer), "attach", str(left_alone.pid), "--timeout", "4"]
        terminal = os.environ | {"TERM": "xterm"}  # on a dumb one no progress is shown
        done = subprocess.run(command, stderr=theirs, cwd=launcher.folder, env=terminal, check=False)
        os.close(theirs)
        said = os.read(ours, 1 << 16).decode()
        os.close(ours)
        assert done.returncode == 2
        assert f"waiting until the main thread of process {left_alone.pid} runs Python" in said
