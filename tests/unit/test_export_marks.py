"""Steps, modules, ranges and memory in exported timelines."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import polars as pl
import pytest
from exported import Slice, chrome_slices, perfetto_slices
from gpu_trace import PATH
from synthetic import TraceWriter, tensor

from tracer.export.formats import FORMATS
from tracer.export.marks import module_marks, range_marks, step_marks
from tracer.trace import Trace, load

READ = {"perfetto": perfetto_slices, "chrome": chrome_slices}


@pytest.fixture(scope="module")
def gpu() -> Trace:
    return load(PATH)


@pytest.fixture(params=["perfetto", "chrome"])
def to(request: pytest.FixtureRequest) -> str:
    if request.param == "perfetto":
        pytest.importorskip("perfetto", reason="the package perfetto is not installed")
    return str(request.param)


def exported(trace: Trace, to: str, folder: Path) -> list[Slice]:
    path = folder / f"out{FORMATS[to].suffix}"
    FORMATS[to].write(trace, path)
    return READ[to](path)


def test_each_mark_is_a_slice(gpu: Trace, to: str, tmp_path: Path) -> None:
    slices = exported(gpu, to, tmp_path)
    for category, marks in (
        ("step", step_marks(gpu)),
        ("range", range_marks(gpu)),
        ("module", module_marks(gpu)),
    ):
        found = sorted((s.name, s.start, s.end) for s in slices if s.category == category)
        assert found == sorted(marks.select("name", "start_ns", "end_ns").iter_rows())
        assert len(found) == len(marks)
    steps = [inner for inner in slices if inner.category == "step"]
    assert [inner.name for inner in steps] == [f"step {step}" for step in gpu.steps["step"]]
    assert {inner.track[-1] for inner in steps} == {"steps"}
    ranges = [inner for inner in slices if inner.category == "range"]
    assert len(ranges) == len(gpu.ranges) > 0
    thread = gpu.ranges["thread"][0]
    assert all(inner.track[-1].startswith("ranges of ") for inner in ranges)
    assert any(str(thread) in inner.track[-1] for inner in ranges)


def test_modules_are_stretches_of_outermost_ops() -> None:
    rows = [
        # module, start, end, of process 0 and thread 1
        (None, 0, 5),
        ("net", 10, 20),
        ("net.encoder", 20, 30),
        ("net.encoder.gru", 35, 40),
        ("net.encoder", 45, 50),
        ("net.head", 50, 60),
        (None, 60, 65),
        ("net", 70, 80),
    ]
    hops = pl.DataFrame(
        {
            "id": range(len(rows)),
            "parent": [None] * len(rows),
            "process": [0] * len(rows),
            "thread": [1] * len(rows),
            "module": [row[0] for row in rows],
            "start_ns": [row[1] for row in rows],
            "end_ns": [row[2] for row in rows],
        },
        schema_overrides={"parent": pl.UInt32, "module": pl.Categorical},
    )

    class Hops:
        def __init__(self) -> None:
            self.hops = hops

    marks = module_marks(Hops())  # type: ignore[arg-type]
    names = [*marks["name"], ""]  # that of parent -1 is the last
    rows_found = marks.select("name", "start_ns", "end_ns", "parent").iter_rows()
    found = [(name, start, end, names[parent]) for name, start, end, parent in rows_found]
    assert sorted(found, key=lambda row: (row[1], -row[2])) == [
        ("net", 10, 60, ""),
        ("encoder", 20, 50, "net"),
        ("gru", 35, 40, "encoder"),
        ("head", 50, 60, "net"),
        ("net", 70, 80, ""),
    ]


@pytest.mark.parametrize("kind", ["source", "module", "inputs"])
def test_a_text_that_many_ops_share_is_not_in_memory_for_each(tmp_path: Path, kind: str) -> None:
    """500 ops: all of their texts have 4 MB and more."""
    writer = TraceWriter()
    writer.process()
    writer.hop(0, "aten::mm")
    writer.module_path(1, ".".join("c" * 4000), "M")
    lane = writer.lane()
    lane.define_source(1, "/" + "f" * 8000, 3)
    lane.define_signature(1, *[tensor((1 << 40,) * 60, None, position=0)] * 64)
    if kind == "module":
        lane.module(1)
    for _ in range(500):
        lane.enter(0, source=int(kind == "source"), signature=int(kind == "inputs"))
        lane.exit()
    trace = load(writer.write(tmp_path / "x.trace"))
    tracemalloc.start()
    FORMATS["chrome"].write(trace, tmp_path / "x.json")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3_000_000
    assert (tmp_path / "x.json").stat().st_size < 12_000_000
    assert len(module_marks(trace)) == (128 if kind == "module" else 0)


def memory_trace(folder: Path) -> Trace:
    writer = TraceWriter()
    writer.process()
    writer.hop(0)
    lane = writer.lane()
    lane.enter(0)
    lane.memory(0x1000, 64)
    lane.memory(0x2000, 32)
    lane.memory(0x1000, 0, freed=True)
    lane.exit()
    return load(writer.write(folder / "memory.trace"))


def test_memory_is_a_counter(tmp_path: Path, to: str) -> None:
    trace = memory_trace(tmp_path)
    assert trace.memory["bytes"].to_list() == [64, 32, -64]
    assert trace.memory["hop"].to_list() == [0, 0, 0]
    times = trace.memory["time_ns"].to_list()
    path = tmp_path / "out"
    FORMATS[to].write(trace, path)
    if to == "chrome":
        events = json.loads(path.read_text())["traceEvents"]
        found = [(round(e["ts"] * 1000), e["name"], e["args"]["bytes"]) for e in events if e["ph"] == "C"]
    else:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

        packets = protos.Trace.FromString(path.read_bytes()).packet
        (track,) = [p.track_descriptor for p in packets if p.track_descriptor.HasField("counter")]
        assert track.counter.unit == protos.CounterDescriptor.UNIT_SIZE_BYTES
        found = [
            (p.timestamp, track.name, p.track_event.counter_value)
            for p in packets
            if p.HasField("track_event") and p.track_event.track_uuid == track.uuid
        ]
    name = found[0][1]
    assert name.startswith("memory of ")
    assert found == [(times[0], name, 64), (times[1], name, 96), (times[2], name, 32)]
