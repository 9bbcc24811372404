"""Where CUDA cannot be recorded, or ends badly: the script runs as ever, and the trace says what it holds."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest
import stand_ins
from counted_launches import Counts
from launching import Launcher, Run
from lazily import torch
from seen import Recorded, launches

HERE = Path(__file__).parent

WORK = """
import torch
x = torch.ones(64, 64, device="cuda")
y = (x @ x).relu().sum()
print(y.item())
"""
ON_CPU = """
import torch
print(torch.cuda.is_available(), torch.neg(torch.ones(3)).sum().item())
"""
HELD = (
    """
import ctypes, sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint32, c_void_p

class Parameters(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("old", c_char_p), ("old_size", c_size_t)]

library = ctypes.CDLL(sys.argv[1])
callback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_uint32, c_void_p)(lambda *_: None)
subscriber = c_void_p()
parameters = Parameters(ctypes.sizeof(Parameters), b"another tool", None, 0)
result = library.cuptiSubscribe_v2(byref(subscriber), callback, None, byref(parameters))
print("subscribed", result)
"""
    + WORK
)
PROFILER = """
import torch
from torch.profiler import ProfilerActivity, profile
x = torch.ones(64, 64, device="cuda")
torch.cuda.synchronize()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
    y = (x @ x).relu()
    torch.cuda.synchronize()
kernels = [event for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA]
print("the profiler has", "kernels" if kernels else "no kernels", y.sum().item())
"""
PROFILER_FIRST = (
    PROFILER
    + """
import tracer
with tracer.record("run.trace") as recording:
    print((x @ x).sum().item())
print(recording.summary.verdict)
"""
)
NO_SYNCHRONISATION = """
import torch
x = torch.ones(64, device="cuda")
torch.cuda.synchronize()
torch.cuda._sleep(int(6e8))  # about 0.3 s
for _ in range(20):
    x.add_(1)
"""
DEVICE_ERROR = """
import time
import torch
x = torch.ones(1000, device="cuda")
for _ in range(50):
    x.add_(1)
torch.cuda.synchronize()
time.sleep(0.5)
try:
    x[torch.tensor([5000], device="cuda")].neg()
    torch.cuda.synchronize()
except RuntimeError as error:
    print("device-side assert" in str(error))
print(torch.neg(torch.ones(2)).sum().item())
"""
FORK = """
import os, sys
import torch
if (child := os.fork()) == 0:
    x = torch.ones(100, device="cuda")
    for _ in range(3):
        x.add_(1)
    print("child", x.sum().item(), flush=True)
    sys.exit(0)
print("ended", os.waitpid(child, 0)[1])
x = torch.ones(100, device="cuda")
for _ in range(5):
    x.mul_(2)
print("parent", x.sum().item())
"""
SPAWN = """
import multiprocessing
import torch

def work(n):
    x = torch.ones(100, device="cuda")
    for _ in range(n):
        x.add_(1)
    print("child", x.sum().item(), flush=True)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=work, args=(n,)) for n in (3, 4)]
    for child in children: child.start()
    for child in children: child.join()
    print([child.exitcode for child in children])
"""
THREADS = """
import threading
import torch

def work(n):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.ones(100, device="cuda")
        for _ in range(n):
            x.add_(1)
    stream.synchronize()

threads = [threading.Thread(target=work, args=(n,)) for n in (300, 400, 500, 600)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
SEVERAL_GPUS = """
import torch
results = []
for device in range(torch.cuda.device_count()):
    x = torch.ones(64, 64, device=f"cuda:{device}")
    results.append((x @ x).sum().item())
y = x.to("cuda:0")
print(results, y.sum().item())
"""
TWICE = """
import torch
import tracer
x = torch.ones(64, device="cuda")
for name in ("one.trace", "run.trace"):
    with tracer.record(name):
        x.add_(1)
    x.mul_(2)
torch.cuda.synchronize()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Future[Recorded]]:
    """Every script, run, four at a time."""
    folder = tmp_path_factory.mktemp("fail_soft")
    cupti = stand_ins.find_cupti()

    def record(
        name: str, text: str, *options: str, arguments: tuple[str, ...] = (), **extra: str
    ) -> Recorded:
        launcher = Launcher(folder / name)
        launcher.write(text)
        run = launcher.record("-o", "run.trace", *options, "script.py", *arguments, extra=extra)
        return Recorded(run, launcher.folder / "run.trace")

    def under_python(name: str, text: str) -> Recorded:
        launcher = Launcher(folder / name)
        launcher.write(text)
        return Recorded(
            launcher.python("script.py", extra={"KINETO_LOG_LEVEL": "0"}), launcher.folder / "run.trace"
        )

    def other(**options: object) -> str:
        return str(stand_ins.build_other(folder, cupti, **options))

    def without_functions() -> Recorded:
        missing = ("cuptiSubscribe_v2", "cuptiGetGraphNodeId")  # that torch does without
        library = other(version=100000, without=missing)
        return record("version", WORK, LD_PRELOAD=library)

    def without_permission() -> Recorded:
        failure = (35, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")
        library = other(version=130001, failing=("cuptiActivityEnable",), failure=failure)
        return record("permission", WORK, LD_PRELOAD=library)

    jobs: dict[str, Callable[[], Recorded]] = {
        "plain": lambda: record("plain", WORK),
        "off": lambda: record("off", WORK, "--cuda", "off"),
        "driver none": lambda: record("driver_none", WORK, "--driver", "none"),
        "held": lambda: record("held", HELD, arguments=(str(cupti),)),
        "absent": lambda: record("absent", WORK, LD_PRELOAD=str(stand_ins.build_hiding(folder, "libcupti"))),
        "version": without_functions,
        "permission": without_permission,
        "profiler": lambda: record("profiler", PROFILER),
        "profiler, off": lambda: record("profiler_off", PROFILER, "--cuda", "off"),
        "profiler first": lambda: under_python("profiler_first", PROFILER_FIRST),
        "no driver": lambda: record(
            "no_driver", ON_CPU, LD_PRELOAD=str(stand_ins.build_hiding(folder, "libcuda.so"))
        ),
        "no device": lambda: record("no_device", ON_CPU, CUDA_VISIBLE_DEVICES=""),
        "unused": lambda: record("unused", ON_CPU),
        "no synchronisation": lambda: record("no_synchronisation", NO_SYNCHRONISATION),
        "device error, python": lambda: under_python("device_error_python", DEVICE_ERROR),
        "device error": lambda: record("device_error", DEVICE_ERROR),
        "fork": lambda: record("fork", FORK),
        "spawn": lambda: record("spawn", SPAWN),
        "threads": lambda: record("threads", THREADS),
        "twice": lambda: under_python("twice", TWICE),
    }
    if torch.cuda.device_count() > 1:
        jobs["several"] = lambda: record("several", SEVERAL_GPUS)
    with ThreadPoolExecutor(4) as pool:
        return {name: pool.submit(job) for name, job in jobs.items()}


Of = Callable[[str], Recorded]


@pytest.fixture
def of(runs: dict[str, Future[Recorded]]) -> Of:
    def ended_well(name: str) -> Recorded:
        recorded = runs[name].result()
        assert recorded.run.status == 0, recorded.about()
        return recorded

    return ended_well


def said_lines(run: Run, word: str) -> list[str]:
    """The lines of tracer with this word, whatever the case."""
    return [line for line in run.said.splitlines() if word.lower() in line.lower()]


def assert_said(recorded: Recorded, word: str) -> None:
    assert said_lines(recorded.run, word), f"tracer says nothing of {word}\n{recorded.about()}"


def assert_only_hops(recorded: Recorded, state: str, *why: str) -> None:
    """CUDA is not in the trace, the certificate says why, and the hops are complete."""
    assert recorded.cuda["state"] == state, recorded.about()
    for word in why:
        assert word.lower() in recorded.cuda["why"].lower(), recorded.about()
    assert recorded.api_calls.is_empty(), recorded.about()
    assert recorded.activities.is_empty(), recorded.about()
    assert len(recorded.hops) > 0, recorded.about()
    assert recorded.hops["open"].sum() == 0, recorded.about()


def assert_adds_up(recorded: Recorded) -> None:
    assert len(launches(recorded.api_calls)) == len(recorded.kernels) > 0, recorded.about()
    assert recorded.kernels["api_call"].null_count() == 0, recorded.about()
    assert recorded.cuda["reconciles"] is True, recorded.about()
    assert recorded.cuda["state"] == "recorded", recorded.about()


# ---- CUPTI is not to be had --------------------------------------------------------------------------


def test_plain(of: Of) -> None:
    recorded = of("plain")
    assert_adds_up(recorded)
    assert recorded.run.out == "262144.0\n"
    assert recorded.cuda["driver_calls"] == "launches"


def test_cupti_held_by_another_tool_that_is_named(of: Of) -> None:
    recorded = of("held")
    assert recorded.run.out == "subscribed 0\n262144.0\n", recorded.about()
    assert_only_hops(recorded, "held", "another tool")
    assert_said(recorded, "another tool")


def test_cupti_held_by_torch_profiler(of: Of) -> None:
    recorded = of("profiler first")
    assert_only_hops(recorded, "held")
    assert recorded.cuda["why"], recorded.about()


def test_cupti_absent(of: Of) -> None:
    recorded = of("absent")
    assert recorded.run.out == "262144.0\n", recorded.about()
    assert_only_hops(recorded, "failed", "libcupti")
    assert_said(recorded, "libcupti")


def test_cupti_of_another_version(of: Of) -> None:
    recorded = of("version")
    assert recorded.run.out == "262144.0\n", recorded.about()
    assert_only_hops(recorded, "failed", "cupti")
    assert_said(recorded, "cupti")


def test_no_permission(of: Of) -> None:
    recorded = of("permission")
    assert recorded.run.out == "262144.0\n", recorded.about()
    assert_only_hops(recorded, "failed", "privileges")
    assert_said(recorded, "cupti")


# ---- torch.profiler in the script ---------------------------------------------------------------------


def test_the_script_starts_the_profiler(of: Of) -> None:
    recorded = of("profiler")
    assert "the profiler has no kernels 262144.0" in recorded.run.out, recorded.about()
    assert_adds_up(recorded)
    assert len(said_lines(recorded.run, "--cuda off")) == 1, f"one line says what to do\n{recorded.about()}"


def test_cuda_off_leaves_cupti_to_the_profiler(of: Of) -> None:
    recorded = of("profiler, off")
    assert "the profiler has kernels 262144.0" in recorded.run.out, recorded.about()
    assert_only_hops(recorded, "off")
    assert not said_lines(recorded.run, "cupti"), recorded.about()


def test_cuda_off(of: Of) -> None:
    recorded = of("off")
    assert_only_hops(recorded, "off")
    assert recorded.trace.certificate["verdict"].startswith("complete"), recorded.about()
    assert recorded.trace.environment["options"]["cuda"] == "off"


def test_driver_none(of: Of) -> None:
    recorded = of("driver none")
    assert set(recorded.api_calls["domain"]) == {"runtime"}, recorded.about()
    assert recorded.cuda["driver_calls"] == "none"
    assert len(recorded.kernels) >= 3, recorded.about()


# ---- no CUDA ---------------------------------------------------------------------------------------------


def test_no_driver(of: Of) -> None:
    recorded = of("no driver")
    assert recorded.run.out == "False -3.0\n", recorded.about()
    assert_only_hops(recorded, "no driver")
    assert recorded.trace.certificate["verdict"].startswith("complete"), recorded.about()


def test_no_device(of: Of) -> None:
    recorded = of("no device")
    assert recorded.run.out == "False -3.0\n", recorded.about()
    assert recorded.cuda["state"] in {"no driver", "not used", "recorded"}, recorded.about()
    assert recorded.activities.is_empty(), recorded.about()
    assert recorded.trace.certificate["verdict"].startswith("complete"), recorded.about()


def test_cuda_is_there_and_not_used(of: Of) -> None:
    recorded = of("unused")
    assert recorded.run.out == "True -3.0\n", recorded.about()
    assert recorded.cuda["state"] in {"not used", "recorded"}, recorded.about()
    assert recorded.activities.is_empty(), recorded.about()
    assert recorded.trace.certificate["verdict"].startswith("complete"), recorded.about()
    assert not said_lines(recorded.run, "cupti"), recorded.about()


# ---- several of everything ----------------------------------------------------------------------------


def test_several_threads_and_streams(of: Of) -> None:
    recorded = of("threads")
    assert_adds_up(recorded)
    added = recorded.kernels.join(recorded.hops.select(pl.col("id"), "op"), left_on="hop", right_on="id")
    added = added.filter(pl.col("op").str.starts_with("aten::add_"))
    assert sorted(added.group_by("stream").len()["len"]) == [300, 400, 500, 600], recorded.about()
    threads = launches(recorded.api_calls)["thread"]
    assert threads.n_unique() == 4, recorded.about()


@pytest.mark.skipif("torch.cuda.device_count() < 2", reason="one GPU here")
def test_several_gpus(of: Of) -> None:
    recorded = of("several")
    assert_adds_up(recorded)
    assert set(recorded.kernels["device"]) == set(range(torch.cuda.device_count())), recorded.about()
    assert len(recorded.trace.devices) == torch.cuda.device_count()
    copies = recorded.activities.filter(pl.col("kind") == "memcpy")["name"].to_list()
    assert any("PtoP" in name or "DtoD" in name for name in copies), str(copies)


def test_fork_before_cuda(of: Of) -> None:
    recorded = of("fork")
    assert recorded.run.out == "child 400.0\nended 0\nparent 3200.0\n", recorded.about()
    assert_adds_up(recorded)
    ran = recorded.kernels.join(recorded.hops.select(pl.col("id"), "op"), left_on="hop", right_on="id")
    ran = ran.filter(pl.col("op").str.contains("add_|mul_"))
    assert sorted(ran.group_by("process", "op").len()["len"]) == [3, 5], recorded.about()
    hops = recorded.hops.select(pl.col("id"), hop_process="process")
    joined = recorded.kernels.join(hops, left_on="hop", right_on="id")
    assert (joined["process"] == joined["hop_process"]).all(), recorded.about()


def test_spawned_processes(of: Of) -> None:
    recorded = of("spawn")
    assert recorded.run.out.splitlines()[-1] == "[0, 0]", recorded.about()
    assert_adds_up(recorded)
    ran = recorded.kernels.join(recorded.hops.select(pl.col("id"), "op"), left_on="hop", right_on="id")
    ran = ran.filter(pl.col("op").str.contains("add_"))
    assert sorted(ran.group_by("process").len()["len"]) == [3, 4], recorded.about()


def test_two_recordings_in_one_process(of: Of) -> None:
    recorded = of("twice")
    assert_adds_up(recorded)
    assert len(recorded.kernels) == 1, recorded.about()
    first = Recorded(recorded.run, recorded.path.with_name("one.trace"))
    assert_adds_up(first)
    assert len(first.kernels) == 1, first.about()


# ---- bad ends ---------------------------------------------------------------------------------------------


def test_exit_without_synchronising(of: Of) -> None:
    recorded = of("no synchronisation")
    assert_adds_up(recorded)
    assert len(recorded.kernels) >= 22, recorded.about()
    longest = (recorded.kernels["end_ns"] - recorded.kernels["start_ns"]).max()
    assert longest > 100_000_000, recorded.about()


def test_device_error_in_mid_run(runs: dict[str, Future[Recorded]]) -> None:
    recorded, plain = runs["device error"].result(), runs["device error, python"].result().run
    assert (recorded.run.status, recorded.run.out) == (plain.status, plain.out), recorded.about()
    assert recorded.run.out == "True\n-2.0\n", recorded.about()
    before = recorded.kernels.join(recorded.hops.select(pl.col("id"), "op"), left_on="hop", right_on="id")
    assert len(before.filter(pl.col("op").str.starts_with("aten::add_"))) == 50, recorded.about()
    failed = recorded.api_calls.filter(pl.col("result") != 0)
    assert not failed.is_empty(), recorded.about()
    assert 710 in failed["result"].to_list(), f"cudaErrorAssert\n{failed}\n{recorded.about()}"
    index = recorded.hops.filter(pl.col("op").str.starts_with("aten::index."))
    assert not index.is_empty(), "the op whose kernel failed"
    assert "aten::neg" in recorded.hops["op"].to_list()[-12:], "hops after the error"
    missing = len(launches(recorded.api_calls)) - len(recorded.kernels)
    assert missing == recorded.cuda["launches_without_kernel"], recorded.about()
    assert missing <= 5, recorded.about()


KILL_AFTER = 1.5  # seconds of launching
FLUSHED = 1.0  # seconds before the kill, of which all kernels must be there; a flush is due each 0.2 s


def test_kill_in_mid_run(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    counts = tmp_path / "counts"
    words = Counts(counts).words
    process = launcher.start(
        str(launcher.tracer), "record", "-o", "run.trace", str(HERE / "counted_launches.py"), str(counts)
    )
    began = time.monotonic()
    while not words[Counts.BEGUN]:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() - began < 120, "nothing was launched"
        time.sleep(0.01)
    time.sleep(KILL_AFTER - FLUSHED)
    flushed = words[Counts.ENDED]
    time.sleep(FLUSHED)
    process.send_signal(signal.SIGKILL)
    out, err = process.communicate()
    recorded = Recorded(Run(process.returncode, out, err), tmp_path / "run.trace")
    assert recorded.run.status == -signal.SIGKILL
    adds = recorded.hops.filter(pl.col("op").str.starts_with("aten::add_"), pl.col("parent").is_null())
    begun, ended = words[Counts.BEGUN], words[Counts.ENDED]
    launched = launches(recorded.api_calls)
    in_adds = launched.join(
        recorded.hops.filter(pl.col("op").str.starts_with("aten::add_")).select(pl.col("id")),
        left_on="hop",
        right_on="id",
    )
    seen = (
        f"begun {begun}, ended {ended}, {FLUSHED} s before the kill {flushed}; "
        f"{len(adds)} op calls, {len(in_adds)} launches, {len(recorded.kernels)} kernels\n{recorded.about()}"
    )
    assert begun > 1000, seen
    # one call of add_ was made before the counting
    assert begun <= len(adds) <= begun + 1, seen
    assert ended + 1 <= len(in_adds) <= begun + 1, seen
    assert flushed <= len(recorded.kernels) <= len(launched), seen
    assert recorded.cuda["launches_without_kernel"] == len(launched) - len(recorded.kernels), seen
    assert recorded.kernels["api_call"].null_count() == 0, seen
    if len(launched) > len(recorded.kernels):
        assert not recorded.cuda["reconciles"], seen
        assert any("kernel" in reason for reason in recorded.trace.certificate["why"]), seen
    assert recorded.trace.certificate["closed_in_order"] == {0: False}, seen
    open_calls = recorded.api_calls.filter(pl.col("open").fill_null(False))
    assert len(open_calls) <= 2, f"{open_calls}\n{seen}"
