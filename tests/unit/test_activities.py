"""GPU activities: what they hold, which call and hop caused them, replays of graphs."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import PROCESS_LANE, TraceWriter, chunk

from examples import examples
from tracer.trace import Trace, load
from tracer.trace.bytes.activities import parse_activities

NS = 10  # of a tick, by the clock in the header
LAUNCH, GRAPH_LAUNCH, COPY = 211, 311, 41


def new_writer(processes: int = 1) -> TraceWriter:
    writer = TraceWriter()
    for process in range(processes):
        writer.process(process, how=0 if process == 0 else 2)
        writer.hop(0, "aten::mm", process=process)
        writer.function(LAUNCH, "cudaLaunchKernel", process=process)
        writer.function(GRAPH_LAUNCH, "cudaGraphLaunch", process=process)
        writer.function(COPY, "cudaMemcpyAsync", process=process)
        writer.string(1, "_Z6kernelIfEvPT_", process=process)
    return writer


def read(writer: TraceWriter, tmp_path: Path) -> Trace:
    return load(writer.write(tmp_path / "x.trace"))


def test_a_kernel_has_its_launch_configuration(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane()
    lane.enter(0)
    lane.api(LAUNCH, correlation=77)
    lane.exit()
    details = ((8, 4), (2, 128), (2, 1), (40, 1024), (4096, 16), (2, 1), (1, 9216))
    writer.activity(1, 77, 300, 450, name=1, details=details, device=3, stream=13, context=2)
    row = read(writer, tmp_path).gpu_activities.row(0, named=True)
    assert row == {
        "id": 0,
        "api_call": 0,
        "hop": 0,
        "captured_by": None,
        "process": 0,
        "kind": "kernel",
        "name": "void kernel<float>(float*)",
        "device": 3,
        "context": 2,
        "stream": 13,
        "start_ns": 300 * NS,
        "end_ns": 450 * NS,
        "grid": [8, 4, 2],
        "block": [128, 2, 1],
        "cluster": [2, 1, 1],
        "registers": 40,
        "static_shared_bytes": 1024,
        "dynamic_shared_bytes": 4096,
        "shared_bytes": 9216,
        "local_bytes": 16,
        "bytes": None,
        "graph": None,
        "graph_node": None,
        "compiled_kernel": None,
        "step": None,
        "phase": None,
        "correlation": 77,
    }


def test_a_kernel_has_the_name_that_its_launch_said(tmp_path: Path) -> None:
    """The record may have that of a kernel which was at the same place before, and was unloaded."""
    writer = new_writer()
    lane = writer.lane()
    lane.define_string(1, "_Z5otherPf")
    lane.api_enter(LAUNCH, correlation=77, kernel=1)
    lane.call_exit()
    lane.api(LAUNCH, correlation=78)
    lane.api(COPY, correlation=79)
    lane.api(GRAPH_LAUNCH, correlation=80)
    for correlation in (77, 78, 99):  # the last one is of no call
        writer.kernel(correlation, correlation, 100, name=1)
    writer.activity(2, 79, 79, 100)
    writer.kernel(80, 80, 100, name=1, graph=1, node=5)
    names = read(writer, tmp_path).gpu_activities.sort("start_ns")["name"].to_list()
    own = "void kernel<float>(float*)"
    assert names == ["other(float*)", own, "memcpy", own, own]


def test_copies_and_fills_have_bytes_and_say_from_where_to_where(tmp_path: Path) -> None:
    writer = new_writer()
    pinned_to_device, managed, unknown = 2 | 3 << 8, 5 | 5 << 8, 0
    for number, (copy, memories) in enumerate(
        ((1, pinned_to_device), (8, managed), (2, unknown), (99, 0xFFFF))
    ):
        writer.activity(2, number, 1 + number, 9, size=1 << 40, details=((copy, memories),))
    writer.activity(3, 9, 8, 9, size=64, details=((0, 3),))
    activities = read(writer, tmp_path).gpu_activities
    assert activities.select("kind", "name", "bytes").rows() == [
        ("memcpy", "memcpy HtoD (pinned -> device)", 1 << 40),
        ("memcpy", "memcpy DtoD (managed -> managed)", 1 << 40),
        ("memcpy", "memcpy DtoH", 1 << 40),
        ("memcpy", "memcpy kind 15 (memory kind 15 -> memory kind 15)", 1 << 40),
        ("memset", "memset", 64),
    ]
    for name in ("grid", "block", "cluster", "registers", "shared_bytes", "hop", "api_call"):
        assert activities[name].to_list() == [None] * 5


def test_no_cluster_is_null_and_unknown_times_are_null(tmp_path: Path) -> None:
    writer = new_writer()
    writer.kernel(1)
    row = read(writer, tmp_path).gpu_activities.row(0, named=True)
    assert (row["cluster"], row["start_ns"], row["end_ns"], row["name"]) == (None, None, None, None)
    assert row["grid"] == [4, 1, 1]


def test_activities_are_ordered_and_joined_within_their_process(tmp_path: Path) -> None:
    writer = new_writer(2)
    for process in (0, 1):
        lane = writer.lane(process, thread=1000 + process)
        lane.enter(0)
        lane.api(LAUNCH, correlation=5)
        lane.exit()
        lane.api(LAUNCH, correlation=6)
        for correlation, start in ((6, 900), (5, 100), (7, 500)):
            writer.kernel(correlation, start, start + 1, name=1, process=process)
    activities = read(writer, tmp_path).gpu_activities
    assert activities.select("process", "correlation", "start_ns", "api_call", "hop").rows() == [
        (0, 5, 100 * NS, 0, 0),
        (0, 7, 500 * NS, None, None),
        (0, 6, 900 * NS, 1, None),
        (1, 5, 100 * NS, 2, 1),
        (1, 7, 500 * NS, None, None),
        (1, 6, 900 * NS, 3, None),
    ]


def test_a_correlation_that_two_nested_calls_share_is_the_outer_ones(tmp_path: Path) -> None:
    writer = new_writer()
    writer.function(307, "cuLaunchKernel", domain=1)
    lane = writer.lane()
    lane.api_enter(LAUNCH, correlation=5)
    lane.api(307, correlation=5, driver=True)
    lane.call_exit()
    writer.kernel(5)
    assert read(writer, tmp_path).gpu_activities["api_call"].to_list() == [0]


def test_a_replay_belongs_to_the_hop_whose_call_was_captured(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane()
    lane.enter(0)
    lane.api(LAUNCH, correlation=10, captured=True)
    lane.exit()
    lane.api(LAUNCH, correlation=11, captured=True)
    writer.graph_node(100, correlation=10)
    writer.graph_node(101, correlation=11)
    writer.graph_node(200, original=100)
    writer.graph_node(300, original=200)  # a copy of a copy
    writer.graph_node(201, original=101)
    writer.graph_node(400, original=401)  # of which nothing is known
    writer.graph_node(500, original=501)
    writer.graph_node(501, original=500)  # damaged
    lane.enter(0)
    lane.api(GRAPH_LAUNCH, correlation=20)
    lane.exit()
    for number, node in enumerate((300, 201, 400, 600, 500)):
        writer.kernel(20, 1 + number, 9, name=1, graph=6, node=node)
    activities = read(writer, tmp_path).gpu_activities
    assert activities.select("api_call", "captured_by", "hop", "graph", "graph_node").rows() == [
        (2, 0, 0, 6, 300),
        (2, 1, None, 6, 201),
        (2, None, 1, 6, 400),
        (2, None, 1, 6, 600),
        (2, None, 1, 6, 500),
    ]


def test_devices_have_what_is_known_of_them(tmp_path: Path) -> None:
    writer = new_writer()
    writer.gpu(1, "NVIDIA H200", numMultiprocessors=132, somethingNew=7)
    writer.gpu(0, "NVIDIA A100", numMultiprocessors=108)
    devices = read(writer, tmp_path).devices
    assert devices.select("process", "device", "name", "numMultiprocessors", "somethingNew").rows() == [
        (0, 0, "NVIDIA A100", 108, None),
        (0, 1, "NVIDIA H200", 132, 7),
    ]
    assert devices.schema["maxIPC"] == pl.Int64


# ---- the bytes of the stream --------------------------------------------------------------------------


def record(seed: int) -> list[int]:
    generator = random.Random(seed)
    return [1 << 63 | generator.randint(1, 3) << 56 | seed, *(generator.getrandbits(64) for _ in range(15))]


@examples(100)
@given(
    seeds=st.lists(st.integers(0, 2**32 - 1), max_size=20), torn=st.integers(0, 15), zeros=st.integers(0, 40)
)
def test_whole_records_are_read_and_a_torn_one_is_counted(seeds: list[int], torn: int, zeros: int) -> None:
    written = [word for seed in seeds for word in record(seed)]
    # The first word of a record is written last.
    unfinished = [0, *record(1)[1 : 1 + torn]] if torn else []
    words = np.array([*written, *unfinished, *[0] * zeros], np.uint64)
    records, counted, damaged = parse_activities(words)
    assert records.reshape(-1).tolist() == written
    assert counted == (torn > 0)
    assert not damaged


@pytest.mark.parametrize("head", [1, 1 << 63, 1 << 63 | 4 << 56, 1 << 63 | 1 << 59 | 1 << 56, 1 << 56])
def test_a_damaged_record_is_left_out_and_counted(head: int) -> None:
    words = [*record(1), head, *record(2)[1:], *record(3)]
    records, counted, damaged = parse_activities(np.array(words, np.uint64))
    assert records.reshape(-1).tolist() == [*record(1), *record(3)]
    assert (counted, damaged) == (1, True)


def test_chunks_are_put_in_order_and_missing_ones_counted(tmp_path: Path) -> None:
    writer = new_writer()
    data = writer.data()
    for sequence in (2, 0):
        payload = struct.pack("<16Q", 1 << 63 | 1 << 56 | sequence, 1, 2, *[0] * 13)
        data += chunk(3, 0, 100, PROCESS_LANE, sequence, 0, payload)
    path = tmp_path / "x.trace"
    path.write_bytes(data)
    trace = load(path)
    assert trace.gpu_activities["correlation"].to_list() == [0, 2]
    assert trace.certificate["missing_chunks"] == 1
