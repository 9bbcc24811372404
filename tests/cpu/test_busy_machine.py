"""Steps whose thread had to wait for a core, and steps that only slept."""

from __future__ import annotations

import polars as pl
from launching import Launcher

import tracer
from tracer.analysis.step_times import preempted, step_times
from tracer.report.step_tables import about_busy

PROGRAM = """
import os, subprocess, time
core = {min(os.sched_getaffinity(0))}
os.sched_setaffinity(0, core)
import torch, tracer
torch.set_num_threads(1)
x = torch.ones(256, 256)
def work(end):
    while time.thread_time() < end:
        x @ x
    tracer.step()
others = []
for i in range(12):
    if i == 4:
        others = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(3)]
    if i == 8:
        for one in others:
            one.kill()
            one.wait()
    if i >= 8:
        time.sleep(0.1)
    work(time.thread_time() + 0.03)
"""


def test_a_step_that_waited_for_a_core_is_preempted_and_one_that_slept_is_not(launcher: Launcher) -> None:
    launcher.write(PROGRAM)
    run = launcher.record("-o", "t.trace", "script.py")
    assert run.status == 0, run.err
    trace = tracer.load(launcher.folder / "t.trace")
    times = step_times(trace).filter(pl.col("step").is_not_null())
    assert times.select(preempted().alias("busy"))["busy"].to_list()[4:8] == [True] * 4
    assert all(cpu > 25_000_000 for cpu in times["cpu_ns"].to_list()[1:])
    for step in times.to_dicts()[8:]:
        assert step["preempted_ns"] + step["cpu_ns"] < step["wall_ns"] - 90_000_000  # of which it slept 100
    assert "The machine was busy" in about_busy(times)
