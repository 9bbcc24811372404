"""`--memory` on the GPU: the blocks of torch's CUDA allocator, held against its own statistics."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
from launching import Launcher

import tracer
from tracer.analysis.memory_use import memory_use

SCRIPT = """\
import json, torch
torch.zeros(1, device="cuda")
torch.cuda.reset_peak_memory_stats()
weight = torch.randn(512, 512, device="cuda", requires_grad=True)
for _ in range(3):
    (torch.randn(256, 512, device="cuda") @ weight).relu().sum().backward()
    weight.grad = None
numbers = torch.cuda.memory_stats()
names = ["allocated_bytes.all.peak", "allocated_bytes.all.current", "allocated_bytes.all.allocated"]
json.dump([numbers[name] for name in names], open("witness.json", "w"))
"""


def test_the_peak_is_torchs_own(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    launcher.write(SCRIPT)
    assert launcher.record("--memory", "-o", "run.trace", "script.py").status == 0
    peak, current, allocated = json.loads((launcher.folder / "witness.json").read_text())
    trace = tracer.load(launcher.folder / "run.trace")
    (use,) = [use for use in memory_use(trace) if use.device != "cpu"]
    assert use.device == "cuda:0"
    # torch counts whole blocks of 512 bytes, and so does its report of them.
    assert (use.peak_bytes, use.allocated_bytes) == (peak, allocated)
    of_device = trace.memory.filter(pl.col("device").cast(pl.String) == "cuda:0")
    assert current in of_device["bytes"].cum_sum().to_list()
    rows = {(row["source"] or "").rpartition("/")[2]: row for row in use.table.iter_rows(named=True)}
    assert rows["script.py:4"]["own_peak_bytes"] >= 512 * 512 * 4
