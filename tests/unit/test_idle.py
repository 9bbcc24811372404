"""Gaps in which a GPU did nothing, and what the host did in them."""

from __future__ import annotations

import pytest
from cuda_frames import CudaBuilder
from frames import hop

from tracer.analysis.idle import idleness

MS = 1_000_000


def test_overlapping_activities_are_merged() -> None:
    builder = CudaBuilder()
    builder.kernel("a", 1 * MS, 3 * MS)
    builder.kernel("b", 2 * MS, 2 * MS + 10, stream=8)  # ends within a
    builder.kernel("c", 3 * MS, 4 * MS)
    builder.kernel("d", 6 * MS, 9 * MS)
    (one,) = idleness(builder.cuda_trace())
    assert (one.window_ns, one.busy_ns, one.long_gaps, one.long_gaps_ns) == (8 * MS, 6 * MS, 1, 2 * MS)
    assert one.idle_share == 0.25
    assert (one.gaps[0].after, one.gaps[0].before, one.gaps[0].start_ns) == ("c", "d", 4 * MS)


def test_short_gaps_are_counted_apart() -> None:
    builder = CudaBuilder()
    for start in (0, 2000, 4000, 100_000):
        builder.kernel("k", start + 1, start + 1001)
    (one,) = idleness(builder.cuda_trace())
    assert (one.short_gaps, one.short_gaps_ns) == (2, 2000)
    assert (one.long_gaps, one.long_gaps_ns) == (1, 95_000)


def test_a_gap_must_be_one_percent_of_the_window() -> None:
    builder = CudaBuilder()
    builder.kernel("a", 1, 10 * MS)
    builder.kernel("b", 10 * MS + 50_000, 20 * MS)
    (one,) = idleness(builder.cuda_trace())
    assert (one.long_gaps, one.short_gaps) == (0, 1)


def test_devices_and_processes_stay_apart() -> None:
    builder = CudaBuilder()
    builder.kernel("a", 1, 2 * MS)
    builder.kernel("b", 1, 2 * MS, device=1)
    builder.kernel("c", 1, 2 * MS, process=1)
    assert [(one.process, one.device) for one in idleness(builder.cuda_trace())] == [(0, 0), (0, 1), (1, 0)]


def test_what_the_host_did_meanwhile() -> None:
    builder = CudaBuilder()
    builder.calls(hop("aten::warm", "CUDA", self_ns=1 * MS))  # 0 to 1 ms
    builder.calls(hop("aten::conv2d", "CUDA", self_ns=4 * MS - 100, source="net.py:7"))  # 1 to 5 ms
    builder.calls(hop("aten::linear", "CUDA", self_ns=1 * MS - 100))  # 5 to 6 ms
    builder.api("cudaMalloc", "memory allocation", 6 * MS, 7 * MS, hop=None, source="net.py:9")
    load = builder.api("cudaFuncGetAttributes", "occupancy and attributes", 2 * MS, 4 * MS, hop=1)
    builder.api("cuLibraryLoadData", "module and code loading", 2 * MS, 3 * MS, hop=1, parent=load)
    builder.kernel("a", MS // 2, 2 * MS)
    builder.kernel("b", 10 * MS, 11 * MS)
    (one,) = idleness(builder.cuda_trace())
    (gap,) = one.gaps
    assert gap.duration_ns == 8 * MS
    assert [(row["what"], row["source"]) for row in gap.host] == [
        ("aten::conv2d", "net.py:7"),
        ("cudaMalloc", "net.py:9"),
        ("aten::linear", None),
    ]
    assert [row["share"] for row in gap.host] == pytest.approx([3 / 8, 1 / 8, 1 / 8], abs=1e-4)
    assert gap.calls == [{"what": "cudaFuncGetAttributes", "share": 0.25}]
    assert gap.outside_share == pytest.approx(3 / 8, abs=1e-4)


def test_threads_that_overlap_do_not_hide_time_outside() -> None:
    builder = CudaBuilder()
    for thread in (1, 2):
        builder.calls(hop("aten::mm", "CUDA", self_ns=4 * MS), thread=thread)
    builder.kernel("a", 1, 100)
    builder.kernel("b", 8 * MS + 100, 8 * MS + 200)
    (one,) = idleness(builder.cuda_trace())
    assert one.gaps[0].outside_share == pytest.approx(0.5, abs=1e-4)


def test_the_window_is_that_of_the_steady_steps() -> None:
    builder = CudaBuilder()
    for step, phase in enumerate(["warmup", "warmup", "steady", "steady"]):
        builder.calls(hop("aten::mm", "CUDA", self_ns=MS - 100, step=step, phase=phase))
    builder.kernel("warm", 1, MS // 2)
    builder.kernel("steady", 2 * MS, 3 * MS)
    (one,) = idleness(builder.cuda_trace())
    assert one.steady
    assert one.window_ns == 2 * MS - 100
    assert one.busy_ns == MS
    assert (one.gaps[0].after, one.gaps[0].before) == ("steady", "the window's end")


def test_no_activities() -> None:
    assert idleness(CudaBuilder().cuda_trace()) == []


def test_steps_are_those_of_the_process() -> None:
    builder = CudaBuilder()
    for process, steps in ((0, 3), (1, 4)):
        for step in range(steps):
            when = {"step": step, "phase": "steady" if step else "warmup"}
            builder.calls(hop("aten::mm", "CUDA", self_ns=MS, **when), process=process)
        builder.kernel("k", 1 * MS, 2 * MS, process=process)
    found = [(one.steps.warmup, one.steps.steady) for one in idleness(builder.cuda_trace())]
    assert found == [(1, 2), (1, 3)]
