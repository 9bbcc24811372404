"""`tracer.dump()` and SIGUSR2: the last window as a trace of its own, while the recording goes on."""

from __future__ import annotations

import os
import re
import resource
import select
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from launching import TIMEOUT, Launcher
from lazily import torch

import tracer
from tracer.analysis.last_ops import last_ops


def test_the_recording_goes_on(tmp_path: Path) -> None:
    with tracer.record(tmp_path / "run.trace", max_size="16M") as recording:
        torch.ones(2).sin()
        first = tracer.dump()
        torch.ones(2).cos()
        second = tracer.dump(tmp_path / "mine.trace")
        torch.ones(2).tan()
    assert recording.summary is not None
    assert recording.summary.complete
    assert first == str(tmp_path / "run.dump0001.trace")
    assert second == str(tmp_path / "mine.trace")
    names = [{"sin"}, {"sin", "cos"}, {"sin", "cos", "tan"}]
    for path, expected in zip((first, second, tmp_path / "run.trace"), names, strict=True):
        trace = tracer.load(path)
        ops = set(trace.hops["op"].cast(pl.String))
        assert {name for name in ("sin", "cos", "tan") if f"aten::{name}" in ops} == expected
        counts = ("damaged_chunks", "missing_chunks", "torn_events", "undefined_hops")
        assert [trace.certificate[count] for count in counts] == [0, 0, 0, 0]
    assert tracer.load(first).certificate["verdict"].startswith("a dump, made while the recording went on: ")


def test_without_a_ring_everything_is_dumped(tmp_path: Path) -> None:
    with tracer.record(tmp_path / "run.trace"):
        torch.ones(2).sin()
        assert "aten::sin" in set(tracer.load(tracer.dump()).hops["op"].cast(pl.String))


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(tracer.RecordingError, match=r"no recording is running; begin one with"):
        tracer.dump()
    with tracer.record(tmp_path / "run.trace"):
        with pytest.raises(tracer.RecordingError, match=r"run\.trace already exists; give another path"):
            tracer.dump(tmp_path / "run.trace")
        with pytest.raises(
            tracer.RecordingError, match=r"cannot dump to .*No such file.*; give another path"
        ):
            tracer.dump(tmp_path / "no" / "run.trace")


# seccomp: openat (257, on aarch64 56) with O_TMPFILE fails with EOPNOTSUPP, as where there are no such files.
WITHOUT_UNNAMED_FILES = """\
import ctypes, os, platform, struct
import torch, tracer
program = b"".join(struct.pack("HBBI", *each) for each in (
    (0x20, 0, 0, 0), (0x15, 0, 4, 257 if platform.machine() == "x86_64" else 56),
    (0x20, 0, 0, 32), (0x54, 0, 0, os.O_TMPFILE), (0x15, 0, 1, os.O_TMPFILE), (0x06, 0, 0, 0x0005005F),
    (0x06, 0, 0, 0x7FFF0000)))
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
with tracer.record("run.trace"):
    torch.ones(2).sin()
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(Filter(7, program)), 0, 0) == 0, ctypes.get_errno()
    tracer.dump("mine.trace")
"""


def test_where_each_file_has_a_name_no_link_is_followed(launcher: Launcher) -> None:
    launcher.write(WITHOUT_UNNAMED_FILES)
    theirs, link = launcher.folder / "theirs", launcher.folder / "mine.trace.part"
    theirs.write_text("theirs")
    link.symlink_to(theirs)
    run = launcher.python("script.py")
    assert (run.status, run.err) == (0, "")
    assert theirs.read_text() == "theirs"
    assert not link.is_symlink()
    assert not link.exists()
    assert "aten::sin" in set(tracer.load(launcher.folder / "mine.trace").hops["op"].cast(pl.String))


def wait_for(found: Callable[[], object]) -> None:
    end = time.monotonic() + TIMEOUT
    while not found():
        assert time.monotonic() < end
        time.sleep(0.01)


def lead(launcher: Launcher, script: str, *options: str, sent: int = 1) -> tuple[int, str, str]:
    """Run the script, send SIGUSR2 when it has made the file `ready`; its status, stdout and stderr."""
    launcher.write(script)
    command = [str(launcher.tracer), "record", *options, "-o", "run.trace", "script.py"]
    process = launcher.start(*command)
    ready = launcher.folder / "ready"
    wait_for(lambda: ready.exists() or process.poll() is not None)
    for number in range(sent):
        process.send_signal(signal.SIGUSR2)
        if "--max-size" in options:
            wait_for((launcher.folder / f"run.dump{number + 1:04d}.trace").exists)
    (launcher.folder / "go").touch()
    if (launcher.folder / "fifo").exists():
        (launcher.folder / "fifo").write_text("x")
    out, err = process.communicate(timeout=TIMEOUT)
    return process.returncode, out, err


WAITS_IN_C = """
import ctypes, os, torch
torch.ones(2).sin()
os.mkfifo("fifo")
fifo = os.open("fifo", os.O_RDWR)
libc = ctypes.PyDLL(None)  # keeps the GIL: no Python runs meanwhile
open("ready", "w").close()
libc.read(fifo, ctypes.create_string_buffer(8), 1)
torch.ones(2).cos()
print("end")
"""


@pytest.mark.promise("record", "docs/record.md#a-flight-recorder")
def test_a_signal_while_the_main_thread_waits_in_c(launcher: Launcher) -> None:
    """The call goes on waiting after each signal."""
    assert lead(launcher, WAITS_IN_C, "--max-size", "16M", sent=2)[:2] == (0, "end\n")
    for number in (1, 2):
        trace = tracer.load(launcher.folder / f"run.dump000{number}.trace")
        ops = set(trace.hops["op"].cast(pl.String))
        assert "aten::sin" in ops
        assert "aten::cos" not in ops
    assert "aten::cos" in set(tracer.load(launcher.folder / "run.trace").hops["op"].cast(pl.String))


STORM = """
import os, time, torch
x = torch.ones(2)
for _ in range(200_000):
    x.neg()
open("ready", "w").close()
done = 0
while not os.path.exists("go"):
    x.cos()
    done += 1
print(done)
"""


def test_a_storm_of_signals_leaves_the_main_thread_time(launcher: Launcher) -> None:
    """As long after a dump as it took, the signals are merged; the last one is not lost."""
    launcher.write(STORM)
    command = [str(launcher.tracer), "record", "--max-size", "64M", "--max-dumps", "2", "-o", "run.trace"]
    process = launcher.start(*command, "script.py")
    wait_for((launcher.folder / "ready").exists)
    end = time.monotonic() + 3
    sent = 0
    while time.monotonic() < end:
        process.send_signal(signal.SIGUSR2)
        sent += 1
        time.sleep(0.001)
    before = last_dump(launcher)
    wait_for(lambda: last_dump(launcher) > before or time.monotonic() > end + 5)
    (launcher.folder / "go").touch()
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, err
    assert 1 < last_dump(launcher) < sent / 2
    assert int(out) > 1000


def last_dump(launcher: Launcher) -> int:
    return max((int(path.stem[8:]) for path in launcher.folder.glob("run.dump*.trace")), default=0)


HANDLES = """
import os, signal, time, torch
{before}
torch.ones(2).sin()
{after}
open("ready", "w").close()
while not os.path.exists("go"):
    time.sleep(0.001)
print("end")
"""
CLAIM = "signal.signal(signal.SIGUSR2, lambda *_: print('mine', flush=True))"


def test_a_handler_of_the_script_stays(launcher: Launcher) -> None:
    late = HANDLES.format(before="", after=CLAIM)
    early = "import signal\n" + CLAIM + "\n" + HANDLES.format(before="", after="")
    for script in (early, late):
        for mark in ("ready", "go"):
            (launcher.folder / mark).unlink(missing_ok=True)
        launcher.write(script)
        process = launcher.start(
            str(launcher.tracer), "record", "--max-size", "16M", "--force", "-o", "run.trace", "script.py"
        )
        wait_for((launcher.folder / "ready").exists)
        process.send_signal(signal.SIGUSR2)
        assert process.stdout is not None
        assert process.stdout.readline() == "mine\n"
        (launcher.folder / "go").touch()
        assert process.communicate(timeout=TIMEOUT)[0] == "end\n"
        assert process.returncode == 0
    assert launcher.traces() == ["run.trace"]


def test_without_a_ring_the_signal_ends_the_process(launcher: Launcher) -> None:
    script = HANDLES.format(before="", after="")
    assert lead(launcher, script)[0] == -signal.SIGUSR2


def test_afterwards_the_signal_is_as_before(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGUSR2)
    assert before == signal.SIG_DFL
    with tracer.record(tmp_path / "run.trace", max_size="16M"):
        os.kill(os.getpid(), signal.SIGUSR2)
    assert (tmp_path / "run.dump0001.trace").exists()
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGUSR2)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGUSR2


AT_THE_END = """
import os, torch
class Late:
    def __init__(self): self.kill, self.pid = os.kill, os.getpid
    def __del__(self): self.kill(self.pid(), 12)
kept = Late()
torch.ones(2)
if os.fork() == 0: raise SystemExit
print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


@pytest.mark.fresh
def test_a_signal_after_the_end_of_the_recording_does_nothing(launcher: Launcher) -> None:
    """Who sends one each minute cannot know that the job ends. The globals of a script go after atexit."""
    launcher.write(AT_THE_END)
    run = launcher.record("--max-size", "16M", "-o", "run.trace", "script.py")
    assert (run.status, run.out) == (0, "0\n"), run.err
    assert launcher.traces() == ["run.trace"]


def test_beside_threads_that_write(launcher: Launcher) -> None:
    """Dumps of a ring that goes round all the time are whole, but for the pieces taken meanwhile."""
    script = """
import threading, time, torch, tracer
def work():
    ones = torch.ones(2)
    while not over:
        ones.neg()
over = False
with tracer.record("run.trace", max_size="16M"):
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads: thread.start()
    for _ in range(5):
        time.sleep(0.3)
        tracer.dump()
    over = True
    for thread in threads: thread.join()
"""
    launcher.write(script)
    assert launcher.python("script.py").status == 0
    for number in range(1, 6):
        trace = tracer.load(launcher.folder / f"run.dump000{number}.trace")
        assert len(trace.hops) > 1000
        assert trace.certificate["undefined_hops"] == 0
        assert trace.certificate["damaged_chunks"] <= 2


RANK = """
import os, sys, time, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=rank, world_size=2)
x = torch.ones(4)
dist.all_reduce(x)
open(f"ready.{rank}", "w").close()
while rank and not os.path.exists("go"):
    time.sleep(0.01)
y = x * 2
dist.all_reduce(y)
print("end", y[0].item())
dist.destroy_process_group()
"""


@pytest.mark.promise(
    "fleet", "report", "docs/jobs.md#a-job-that-hangs", "docs/jobs.md#fleets-of-many-ranks-tracer-fleet"
)
def test_a_rank_that_waits_for_a_collective(launcher: Launcher) -> None:
    """Rank 0 waits in C for rank 1; its dump, and the report of it, say for which collective and how long."""
    launcher.write(RANK)
    ranks = []
    for rank in range(2):
        launcher.environment |= {"RANK": str(rank), "WORLD_SIZE": "2"}
        command = [str(launcher.tracer), "record", "--max-size", "16M", "-o", "run.trace", "script.py"]
        ranks.append(launcher.start(*command))
    wait_for(lambda: all((launcher.folder / f"ready.{rank}").exists() for rank in range(2)))
    time.sleep(1)
    for rank, process in enumerate(ranks):
        process.send_signal(signal.SIGUSR2)
        wait_for((launcher.folder / f"run.rank{rank}.dump0001.trace").exists)
    (launcher.folder / "go").touch()
    for process in ranks:
        out, err = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, out) == (0, "end 8.0\n"), err
    trace = tracer.load(launcher.folder / "run.rank0.dump0001.trace")
    threads = last_ops(trace.hops, trace.certificate["dumped_ns"]).filter(pl.col("collective").is_not_null())
    assert threads["collective"].to_list() == ["c10d::allreduce_"]
    assert threads["source"].str.ends_with("script.py:11").all()
    assert threads["since_ns"][0] > 500_000_000
    for name in ("RANK", "WORLD_SIZE"):
        del launcher.environment[name]
    dumps = launcher.folder / "dumps"
    dumps.mkdir()
    for path in launcher.folder.glob("run.rank?.dump0001.trace"):
        path.rename(dumps / path.name)
    said = (
        r"Rank 1 did not reach(\*\*)? `?c10d::allreduce_`? of `?script\.py:11`? \(call 1 of group `?0`?\)\. "
    )
    said += r"Rank 0 has waited there for [12]\.\d s\. Rank 1 left `?c10d::allreduce_`? of `?script\.py:6`? "
    job = launcher.run([str(launcher.tracer), "report", "dumps"])
    assert job.status == 0, job.err
    assert re.search(said, job.out.split("\n\n")[2]), job.out
    fleet = launcher.run([str(launcher.tracer), "fleet", "dumps"])
    assert fleet.status == 0, fleet.err
    assert re.search(said, fleet.out.splitlines()[1]), fleet.out
    report = launcher.run([str(launcher.tracer), "report", "dumps/run.rank0.dump0001.trace"])
    assert report.status == 0, report.err
    assert "## Where each thread was" in report.out
    assert "no op since" in report.out
    assert "c10d::allreduce\\_, call 1 of group 0 |" in report.out
    assert "ended without a stop" not in report.out
    assert "c10d::allreduce_" in report.out


def test_a_thread_in_an_op(launcher: Launcher) -> None:
    script = """
import os, time, torch
@torch.library.custom_op("dump::stays", mutates_args=())
def stays(x: torch.Tensor) -> torch.Tensor:
    open("ready", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.01)
    return x.clone()
stays(torch.ones(2))
"""
    assert lead(launcher, script, "--max-size", "16M")[0] == 0
    trace = tracer.load(launcher.folder / "run.dump0001.trace")
    [thread] = last_ops(trace.hops, trace.certificate["dumped_ns"]).filter(pl.col("is_in")).to_dicts()
    assert thread["op"] == "dump::stays"
    assert thread["source"].endswith("script.py:9")


SAYS_NOTHING = """
import os, time, torch
torch.ones(2).sin()
open("ready", "w").close()
while not os.path.exists("go"):
    time.sleep(0.001)
torch.ones(2).cos()
print("end")
"""


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        ("taken", "there is no higher number; move the dumps away, and send SIGUSR2 again"),
        ("deleted", "the trace or its folder was deleted; record again"),
        ("full", "no space is left; free some, and send SIGUSR2 again"),
    ],
)
def test_a_dump_that_fails_says_why_and_the_script_goes_on(
    launcher: Launcher, tmp_path: Path, failure: str, why: str
) -> None:
    job = launcher.folder / "job"
    job.mkdir()
    launcher.write(SAYS_NOTHING)
    command = [str(launcher.tracer), "record", "--max-size", "16M", "-o", "job/run.trace", "script.py"]
    process = launcher.start(*command)
    wait_for((launcher.folder / "ready").exists)
    if failure == "taken":
        (job / "run.dump99999999.trace").touch()
    elif failure == "deleted":
        shutil.move(job, launcher.folder / "moved")
    else:  # Python ignores SIGXFSZ, so a file that grows beyond its limit is an error
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    process.send_signal(signal.SIGUSR2)
    assert process.stderr is not None
    assert select.select([process.stderr], [], [], 60)[0], "it says nothing"
    said = process.stderr.readline()
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    shown = "run.trace" if failure == "taken" else "run.dump0001.trace"
    assert said == f"tracer: no dump was written to {job}/{shown}: {why}\n"
    assert {path.name for path in job.glob("*")} <= {"run.trace", "run.dump99999999.trace"}
    (launcher.folder / "go").touch()
    out, _ = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out) == (0, "end\n")
