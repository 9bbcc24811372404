"""`tracer export` of real recordings."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from lazily import torch

import tracer

MEASURE = """
import sys, time
from pathlib import Path
import tracer
from tracer.export.formats import FORMATS

def kib(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))

trace = tracer.load(sys.argv[1])
FORMATS["perfetto"].check()  # the package itself is no part of the measure
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before, start = kib("VmHWM"), time.process_time()  # the machine may be busy
FORMATS["perfetto"].write(trace, Path(sys.argv[2]))
print(len(trace.hops), kib("VmHWM") - before, time.process_time() - start)
"""


def train(steps: int = 2) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        loss = model(torch.randn(8, 16)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "train.trace"
    with tracer.record(path):
        train()
        other = threading.Thread(target=lambda: torch.ones(3).sum(), name="other")
        other.start()
        other.join()
    return path


def export(path: Path, to: str, output: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tracer.cli.app", "export", str(path), "--to", to, "-o", str(output)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return done.stderr


@pytest.mark.promise("export", "docs/export.md")
def test_perfetto_of_a_training_step(recorded: Path, tmp_path: Path) -> None:
    protos = pytest.importorskip(
        "perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="the package perfetto is not installed"
    )
    said = export(recorded, "perfetto", tmp_path / "out")
    hops = tracer.load(recorded).hops
    assert f"{len(hops):,} hops; time 0 is the start of the recording, 20" in said
    packets = protos.Trace.FromString((tmp_path / "out").read_bytes()).packet
    names: dict[int, str] = {}
    texts: dict[int, str] = {}
    rows: dict[int, dict[str, object]] = {}
    parents: dict[int, int | None] = {}
    stacks: dict[int, list[int]] = {}
    marks = {
        packet.track_descriptor.uuid
        for packet in packets
        if packet.HasField("track_descriptor") and packet.track_descriptor.name
    }
    leaving: dict[int, int] = {}
    arriving: dict[int, int] = {}
    for packet in packets:
        names.update((entry.iid, entry.name) for entry in packet.interned_data.debug_annotation_names)
        for entry in packet.interned_data.debug_annotation_string_values:
            texts[entry.iid] = entry.str.decode()
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        if event.track_uuid in marks:
            continue
        stack = stacks.setdefault(event.track_uuid, [])
        if event.type == protos.TrackEvent.TYPE_SLICE_END:
            row = stack.pop()
            assert packet.timestamp == hops["end_ns"][row]
            continue
        found = {
            names[entry.name_iid]: texts[entry.string_value_iid]
            if entry.string_value_iid
            else getattr(entry, entry.WhichOneof("value"))
            for entry in event.debug_annotations
        }
        row = found["hop"]
        rows[row], parents[row] = found, stack[-1] if stack else None
        assert packet.timestamp == hops["start_ns"][row]
        leaving.update(dict.fromkeys(event.flow_ids, row))
        arriving.update(dict.fromkeys(event.terminating_flow_ids, row))
        stack.append(row)
    assert not any(stacks.values())
    assert len(stacks) == hops["thread"].n_unique() >= 2
    assert parents == dict(hops.select("id", "parent").iter_rows())
    columns = ["op", "key", "kernel", "source", "called_from", "registered_at", "rule", "backward_node"]
    for row in hops.select("id", pl.col(columns).cast(pl.String)).iter_rows(named=True):
        assert {name: rows[row["id"]].get(name) for name in columns} == {name: row[name] for name in columns}
    addmm = hops.filter(pl.col("op") == "aten::addmm", pl.col("key") == "AutogradCPU", pl.col("step") == 0)
    assert [rows[row]["inputs"] for row in addmm["id"]] == [
        "16 float32 cpu, 8x16 float32 cpu, 16x16 float32 cpu",
        "4 float32 cpu, 8x16 float32 cpu, 16x4 float32 cpu",
    ]
    assert leaving.keys() == arriving.keys()
    arrows = {
        (hops["op"][leaving[flow]], hops["backward_node"][arriving[flow]]): hops["forward_hop"][row]
        == leaving[flow]
        for flow, row in arriving.items()
    }
    assert arrows.get(("aten::addmm", "AddmmBackward0"))
    assert all(arrows.values())


@pytest.mark.promise("export", "docs/export.md")
def test_chrome_of_a_training_step(recorded: Path, tmp_path: Path) -> None:
    export(recorded, "chrome", tmp_path / "out.json")
    hops = tracer.load(recorded).hops
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    events = [event for event in events if event.get("cat") not in ("step", "module", "range")]
    names = hops.select(pl.format("{} [{}]", "op", "key")).to_series().to_list()
    assert Counter(event["name"] for event in events if event["ph"] == "X") == Counter(names)
    assert sum(event["ph"] == "s" for event in events) == sum(event["ph"] == "f" for event in events) > 4


@pytest.mark.promise("export", "docs/export.md")
def test_parquet_and_speedscope_of_a_training_step(recorded: Path, tmp_path: Path) -> None:
    export(recorded, "parquet", tmp_path / "out")
    export(recorded, "speedscope", tmp_path / "out.json")
    hops = tracer.load(recorded).hops
    assert pl.read_parquet(tmp_path / "out" / "hops.parquet").equals(hops)
    profiles = json.loads((tmp_path / "out.json").read_text())["profiles"]
    own = dict(hops.group_by("thread").agg(pl.col("self_ns").sum()).iter_rows())
    assert {profile["endValue"] for profile in profiles} == set(own.values())


def test_perfetto_in_bounded_memory_and_time(tmp_path: Path) -> None:
    """300,000 hops make about 35 MB; the memory that it takes does not grow with them."""
    pytest.importorskip("perfetto", reason="the package perfetto is not installed")
    x = torch.ones(4)
    with tracer.record(tmp_path / "long.trace"):
        for _ in range(150_000):
            torch.add(x, x)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / "long.trace"), str(tmp_path / "long.pftrace")],
        capture_output=True,
        text=True,
        check=True,
    )
    hops, grown, seconds = map(float, done.stdout.split())
    assert hops >= 300_000
    assert (tmp_path / "long.pftrace").stat().st_size > 20 << 20
    assert grown < 64 << 10  # KiB
    assert seconds < 60
