"""Three ways to time an op, each in a process of its own, beside what tracer recorded; why time.time() lies.

    python examples/gallery/three_timers.py
    tracer record --cuda off examples/gallery/three_timers.py

Look at the table: a clock around one call tells what the first call costs beyond the op, and on a GPU
when the kernel was launched, not when it had run. CUDA events, the autograd profiler and torch.profiler
with a schedule measure warm calls on the device; without a GPU a benchmark timer replaces the
events. The last process records itself with tracer and is left out of this recording. One process each,
since CUPTI takes one user: for the same reason this is recorded with `--cuda off`. In the tree each of the
other four (processes 1 to 4; 0 only starts them) has its own calls of `aten::square`, also those that a
schedule skips: where two rows of a CPU differ, it says whether the calls of that process took longer or the
way measured more than them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from statistics import median
from typing import Any

import torch
from torch import Tensor

WARM, CALLS = 5, 20
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZE = 8000 if DEVICE == "cuda" else 400  # on a GPU long enough to outlast its launch
KINDS = [torch.profiler.ProfilerActivity.CPU, *[torch.profiler.ProfilerActivity.CUDA] * (DEVICE == "cuda")]

Times = dict[str, float]  # microseconds: one call, or the median of CALLS


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def warmed(x: Tensor) -> None:
    for _ in range(WARM):
        torch.square(x)
    wait()


def by_clock(x: Tensor) -> Times:
    times = {}
    for name, until in (("first call", None), ("warm call", None), ("warm call, waited for", wait)):
        began = time.time()
        torch.square(x)
        if until:
            until()
        times[f"time.time(), {name}"] = (time.time() - began) * 1e6
        warmed(x)
    return times


def by_events(x: Tensor) -> Times:
    warmed(x)
    if DEVICE == "cpu":
        from torch.utils.benchmark import Timer

        timer = Timer("x.square()", globals={"x": x})
        return {"benchmark timer": median(timer.timeit(1).mean for _ in range(CALLS)) * 1e6}
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(CALLS):
        torch.square(x)
    end.record()
    wait()
    return {"CUDA events": start.elapsed_time(end) * 1e3 / CALLS}


def of_profile(events: Iterable[Any]) -> float:
    calls = [event for event in events if event.name == "aten::square"]
    return median(event.device_time_total if DEVICE == "cuda" else event.cpu_time_total for event in calls)


def by_autograd(x: Tensor) -> Times:
    warmed(x)
    with torch.autograd.profiler.profile(use_device="cuda" if DEVICE == "cuda" else None) as profile:
        for _ in range(CALLS):
            torch.square(x)
    return {"autograd profiler": of_profile(profile.function_events)}


def by_schedule(x: Tensor) -> Times:
    """Of every cycle one step is skipped, WARM warm it up and CALLS are kept."""
    found: Times = {}
    with torch.profiler.profile(
        activities=KINDS,
        schedule=torch.profiler.schedule(wait=1, warmup=WARM, active=CALLS, repeat=1),
        on_trace_ready=lambda profile: found.update(
            {"torch.profiler, scheduled": of_profile(profile.events())}
        ),
    ) as profile:
        for _ in range(1 + WARM + CALLS):
            torch.square(x)
            profile.step()
    return found


def by_tracer(x: Tensor) -> Times:
    import polars as pl

    import tracer

    warmed(x)
    with tempfile.TemporaryDirectory() as folder:
        with tracer.record(f"{folder}/square.trace"):
            for _ in range(CALLS):
                torch.square(x)
            wait()
        trace = tracer.load(f"{folder}/square.trace")
        rows = trace.hops.filter(pl.col("op").cast(pl.String) == "aten::square", pl.col("parent").is_null())
        if DEVICE == "cuda":
            rows = trace.gpu_activities.filter(pl.col("kind").cast(pl.String) == "kernel")
        return {"tracer": (rows["end_ns"] - rows["start_ns"]).median() / 1e3}


WAYS = {"clock": by_clock, "events": by_events, "autograd": by_autograd, "schedule": by_schedule}


def in_a_process(way: str) -> Times:
    # what records this script would record the children too; the one that records itself is left alone
    kept = {name: value for name, value in os.environ.items() if way != "tracer" or name != "TRACER_JOIN"}
    command = [sys.executable, __file__, way]
    return json.loads(subprocess.run(command, env=kept, stdout=subprocess.PIPE, check=True).stdout)


def main() -> None:
    if len(sys.argv) > 1:
        torch.set_num_threads(1)
        x = torch.ones(SIZE, SIZE, device=DEVICE)
        wait()
        print(json.dumps(({**WAYS, "tracer": by_tracer})[sys.argv[1]](x)))
        return
    print(f"torch.square, {SIZE} x {SIZE} on {DEVICE}, microseconds a call")
    for way in [*WAYS, "tracer"]:
        for name, taken in in_a_process(way).items():
            print(f"{name:<40} {taken:>10,.1f}")


if __name__ == "__main__":
    main()
