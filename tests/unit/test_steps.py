"""Steps and phases of hops, calls and activities."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import Lane, TraceWriter

from tracer.trace import Trace, load

LAUNCH, MALLOC, FREE, LOAD = 211, 20, 22, 640


def new_writer(processes: int = 1) -> TraceWriter:
    writer = TraceWriter()
    for process in range(processes):
        writer.process(process, how=0 if process == 0 else 2)
        writer.hop(0, "aten::mm", process=process)
        for number, name in (
            (LAUNCH, "cudaLaunchKernel"),
            (MALLOC, "cudaMalloc"),
            (FREE, "cudaFree"),
            (LOAD, "cuLibraryLoadData"),
        ):
            writer.function(number, name, process=process)
    return writer


def work(lane: Lane, ticks: int = 10) -> None:
    """A hop, and time that passes."""
    lane.enter(0)
    lane.exit()
    lane.file.ticks += ticks - 3


def read(writer: TraceWriter, tmp_path: Path) -> Trace:
    return load(writer.write(tmp_path / "x.trace"))


def phases(writer: TraceWriter, tmp_path: Path) -> list[tuple[int | None, str | None]]:
    return read(writer, tmp_path).hops.select("step", "phase").unique(maintain_order=True).rows()


def test_everything_belongs_to_the_step_in_which_it_began(tmp_path: Path) -> None:
    writer = new_writer()
    lane, other = writer.lane(0, 0, 1000), writer.lane(0, 1, 1001, torch_thread=2)
    ended = []
    for step in range(1, 4):
        work(lane)
        work(other)
        lane.api(LAUNCH, correlation=step)
        lane.library_enter(9)
        lane.call_exit()
        ended.append(lane.step(step))
    work(lane)
    work(other)
    # On the GPU everything ran late; nobody launched the last two.
    for correlation in (1, 2, 3, 9):
        writer.kernel(correlation, 10**6, 10**6 + 1)
    writer.kernel(8, ended[0], 10**6)
    trace = read(writer, tmp_path)
    assert trace.hops["step"].to_list() == [0, 1, 2, None] * 2
    assert trace.api_calls["step"].to_list() == trace.library_calls["step"].to_list() == [0, 1, 2]
    assert trace.api_calls["phase"].to_list() == trace.library_calls["phase"].to_list() == ["steady"] * 3
    of_activities = dict(trace.gpu_activities.select("correlation", "step").iter_rows())
    assert [of_activities[correlation] for correlation in (1, 2, 3, 9, 8)] == [0, 1, 2, None, 1]
    assert trace.gpu_activities.filter(trace.gpu_activities["correlation"] == 3)["phase"].to_list() == [
        "steady"
    ]


def test_without_steps_nothing_is_said(tmp_path: Path) -> None:
    writer = new_writer()
    work(writer.lane())
    assert phases(writer, tmp_path) == [(None, None)]


def test_of_a_count_that_began_again_the_last_is_kept(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane()
    for number in (1, 2, 3, 1, 2):
        work(lane)
        lane.step(number)
    work(lane)
    assert read(writer, tmp_path).hops["step"].to_list() == [0, 0, 0, 0, 1, None]


def test_with_fewer_than_three_steps_there_is_no_phase(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane()
    for step in (1, 2):
        work(lane)
        lane.step(step)
    assert phases(writer, tmp_path) == [(0, None), (1, None)]


def test_steps_of_processes_are_their_own(tmp_path: Path) -> None:
    writer = new_writer(2)
    first, second = writer.lane(0, thread=1000), writer.lane(1, thread=2000)
    work(first)
    work(second)
    first.step(1)
    work(first)
    work(second)
    second.step(1)
    work(first)
    first.step(2)
    hops = read(writer, tmp_path).hops
    assert hops.select("process", "step").rows() == [(0, 0), (0, 1), (0, 1), (1, 0), (1, 0)]


@pytest.mark.parametrize(
    ("slow", "calls", "warm"),
    [
        ({}, {}, 0),
        ({0: 16}, {}, 1),
        ({0: 15}, {}, 0),
        ({1: 40}, {}, 2),
        ({3: 40}, {}, 0),  # in the second half: not warm-up any more
        ({}, {1: MALLOC}, 2),
        ({}, {1: LOAD}, 2),
        ({}, {1: FREE}, 0),
        ({}, {1: LAUNCH}, 0),
        ({}, {4: MALLOC}, 0),
        ({0: 40}, {2: MALLOC}, 3),
    ],
)
def test_warm_up_ends_with_the_last_slow_or_allocating_step_of_the_first_half(
    tmp_path: Path, slow: dict[int, int], calls: dict[int, int], warm: int
) -> None:
    writer = new_writer()
    lane = writer.lane()
    begin = writer.ticks
    for step in range(6):
        begin = writer.ticks
        lane.enter(0)
        if step in calls:
            lane.api(calls[step])
        lane.exit()
        # The first step counts from its first hop: one tick later than the others from the step before.
        writer.ticks = begin + slow.get(step, 10) - 1 + (step == 0)
        lane.step(step + 1)
    expected = [(step, "warmup" if step < warm else "steady") for step in range(6)]
    assert phases(writer, tmp_path) == expected


def test_an_allocation_that_failed_is_none(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane()
    for step in range(4):
        work(lane)
        if step == 1:
            lane.api(MALLOC, result=2)
        lane.step(step + 1)
    assert [phase for _, phase in phases(writer, tmp_path)] == ["steady"] * 4


@given(st.lists(st.booleans(), max_size=40))
def test_steps_are_counted_by_time(tmp_path_factory: pytest.TempPathFactory, events: list[bool]) -> None:
    writer = new_writer()
    lane = writer.lane()
    expected: list[int | None] = []
    total = sum(events)
    ended = 0
    for is_step in events:
        if is_step:
            ended += 1
            lane.step(ended)
        else:
            lane.enter(0)
            lane.exit()
            expected.append(ended if ended < total else None)
    assert read(writer, tmp_path_factory.mktemp("steps")).hops["step"].to_list() == expected


def optimizer_step(lane: Lane, name: int) -> int:
    """A hop before it, one in it with a range around, and the ticks at its end."""
    work(lane)
    lane.range_enter(name)
    lane.range_enter(3)
    work(lane)
    lane.range_exit()
    return lane.range_exit()


def named_ranges(writer: TraceWriter) -> Lane:
    lane = writer.lane(0, 0, 1000)
    for number, name in ((1, "Optimizer.step#Adam.step"), (2, "Optimizer.step#SGD.step"), (3, "inner")):
        lane.define_string(number, name)
    return lane


def test_the_steps_of_an_optimizer_are_the_steps(tmp_path: Path) -> None:
    writer = new_writer()
    lane = named_ranges(writer)
    for _ in range(3):
        optimizer_step(lane, 1)
        optimizer_step(lane, 2)  # of another optimizer: within the next step
    assert read(writer, tmp_path).hops["step"].to_list() == [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, None, None]


def test_steps_that_the_script_says_go_before_those_of_the_optimizer(tmp_path: Path) -> None:
    writer = new_writer()
    lane = named_ranges(writer)
    optimizer_step(lane, 1)
    optimizer_step(lane, 1)
    lane.step(1)
    optimizer_step(lane, 1)
    assert read(writer, tmp_path).hops["step"].to_list() == [0, 0, 0, 0, None, None]


UNKNOWN = (1 << 63) - 1


def test_what_the_thread_of_a_step_had_of_the_processor(tmp_path: Path) -> None:
    writer = new_writer()
    lane, other = writer.lane(0, 0, 1000), writer.lane(0, 1, 1001, torch_thread=2)
    work(lane)
    lane.step(1, 5_000, 100)
    work(lane)
    lane.step(2, 7_000, 150)
    work(lane)
    lane.step(3, 7_500, 4_150)
    work(other)
    other.step(4, 9_000, 9_000)  # of another thread's beginning
    work(other)
    other.step(5, 9_800, UNKNOWN)  # a kernel that does not count it
    work(other)
    other.step(6)  # before it was recorded
    steps = read(writer, tmp_path).steps
    assert steps["cpu_ns"].to_list() == [None, 2_000, 500, None, 800, None]
    assert steps["preempted_ns"].to_list() == [None, 50, 4_000, None, None, None]


def test_clocks_of_a_count_that_began_again(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane(0, 0, 1000)
    for number, cpu in ((1, 10), (2, 30), (0, 60), (1, 100), (2, 150)):
        work(lane)
        lane.step(number, cpu, 0)
    assert read(writer, tmp_path).steps["cpu_ns"].to_list() == [None, 50]
