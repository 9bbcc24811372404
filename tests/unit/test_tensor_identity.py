"""The table of tensors: which storage and which version each argument and each result of an op call has."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import Lane, TraceWriter, tensor
from tensor_events import passed, returned

from tracer.trace import Trace, load
from tracer.trace.bytes import format as fmt


def a_lane() -> tuple[TraceWriter, Lane]:
    """With a signature of one tensor and one of two."""
    writer = TraceWriter()
    writer.process()
    for number in range(3):
        writer.hop(number)
    lane = writer.lane()
    lane.define_signature(1, tensor((4,), (1,)))
    lane.define_signature(2, tensor((4,), (1,)), tensor((2,), (1,), position=1))
    return writer, lane


def rows(writer: TraceWriter, tmp_path: Path) -> list[tuple[object, ...]]:
    return read(writer, tmp_path).tensors.rows()


def read(writer: TraceWriter, tmp_path: Path) -> Trace:
    return load(writer.write(tmp_path / "x.trace"))


def test_arguments_are_of_the_hop_that_follows_and_results_of_the_one_before(tmp_path: Path) -> None:
    writer, lane = a_lane()
    passed(lane, (7, 0), (9, 3))
    lane.enter(0, signature=2)
    passed(lane, (7, 0))
    lane.module(0)
    lane.enter(1, signature=1)
    lane.exit()
    returned(lane, 1, (7, 1))
    passed(lane, (9, 3))
    lane.enter(2, signature=1)
    lane.exit()
    lane.exit()
    returned(lane, 2, (7, 1), (11, 0))
    assert rows(writer, tmp_path) == [
        (0, False, 1, 0, 7, 0),
        (0, False, 1, 1, 9, 3),
        (0, True, 1, 0, 7, 1),
        (0, True, 1, 1, 11, 0),
        (1, False, 0, 0, 7, 0),
        (1, True, 0, 0, 7, 1),
        (2, False, 0, 0, 9, 3),
    ]


def test_what_is_not_known_is_null(tmp_path: Path) -> None:
    writer, lane = a_lane()
    passed(lane, (0, None), (fmt.STORAGE_MASK, fmt.MOST_VERSIONS - 1))
    lane.enter(0, signature=2)
    lane.exit()
    returned(lane, fmt.OTHER, (5, 0))  # a ring had no space for the signature
    assert rows(writer, tmp_path) == [
        (0, False, 1, 0, None, None),
        (0, False, 1, 1, fmt.STORAGE_MASK, fmt.MOST_VERSIONS - 1),
        (0, True, None, 0, 5, 0),
    ]


def test_threads_and_chunks(tmp_path: Path) -> None:
    writer = TraceWriter(hop_chunk_bytes=64 + 8 * 14)  # each hop in a chunk of its own
    writer.process()
    writer.hop(0)
    for number in range(2):
        lane = writer.lane(number=number, thread=200 - number)
        lane.define_signature(1, tensor((4,), (1,)))
        for storage in range(1, 4):
            passed(lane, (storage, number))
            lane.enter(0, signature=1)
            lane.exit()
            returned(lane, 1, (storage + 1, number))
    found = rows(writer, tmp_path)
    assert [row[4:] for row in found] == [
        (storage, number) for number in (1, 0) for first in (1, 2, 3) for storage in (first, first + 1)
    ]
    assert [row[0] for row in found] == [hop for hop in range(6) for _ in range(2)]


def test_events_that_do_not_fit_a_signature_are_left_out(tmp_path: Path) -> None:
    writer, lane = a_lane()
    passed(lane, (1, 0))  # one is lost
    lane.enter(0, signature=2)
    returned(lane, 1, (1, 0))  # of no hop that was left
    lane.exit()
    returned(lane, 2, (1, 0), count=2)  # one is lost
    passed(lane, (2, 0))
    lane.enter(0, signature=1)
    lane.exit()
    returned(lane, 1, (1, 0), (1, 0))  # more than the signature has
    returned(lane, 1, (1, 0), count=0x7FFFFFFF)
    passed(lane, (3, 0))  # for a hop that never came
    trace = read(writer, tmp_path)
    assert trace.tensors.rows() == [(1, False, 0, 0, 2, 0)]
    assert len(trace.hops) == 2


def test_a_trace_that_begins_and_ends_with_such_events(tmp_path: Path) -> None:
    writer, lane = a_lane()
    returned(lane, 1, (1, 0))
    passed(lane, (1, 0))
    assert rows(writer, tmp_path) == []
    lane.enter(0, signature=1)
    assert rows(writer, tmp_path) == [(0, False, 0, 0, 1, 0)]  # the results have no exit


@pytest.mark.parametrize("event", ["step", "module"])
def test_a_damaged_bit_makes_no_tensor_of_another_event(tmp_path: Path, event: str) -> None:
    writer, lane = a_lane()
    lane.step(1) if event == "step" else lane.module(1)
    lane.events[-1][1][0] ^= 1 << 58
    lane.enter(0, signature=1)
    trace = read(writer, tmp_path)
    assert trace.certificate["torn_events"] == 1
    assert trace.tensors.is_empty()
