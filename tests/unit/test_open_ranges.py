"""Ranges by their numbers: of tasks and threads, crossing, begun before a window of the recording."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from synthetic import Lane, TraceWriter

from tracer.analysis.ranges import lanes, range_times
from tracer.trace import Trace, load

NAMES = {"a": 1, "b": 2, "c": 3, "serve": 4, "\x1fcall:0": 5}
FIRST_TASK, SECOND_TASK, INNER = 0x7F01, 0x7F02, 0x7F03


class Program:
    """Writes ranges by their names, and numbers them."""

    def __init__(self, hop_chunk_bytes: int = 1 << 10, **header: int) -> None:
        self.writer = TraceWriter(hop_chunk_bytes, header=header)
        self.writer.process()
        self.writer.hop(0, "aten::sin")

    def lane(self, number: int = 0) -> Lane:
        lane = self.writer.lane(number=number, thread=1001 + number, torch_thread=1 + number)
        for name, code in NAMES.items():
            lane.define_string(code, name)
        return lane

    def read(self, folder: Path) -> Trace:
        self.writer.write(folder / "x.trace")
        return load(folder / "x.trace")


def begin(lane: Lane, name: str, at: int | None = None) -> int:
    return lane.range_begin(NAMES[name], NAMES[name], at=at)


def end(lane: Lane, name: str) -> int:
    return lane.range_end(NAMES[name])


def op(lane: Lane) -> None:
    lane.enter(0)
    lane.exit()


def rows(trace: Trace) -> dict[str, tuple[int, int, str | None, bool]]:
    """name -> start, end, the range around it, open"""
    table = trace.ranges.with_columns(pl.col("name").cast(pl.String))
    assert table["name"].is_unique().all()
    around = [None if parent is None else table["name"][parent] for parent in table["parent"]]
    columns = (table[name].to_list() for name in ("name", "start_ns", "end_ns"))
    return {
        name: (start // 10, end // 10, above, is_open)
        for name, start, end, above, is_open in zip(*columns, around, table["open"], strict=True)
    }


def test_an_end_is_of_the_range_that_it_names(tmp_path: Path) -> None:
    program = Program()
    lane = program.lane()
    first, second = begin(lane, "a"), begin(lane, "b")
    ends = end(lane, "a"), end(lane, "b")
    assert rows(program.read(tmp_path)) == {
        "a": (first, ends[0], None, False),
        "b": (second, ends[1], None, False),
    }


def test_what_two_ranges_of_one_task_cross_is_in_none_of_them(tmp_path: Path) -> None:
    program = Program()
    lane = program.lane()
    begin(lane, "serve")
    begin(lane, "a")
    op(lane)
    begin(lane, "b")
    op(lane)
    begin(lane, "c")
    op(lane)
    end(lane, "c")
    op(lane)
    end(lane, "a")
    op(lane)
    end(lane, "b")
    op(lane)
    trace = program.read(tmp_path)
    assert trace.hops["range"].to_list() == ["a", None, "c", None, "b", "serve"]
    assert {name: around for name, (_, _, around, _) in rows(trace).items()} == {
        "serve": None,
        "a": "serve",
        "b": "serve",
        "c": "b",
    }
    assert any("null for 2 hops" in line for line in trace.certificate["not_visible"])
    assert trace.certificate["complete"]


def test_an_op_is_in_the_range_of_its_task(tmp_path: Path) -> None:
    program = Program()
    lane = program.lane()
    begin(lane, "serve")
    lane.context(FIRST_TASK)
    begin(lane, "a")
    op(lane)
    lane.context(SECOND_TASK)
    op(lane)
    begin(lane, "b")
    op(lane)
    lane.context(FIRST_TASK)
    op(lane)
    lane.context(INNER, FIRST_TASK)  # entered there
    op(lane)
    lane.context(0)
    op(lane)
    lane.context(SECOND_TASK)
    op(lane)
    end(lane, "b")
    op(lane)
    lane.context(FIRST_TASK)
    end(lane, "a")
    op(lane)
    trace = program.read(tmp_path)
    assert trace.hops["range"].to_list() == ["a", "serve", "b", "a", "a", "serve", "b", "serve", "serve"]
    found = rows(trace)
    assert [found[name][2] for name in "ab"] == ["serve", "serve"]
    assert found["a"][0] < found["b"][0] < found["b"][1] < found["a"][1]
    assert not any("cross" in line for line in trace.certificate["not_visible"])


def test_tracers_own_ranges_are_of_their_task_too(tmp_path: Path) -> None:
    program = Program()
    lane = program.lane()
    lane.context(FIRST_TASK)
    begin(lane, "a")
    begin(lane, "\x1fcall:0")
    op(lane)
    lane.context(SECOND_TASK)
    begin(lane, "b")
    op(lane)
    lane.context(FIRST_TASK)
    end(lane, "\x1fcall:0")
    end(lane, "a")
    lane.context(SECOND_TASK)
    end(lane, "b")
    trace = program.read(tmp_path)
    assert trace.hops["range"].to_list() == ["a", "b"]
    assert [around for _, _, around, _ in rows(trace).values()] == [None, None]
    assert len(trace.compiled_calls) == 1


def test_a_range_that_its_task_did_not_end_has_no_ops(tmp_path: Path) -> None:
    """That task may have ended long before, and a later one have its context's address."""
    program = Program()
    lane = program.lane()
    lane.context(FIRST_TASK)
    first = begin(lane, "a")
    op(lane)
    lane.context(SECOND_TASK)
    last = end(lane, "a")
    trace = program.read(tmp_path)
    assert trace.hops["range"].to_list() == [None]
    assert rows(trace) == {"a": (first, last, None, False)}


def test_another_thread_may_end_a_range(tmp_path: Path) -> None:
    program = Program()
    lane, other = program.lane(0), program.lane(1)
    first = begin(lane, "a")
    op(lane)
    begin(other, "b")
    last = end(other, "a")
    op(other)
    op(lane)
    end(other, "b")
    begin(lane, "c")
    op(lane)
    end(lane, "c")
    trace = program.read(tmp_path)
    assert trace.hops["range"].to_list() == ["a", None, "c", "b"]
    assert rows(trace)["a"] == (first, last, None, False)
    assert [around for _, _, around, _ in rows(trace).values()] == [None, None, None]


def test_a_begin_that_is_written_again_is_the_same_range(tmp_path: Path) -> None:
    program = Program()
    lane = program.lane()
    first = begin(lane, "a")
    op(lane)
    begin(lane, "a", at=first)
    begin(lane, "b")
    op(lane)
    end(lane, "b")
    op(lane)
    last = end(lane, "a")
    op(lane)
    trace = program.read(tmp_path)
    assert trace.hops["range"].to_list() == ["a", "b", "a", None]
    assert rows(trace)["a"] == (first, last, None, False)
    assert rows(trace)["b"][2] == "a"


@pytest.mark.parametrize(("missing", "ranges"), [(0, [None, None, "a", None]), (1, [None, "a", None])])
def test_a_later_chunk_says_again_what_is_open(
    missing: int, ranges: list[str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ring overwrites chunks: the one with the first begin, or the one after it."""
    program = Program(hop_chunk_bytes=64 + 8 * 14)
    lane = program.lane()
    op(lane)
    first = begin(lane, "a")
    op(lane)  # chunk 1
    op(lane)
    begin(lane, "a", at=first)  # chunk 2
    op(lane)
    last = end(lane, "a")
    op(lane)
    chunks = program.writer._hop_chunks(lane)
    del chunks[missing]
    monkeypatch.setattr(program.writer, "_hop_chunks", lambda _: chunks)
    trace = program.read(tmp_path)
    assert trace.hops["range"].to_list() == ranges
    assert rows(trace) == {"a": (first, last, None, False)}


def test_a_window_has_the_ranges_that_began_before_it(tmp_path: Path) -> None:
    program = Program()
    lane = program.lane()
    program.writer.ticks = 100
    op(lane)
    begin(lane, "a", at=7)
    begin(lane, "b", at=9)
    op(lane)
    lane.step(3)
    op(lane)
    end(lane, "b")
    lane.step(4)
    trace = program.read(tmp_path)
    assert trace.hops["range"].to_list() == [None, "b", "b"]
    assert rows(trace)["a"][:1] == (7,)
    assert rows(trace)["b"] == (9, rows(trace)["b"][1], "a", False)
    assert trace.ranges["step"].to_list() == [None, None]
    assert trace.steps["start_ns"].to_list()[0] > 1000


def test_a_range_that_ended_in_a_pause_does_not_prolong_what_is_open(tmp_path: Path) -> None:
    program = Program()
    lane = program.lane()
    begin(lane, "a")
    opened = lane.enter(0)
    program.writer.ticks = 1000
    last = end(lane, "a")
    trace = program.read(tmp_path)
    assert rows(trace)["a"][1] == last > 1000
    assert trace.hops["end_ns"].to_list() == [opened * 10]


def test_without_numbers_an_end_is_of_the_innermost_range(tmp_path: Path) -> None:
    program = Program(version=6)
    lane = program.lane()
    lane.unnumbered_exit()  # began before the recording
    op(lane)
    first = lane.unnumbered_enter(NAMES["a"])
    op(lane)
    lane.unnumbered_enter(NAMES["b"])
    op(lane)
    lane.unnumbered_exit()
    op(lane)
    last = lane.unnumbered_exit()
    op(lane)
    trace = program.read(tmp_path)
    assert trace.hops["range"].to_list() == [None, "a", "b", "a", None]
    assert rows(trace)["a"] == (first, last, None, False)
    assert rows(trace)["b"][2] == "a"


def table(*ranges: tuple[int | None, int, int], thread: int = 1) -> pl.DataFrame:
    """Of parent, start and end."""
    columns = {"parent": pl.UInt32, "start_ns": pl.Int64, "end_ns": pl.Int64}
    frame = pl.DataFrame(ranges, schema=columns, orient="row")
    names = pl.Series("name", [f"range {row}" for row in range(len(ranges))])
    return frame.with_row_index("id").with_columns(names, process=pl.lit(0), thread=pl.lit(thread))


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([(None, 0, 9), (0, 1, 4), (0, 4, 9), (None, 9, 12)], [(0, -1), (0, 0), (0, 0), (0, -1)]),
        ([(None, 0, 9), (None, 5, 12), (None, 9, 10)], [(0, -1), (1, -1), (0, -1)]),
        ([(None, 0, 20), (0, 1, 9), (0, 5, 12), (2, 6, 7)], [(0, -1), (0, 0), (1, -1), (1, 2)]),
        ([(None, 0, 9), (None, 1, 5), (None, 2, 8)], [(0, -1), (1, -1), (2, -1)]),
    ],
)
def test_no_two_ranges_of_a_lane_cross(
    ranges: list[tuple[int | None, int, int]], expected: list[tuple[int, int]]
) -> None:
    lane, around = lanes(table(*ranges))
    assert list(zip(lane, around, strict=True)) == expected


def test_tasks_that_ran_at_the_same_time_are_not_taken_away_twice() -> None:
    times = range_times(table((None, 0, 20), (0, 1, 11), (0, 6, 15), (0, 16, 17), (0, 2, 3)))
    assert times.row(0, named=True)["own_ns"] == 20 - 14 - 1


@pytest.mark.parametrize(("between", "around"), [(200, "serve"), (300, None)])
def test_of_many_open_ranges_the_innermost_are_looked_at(
    tmp_path: Path, between: int, around: str | None
) -> None:
    """Of ranges that cross each begin and end looked at all that were open: 4 MB took a minute."""
    program = Program()
    lane = program.lane()
    begin(lane, "serve")
    for number in range(between):
        lane.range_begin(NAMES["a"], 100 + number)
    begin(lane, "b")
    op(lane)
    for number in range(between):
        lane.range_end(100 + number)
    end(lane, "b")
    end(lane, "serve")
    trace = program.read(tmp_path)
    (inner,) = trace.ranges.filter(pl.col("name") == "b")["parent"].to_list()
    assert (None if inner is None else trace.ranges["name"][inner]) == around


@pytest.mark.parametrize(("between", "around"), [(200, "serve"), (300, None)])
def test_of_contexts_in_each_other_the_innermost_are_looked_at(
    tmp_path: Path, between: int, around: str | None
) -> None:
    program = Program()
    lane = program.lane()
    lane.context(1)
    begin(lane, "serve")
    for number in range(between):
        lane.context(2 + number, 1 + number)
    op(lane)
    lane.context(1)
    end(lane, "serve")
    assert program.read(tmp_path).hops["range"].to_list() == [around]
