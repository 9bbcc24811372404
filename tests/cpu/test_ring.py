"""`tracer record --max-size`: the newest hops in the place of the oldest, or a stop."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import polars as pl
import pytest
from launching import TIMEOUT, Launcher

import tracer

MIB = 1 << 20
LOOP = """
import sys, torch
rows = torch.ones(4, 4, requires_grad=True)
optimizer = torch.optim.SGD([rows], lr=0.0)
for step in range(int(sys.argv[1])):
    for _ in range(100):
        (rows * 2.0).sum().backward()
    optimizer.step()
print("done")
"""


def recorded(launcher: Launcher, script: str, *options: str) -> tuple[tracer.Trace, str]:
    launcher.write(script)
    run = launcher.record("-o", "run.trace", *options)
    assert run.status == 0, run.err
    return tracer.load(launcher.folder / "run.trace"), run.said


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> tuple[tracer.Trace, str, int]:
    """A recording of about 25 MiB in a ring of 16, what was said, and the size of the file."""
    launcher = Launcher(tmp_path_factory.mktemp("ring"))
    trace, said = recorded(launcher, LOOP, "--max-size", "16M", "script.py", "300")
    return trace, said, (launcher.folder / "run.trace").stat().st_size


@pytest.mark.promise("record", "docs/record.md#a-largest-size")
def test_the_newest_hops_are_kept_and_the_others_counted(ring: tuple[tracer.Trace, str, int]) -> None:
    trace, said, size = ring
    certificate = trace.certificate
    assert size <= 16 * MIB
    assert len(trace.hops) > 100_000
    # each step is alike, so that all hops can be counted
    per_step = trace.hops.group_by("step").len().filter(pl.col("step").is_between(298, 299))["len"].to_list()
    assert len(set(per_step)) == 1
    assert len(trace.hops) + certificate["overwritten_hops"] == pytest.approx(300 * per_step[0], abs=100)
    assert f"{certificate['overwritten_hops']:,} hops overwritten" in said
    assert "overwritten (--max-size 16M keeps the newest)" in certificate["verdict"]
    assert certificate["missing_chunks"] == certificate["damaged_chunks"] == certificate["torn_events"] == 0
    assert certificate["undefined_hops"] == 0


def test_what_is_kept_is_as_whole_as_ever(ring: tuple[tracer.Trace, str, int]) -> None:
    hops = ring[0].hops
    steps = hops["step"].drop_nulls().unique().sort().to_list()
    assert steps == list(range(steps[0], 300))
    assert steps[0] > 100
    whole = hops.filter(pl.col("step") > steps[0])
    assert whole["op"].null_count() == whole["kernel"].null_count() == whole["source"].null_count() == 0
    multiplied = whole.filter(
        (pl.col("backward_node") == "MulBackward0") & (pl.col("op") == "aten::mul.Tensor")
    )
    assert len(multiplied) >= 100 * (len(steps) - 1)
    # torch's number of a thread is written anew into every chunk: without it no forward hop is found
    assert multiplied["forward_hop"].null_count() == 0
    assert set(multiplied["source"].cast(pl.String).str.extract(r"(script\.py:\d+)$")) == {"script.py:7"}


def test_more_threads_than_slots(launcher: Launcher) -> None:
    """Each thread keeps a place of its own and goes round in it; nothing is lost uncounted."""
    threads, calls = 24, 12_000
    script = f"""
import threading, torch
begin = threading.Barrier({threads})
def work():
    ones = torch.ones(2)
    begin.wait()
    for _ in range({calls}):
        ones.neg()
    begin.wait()
threads = [threading.Thread(target=work) for _ in range({threads})]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    trace, _ = recorded(launcher, script, "--max-size", "16M", "script.py")
    kept = trace.hops.filter(pl.col("op") == "aten::neg")
    assert kept.n_unique("thread") > 12
    neg = len(kept) + trace.certificate["overwritten_hops"]
    assert neg == pytest.approx(2 * threads * calls, rel=0.01)
    assert (launcher.folder / "run.trace").stat().st_size < 16 * MIB + threads * MIB


def test_forked_processes_share_the_ring(launcher: Launcher) -> None:
    script = """
import os, torch
ones = torch.ones(2)
def work(calls):
    for _ in range(calls):
        ones.neg()
for _ in range(3):
    if os.fork() == 0:
        work(40_000)
        os._exit(0)
    os.wait()
work(120_000)
"""
    trace, _ = recorded(launcher, script, "--max-size", "16M", "script.py")
    kept = trace.hops.filter(pl.col("op") == "aten::neg")
    assert len(kept) + trace.certificate["overwritten_hops"] == pytest.approx(480_000, rel=0.01)
    # the root ran last: it has taken the place of its children, but for what they left unfinished
    assert (kept["process"] == 0).mean() > 0.8


SHORT_CHILDREN = """
import os, torch
ones = torch.ones(2)
for number in range(40):
    if os.fork() == 0:
        for _ in range(20): torch.ones(number + 1).neg()
        ENDS
    os.wait()
    for _ in range(4_000): ones.cos()
torch.ones(7, 7).sin()
"""


@pytest.mark.parametrize("ends", ["raise SystemExit", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_short_processes_do_not_use_a_ring_up(launcher: Launcher, ends: str) -> None:
    """Nor its space for names: each of more children than there are slots begins where another one did."""
    trace, _ = recorded(launcher, SHORT_CHILDREN.replace("ENDS", ends), "--max-size", "16M", "script.py")
    ops = trace.hops["op"].cast(pl.String)
    assert (ops == "aten::cos").sum() > 9 * 15_000, "of 12 slots with 18,000 hops each"
    assert (ops == "aten::neg").sum() > 0
    last = trace.hops.filter(ops == "aten::sin")
    assert len(last) == 2
    assert last["source"].cast(pl.String).str.ends_with("script.py:10").all()
    certificate = trace.certificate
    assert certificate["open_hops"] == 0
    assert (
        certificate["damaged_chunks"] == certificate["undefined_hops"] == certificate["missing_chunks"] == 0
    )


def test_a_killed_ring_is_read(launcher: Launcher) -> None:
    launcher.write(
        LOOP.replace(
            "for step in range(int(sys.argv[1])):", "for step in range(10**9):\n    print(step, flush=True)"
        )
    )
    running = launcher.start(
        str(launcher.tracer), "record", "-o", "run.trace", "--max-size", "16M", "script.py", "1"
    )
    assert running.stdout is not None
    last = 0
    for line in running.stdout:
        last = int(line)
        if last == 250:
            break
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=TIMEOUT)
    trace = tracer.load(launcher.folder / "run.trace")
    assert trace.hops["step"].max() >= last - 1
    assert trace.certificate["overwritten_hops"] > 10_000
    assert trace.certificate["damaged_chunks"] == trace.certificate["undefined_hops"] == 0


def test_strings_that_have_no_space_are_counted(launcher: Launcher) -> None:
    script = """
import torch
from torch.profiler import record_function
for number in range(1, 30_000):
    with record_function(f"{number:0200d}"):
        torch.empty(number)
"""
    trace, _ = recorded(launcher, script, "--max-size", "16M", "script.py")
    other = trace.certificate["other_definitions"]
    assert other > 5_000
    last = trace.hops.filter(pl.col("op") == "aten::empty.memory_format").tail(1)
    assert last["range"].item() == "(other)"
    assert any("the ring had no space" in line for line in trace.certificate["why"])
    assert (launcher.folder / "run.trace").stat().st_size < 18 * MIB


def test_then_stop_keeps_the_oldest(launcher: Launcher) -> None:
    launcher.write(LOOP)
    run = launcher.record("-o", "run.trace", "--max-size", "4M", "--then-stop", "script.py", "100")
    assert run.status == 0
    assert run.out == "done\n"
    assert "recording stopped: the file has reached --max-size" in run.said
    assert "incomplete: the recording stopped at --max-size" in run.said
    trace = tracer.load(launcher.folder / "run.trace")
    assert trace.hops["step"].min() == 0
    assert trace.hops["step"].max() < 90
    assert trace.hops["kernel"].null_count() == 0
    assert "the recording stopped at --max-size (4M)" in trace.certificate["verdict"]
    assert 2 * MIB < (launcher.folder / "run.trace").stat().st_size <= 4 * MIB


def test_children_of_a_recording_that_has_stopped_say_nothing(launcher: Launcher) -> None:
    launcher.write(
        "import os, torch\nx = torch.ones(2)\nfor _ in range(100_000): torch.neg(x)\n"
        "for _ in range(5):\n    child = os.fork()\n    if child == 0:\n        torch.neg(x)\n"
        "        os._exit(0)\n    os.waitpid(child, 0)\n"
    )
    run = launcher.record("-o", "run.trace", "--max-size", "4M", "--then-stop", "script.py")
    assert run.status == 0, run.err
    assert run.err.count("tracer: recording stopped") == 1, run.err


def test_a_ring_is_followed(launcher: Launcher) -> None:
    launcher.write(
        LOOP.replace("    optimizer.step()", "    optimizer.step()\n    time.sleep(0.005)").replace(
            "import sys", "import sys, time"
        )
    )
    recording = launcher.start(
        str(launcher.tracer), "record", "-o", "run.trace", "--max-size", "16M", "script.py", "300"
    )
    path = Path(launcher.folder / "run.trace")
    while not path.exists():
        assert recording.poll() is None, recording.communicate()[1]
    following = launcher.start(
        str(launcher.tracer), "watch", "run.trace", "--op", "aten::sum", "--limit", "0"
    )
    out, err = following.communicate(timeout=TIMEOUT)
    assert recording.wait(timeout=TIMEOUT) == 0
    assert following.returncode == 0, err
    assert "the recording stopped; it has " in err
    missed = re.search(r"(\d+) chunks? overwritten", err)
    sums = sum("aten::sum [" in line for line in out.splitlines())
    assert sums == 60_000 or (missed and 20_000 < sums < 60_000)  # at two keys each


def test_new_shapes_without_end_take_no_memory(launcher: Launcher) -> None:
    """The tables of a thread are bounded long before the ring is full: what is new later is counted."""
    script = """
import torch
from pathlib import Path
def resident():
    return int(Path("/proc/self/status").read_text().partition("RssAnon:")[2].split()[0]) / 1024
base = torch.ones(1)
def shapes(begin, end):
    for shape in range(begin, end):
        base.expand(shape % 1000 + 1, shape // 1000 + 1).detach()
shapes(0, 1000)
before = resident()
shapes(1000, 300_000)
print(resident() - before)
"""
    launcher.write(script)
    run = launcher.record("--max-size", "256M", "-o", "run.trace", "script.py")
    assert run.status == 0, run.err
    assert float(run.out) < 5
    assert tracer.load(launcher.folder / "run.trace").certificate["other_definitions"] > 200_000
