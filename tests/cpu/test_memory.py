"""`--memory`: the blocks that torch's allocators gave out and took back."""

from __future__ import annotations

import json
from collections import Counter

import polars as pl
import pytest
from launching import Launcher, Run
from lazily import torch

import tracer
from tracer.analysis.memory_use import memory_use
from tracer.report.memory_tables import without_blocks
from tracer.trace import Trace

MIB = 1 << 20
KNOWN = """\
import torch

def kept():
    return torch.zeros(256, 1024)  # 1 MiB

def passing():
    return torch.ones(512, 1024)  # 2 MiB

values = [kept() for _ in range(3)]
for _ in range(4):
    passing()
small = passing().add_(1)
del small
"""
# torch's own memory profiler beside it.
WITNESS = """\
import json, torch
from torch.profiler import ProfilerActivity, profile

model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
optimizer = torch.optim.Adam(model.parameters())
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
    torch.neg(torch.ones(12345))  # the first block of the comparison
    for _ in range(3):
        model(torch.randn(32, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
events.sort(key=lambda event: event.start_ns())
json.dump([event.nbytes() for event in events], open("witness.json", "w"))
"""


def recorded(launcher: Launcher, script: str, *options: str) -> Trace:
    launcher.write(script)
    assert launcher.record("-o", "run.trace", *options, "script.py").status == 0
    return tracer.load(launcher.folder / "run.trace")


def read(launcher: Launcher, *arguments: str) -> Run:
    return launcher.run([str(launcher.tracer), *arguments])


def test_the_peak_and_who_asked_for_it(launcher: Launcher) -> None:
    trace = recorded(launcher, KNOWN, "--memory")
    (use,) = memory_use(trace)
    assert (use.device, use.process, use.unknown) == ("cpu", 0, 0)
    rows = {(row["source"] or "").rpartition("/")[2]: row for row in use.table.iter_rows(named=True)}
    kept, passing = rows["script.py:4"], rows["script.py:7"]
    assert 5 * MIB <= use.peak_bytes < 5 * MIB + 64
    assert (kept["op"], kept["blocks"]) == ("aten::zeros", 3)
    assert (kept["allocated_bytes"], kept["own_peak_bytes"], kept["freed_bytes"]) == (3 * MIB, 3 * MIB, 0)
    assert (passing["blocks"], passing["allocated_bytes"]) == (5, 10 * MIB)
    assert (passing["own_peak_bytes"], passing["freed_bytes"]) == (2 * MIB, 10 * MIB)
    assert kept["peak_bytes"] + passing["peak_bytes"] == 5 * MIB
    assert 3 * MIB <= use.end_bytes < 3 * MIB + 64


def test_each_block_that_torchs_profiler_sees(launcher: Launcher) -> None:
    trace = recorded(launcher, WITNESS, "--memory")
    witness = json.loads((launcher.folder / "witness.json").read_text())
    first = trace.memory.filter(pl.col("bytes") == 12345 * 4)["id"][0]
    # Of blocks from before it began torch's profiler sees no end.
    since = trace.memory.filter(pl.coalesce("allocated_by", "id") >= first)
    assert len(witness) > 100
    assert since["bytes"].to_list()[: len(witness)] == witness


def test_a_block_leads_to_its_hop_and_its_end(launcher: Launcher) -> None:
    trace = recorded(launcher, "import torch\nx = torch.ones(1000)\ny = x @ x\ndel x\n", "--memory")
    allocated = trace.memory.row(by_predicate=pl.col("bytes") == 4000, named=True)
    hop = trace.hops.row(allocated["hop"], named=True)
    assert (hop["op"], hop["key"]) == ("aten::empty.memory_format", "CPU")
    assert hop["start_ns"] <= allocated["time_ns"] <= hop["end_ns"]
    (freed,) = trace.memory.filter(pl.col("allocated_by") == allocated["id"]).to_dicts()
    assert (freed["bytes"], freed["hop"], freed["address"]) == (-4000, None, allocated["address"])


def test_children_and_threads(launcher: Launcher) -> None:
    script = (
        "import os, threading, torch\nx = torch.ones(1000)\n"
        "thread = threading.Thread(target=lambda: torch.ones(2000))\nthread.start()\nthread.join()\n"
        "child = os.fork()\n"
        "if child == 0:\n    del x\n    torch.ones(3000)\n    raise SystemExit\n"
        "os.waitpid(child, 0)\n"
    )
    memory = recorded(launcher, script, "--memory").memory
    parent, child = (memory.filter(pl.col("process") == process) for process in (0, 1))
    assert parent["thread"].n_unique() == 2
    assert {4000, 8000, -8000} <= set(parent["bytes"])
    # The parent's block: how large it is cannot be known in the child.
    assert set(child["bytes"]) == {None, 12000, -12000}


BESIDE_ALLOCATORS = """\
import json, torch
from torch.profiler import ProfilerActivity, profile

def work():
    held = torch.load("kept.pt")
    flat = torch.ones(1 << 16)
    flat.untyped_storage().resize_(0)
    flat.untyped_storage().resize_(1 << 17)
    shared = torch.arange(1 << 15).share_memory_()
    file = torch.from_file("kept.bin", shared=True, size=1 << 14)

with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
    work()
events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
json.dump([event.nbytes() for event in events], open("witness.json", "w"))
"""


def test_memory_that_no_op_asks_for_has_its_line(launcher: Launcher) -> None:
    """Files that are loaded, storages that are resized and shared memory, which torch maps itself."""
    torch.save({"weight": torch.zeros(1 << 18)}, launcher.folder / "kept.pt")
    (launcher.folder / "kept.bin").write_bytes(bytes(1 << 16))
    trace = recorded(launcher, BESIDE_ALLOCATORS, "--memory")
    lines = ("source", "op", "own_peak_bytes")
    (use,) = memory_use(trace)
    found = {
        (source.rpartition(":")[2], op): size for source, op, size in use.table.select(lines).iter_rows()
    }
    assert (found["5", None] >> 20, found["8", None], found["9", None]) == (1, 1 << 17, 1 << 18)
    assert found["10", "aten::from_file"] == 1 << 16
    given = Counter(trace.memory["bytes"].drop_nulls())
    assert given == Counter(json.loads((launcher.folder / "witness.json").read_text()))


def test_it_is_left_out_unless_asked_for(launcher: Launcher) -> None:
    trace = recorded(launcher, KNOWN)
    assert trace.memory.is_empty()
    assert memory_use(trace) == []
    shown = read(launcher, "memory", "run.trace")
    assert (shown.status, shown.err) == (1, f"tracer: {without_blocks({})}\n")


def test_a_later_recording_of_the_process_leaves_it_out(launcher: Launcher) -> None:
    launcher.write(
        "import torch, tracer\n"
        "with tracer.record('with.trace', memory=True):\n    torch.ones(8)\n"
        "with tracer.record('without.trace'):\n    torch.ones(8)\n"
    )
    assert launcher.python("script.py").status == 0
    counts = [len(tracer.load(launcher.folder / f"{name}.trace").memory) for name in ("with", "without")]
    assert counts == [2, 0]


@pytest.mark.promise("memory", "report", "docs/tree.md#which-lines-use-the-memory-tracer-memory")
def test_on_the_terminal_and_in_the_report(launcher: Launcher) -> None:
    recorded(launcher, KNOWN, "--memory")
    shown = read(launcher, "memory", "run.trace").out
    assert shown.startswith("CPU: 5.0 MiB in use at the peak")
    (line,) = [line for line in shown.splitlines() if " script.py:4  " in line]
    assert line.split()[:8] == "3.0 MiB 3.0 MiB 3.0 MiB 0 B".split()
    assert "return torch.zeros(256, 1024)" in line
    command = "memory", "run.trace", "--json", "--limit", "1"
    document = json.loads(read(launcher, *command).out)
    assert document["devices"][0]["allocated_bytes"] >= 13 * MIB
    assert (len(document["devices"][0]["rows"]), document["devices"][0]["rows_left_out"] > 0) == (1, True)
    report = read(launcher, "report", "run.trace").out
    assert "CPU: 5.0 MiB in use at the peak" in report
    assert "At the peak by line: script.py:4 3.0 MiB, " in shown
    assert "At the peak by line: `script.py:4` 3.0 MiB, " in report
