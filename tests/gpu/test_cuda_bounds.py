"""Memory that a recording takes stays bounded, and what does not fit is counted."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from launching import Launcher
from seen import Recorded, launches

MANY = """
import json, re, sys, time
import torch

def anonymous_mib():
    with open("/proc/self/status") as file:
        return int(re.search(r"RssAnon:\\s+(\\d+)", file.read())[1]) / 1024

x = torch.zeros(1, device="cuda")
launches, sizes = int(sys.argv[1]), []
for quarter in range(5):
    for _ in range(launches // 5):
        x.add_(1)
    torch.cuda.synchronize()
    sizes.append(anonymous_mib())
print(json.dumps({"sizes": sizes, "total": x.item()}))
"""

BURST = """
import torch
x = torch.zeros(1, device="cuda")
x.add_(1)
torch.cuda.synchronize()
torch.cuda._sleep(int(1.5e9))  # about 0.8 s, in which the launches below queue up
for _ in range(5000):
    x.add_(1)
torch.cuda.synchronize()
print(x.item())
"""
LAUNCHES = 200_000


def record(folder: Path, text: str, *arguments: str) -> Recorded:
    launcher = Launcher(folder)
    launcher.write(text)
    return Recorded(launcher.record("-o", "run.trace", "script.py", *arguments), folder / "run.trace")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("many"), MANY, str(LAUNCHES))


def test_memory_does_not_grow_with_launches(many: Recorded) -> None:
    assert many.run.status == 0, many.about()
    said = json.loads(many.run.out)
    assert said["total"] == LAUNCHES
    sizes = said["sizes"]
    assert sizes[-1] - sizes[0] < 48, f"MiB of anonymous memory after each fifth: {sizes}\n{many.about()}"


def test_many_launches_are_all_there_or_counted(many: Recorded) -> None:
    launched = len(launches(many.api_calls))
    assert launched >= LAUNCHES, many.about()
    assert len(many.kernels) + many.cuda["dropped"] == launched, many.about()
    assert many.cuda["dropped"] == 0, f"a buffer pool that cannot keep up with one thread\n{many.about()}"
    assert many.trace.certificate["verdict"].startswith("complete"), many.about()


def test_buffers_are_a_pool(many: Recorded) -> None:
    assert 0 < many.cuda["buffers"] <= 256, many.about()
    assert 0 < many.cuda["buffer_bytes"] <= 128 << 20, many.about()


def test_a_queue_behind_a_long_kernel(tmp_path: Path) -> None:
    burst = record(tmp_path, BURST)
    assert burst.run.out == "5001.0\n", burst.about()
    assert len(burst.kernels) + burst.cuda["dropped"] == len(launches(burst.api_calls)), burst.about()
    longest = burst.kernels.sort(pl.col("end_ns") - pl.col("start_ns"), descending=True).row(0, named=True)
    assert longest["end_ns"] - longest["start_ns"] > 200_000_000, str(longest)
    waiting = burst.kernels.filter(pl.col("start_ns") >= longest["end_ns"])
    assert len(waiting) == 5000, f"the launches ran after it\n{burst.about()}"
