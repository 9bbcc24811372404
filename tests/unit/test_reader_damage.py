"""Damaged, cut and killed recordings: what can be read is read, and nothing is invented."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lane_moves import NS, Move, new_recording, record
from synthetic import Lane, TraceWriter, chunk

from examples import examples
from tracer.trace import TraceError, load
from tracer.trace.bytes import format as fmt


class Call(NamedTuple):
    """A call that returns 0."""

    arguments: list[int]
    read: int | None
    """What is read when it returns"""
    lasted: int


def define_sources(lane: Lane) -> None:
    for number in range(1, 4):
        lane.define_source(number, "train.py", number)


NESTED = [Move(0, 1, True, False, 0), Move(1, 0, False, False, 0), Move(2, 0, False, True, 3)] * 9

FLAT = [Move(3, 2, False, False, 1)] * 12

SHAPE = [[[NESTED], [NESTED, FLAT]], [[FLAT, NESTED]]]


def rows_of(hops: pl.DataFrame) -> set[tuple[object, ...]]:
    return set(hops.select("process", "thread", "start_ns", "op", "key").rows())


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, set[tuple[object, ...]]]:
    writer, _ = record(SHAPE, hop_chunk_bytes=512)
    path = tmp_path_factory.mktemp("sound") / "sound.trace"
    return writer.data(), rows_of(load(writer.write(path)).hops)


@examples(150)
@given(kept=st.floats(0, 1))
@example(kept=0.0)
def test_a_cut_file_gives_the_hops_before_the_cut(
    tmp_path_factory: pytest.TempPathFactory, sound: tuple[bytes, set[tuple[object, ...]]], kept: float
) -> None:
    data, rows = sound
    size = int(kept * len(data))
    path = tmp_path_factory.mktemp("cut") / "cut.trace"
    path.write_bytes(data[:size])
    if size < 4096:
        with pytest.raises(TraceError, match=r"ends inside its header|is empty"):
            load(path)
        return
    trace = load(path)
    # Names may be cut off, hops that never were may not appear.
    times = {row[:3] for row in rows}
    assert {row[:3] for row in rows_of(trace.hops)} <= times
    if size < len(data):
        assert trace.certificate["missing_bytes"] == len(data) - size
        assert "missing at the end" in trace.certificate["verdict"]


@examples(300)
@given(
    place=st.floats(0, 1, exclude_max=True),
    size=st.sampled_from([1, 1, 1, 8, 64, 700]),
    seed=st.integers(0, 2**32),
    fill=st.sampled_from(["random", "zeros", "ones"]),
)
def test_damage_never_invents_a_hop(
    tmp_path_factory: pytest.TempPathFactory,
    sound: tuple[bytes, set[tuple[object, ...]]],
    place: float,
    size: int,
    seed: int,
    fill: str,
) -> None:
    data, rows = sound
    start = int(place * len(data))
    size = min(size, len(data) - start)
    randomly = random.Random(seed).randbytes(size)
    noise = {"zeros": bytes(size), "ones": b"\xff" * size, "random": randomly}[fill]
    damaged = data[:start] + noise + data[start + size :]
    path = tmp_path_factory.mktemp("damage") / "damaged.trace"
    path.write_bytes(damaged)
    try:
        trace = load(path)
    except TraceError:
        assert start < fmt.FILE_HEADER.size
        return
    assert len(trace.hops) <= len(rows)
    assert (trace.hops["end_ns"] >= trace.hops["start_ns"]).all()
    assert (trace.hops["self_ns"] >= 0).all()
    if start >= 4096:
        lost = len(rows - rows_of(trace.hops))
        chunks_hit = size // 512 + 2
        assert lost <= chunks_hit * 64 or trace.certificate["undefined_hops"]


@pytest.fixture(scope="module")
def sound_with_cuda(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, int]]:
    """A trace with everything that a GPU brings, and the rows of its tables."""
    writer = new_recording(hop_chunk_bytes=512)
    layout = [("enter", f"a{number}", "void *", 8 * number, 8) for number in range(8)]
    for domain in range(3):
        writer.function(7, f"cudaLaunchKernel{domain}", *layout, ("exit", "*a", "int", 0, 4), domain=domain)
    writer.function(8, "cudaGetDevice", *layout[:2], ("exit", "*a", "int", 0, 4))
    writer.enumeration("kind_t", one=1)
    writer.gpu(0, "GPU", maxIPC=4)
    writer.string(1, "_Z6kernelv")
    lane = writer.lane()
    define_sources(lane)
    lane.define_stack(1, 0x10, 0x20)
    for number in range(1, 25):
        lane.enter(number % 4, source=1)
        lane.library_enter(7, *range(number % 9))
        lane.api_enter(7, *([1 << 63] * (number % 5)), correlation=number, stack=1)
        lane.api(7, correlation=1000 + number, driver=True)
        lane.call_exit(3, 4)
        lane.call_exit()
        lane.query(8, *([1 << 63] * (number % 3)), correlation=2000 + number, stack=1, read=number)
        lane.exit()
        lane.step(number)
        writer.kernel(number, 5000 + number, 6000 + number, name=1, node=number % 3)
        writer.graph_node(number, original=number - 1, correlation=number)
    trace = load(writer.write(tmp_path_factory.mktemp("sound") / "cuda.trace"))
    assert trace.certificate["cuda"]["reconciles"]
    tables = ("hops", "api_calls", "library_calls", "gpu_activities", "stacks", "devices")
    return writer.data(), {name: len(getattr(trace, name)) for name in tables}


@examples(300)
@given(
    place=st.floats(0, 1, exclude_max=True),
    size=st.sampled_from([1, 1, 1, 8, 64, 700]),
    seed=st.integers(0, 2**32),
    cut=st.booleans(),
)
def test_damage_of_a_trace_with_cuda_is_read_over(
    tmp_path_factory: pytest.TempPathFactory,
    sound_with_cuda: tuple[bytes, dict[str, int]],
    place: float,
    size: int,
    seed: int,
    cut: bool,
) -> None:
    data, rows = sound_with_cuda
    start = int(place * len(data))
    size = min(size, len(data) - start)
    rest = b"" if cut else data[start + size :]
    path = tmp_path_factory.mktemp("damage") / "damaged.trace"
    path.write_bytes(data[:start] + random.Random(seed).randbytes(size) + rest)
    try:
        trace = load(path)
    except TraceError:
        assert start < fmt.FILE_HEADER.size or cut
        return
    for name, count in rows.items():
        # Noise in the place of one event can look like others, and a damaged exit like a call.
        assert len(getattr(trace, name)) <= count + 1 + size // 24, name
    calls = trace.api_calls
    assert (calls["end_ns"] >= calls["start_ns"]).all()
    for column, limit in (("hop", len(trace.hops)), ("parent", len(calls)), ("stack", len(trace.stacks))):
        assert calls[column].drop_nulls().max() in (None, *range(limit))
    assert trace.gpu_activities["api_call"].drop_nulls().max() in (None, *range(len(calls)))
    for name in set(calls["name"].drop_nulls().cast(pl.String)):
        assert len(trace.arguments(name)) == calls.filter(pl.col("name") == name).height


def test_a_damaged_argument_word_does_not_make_an_event(tmp_path: Path) -> None:
    """An argument that damage turned into an exit of the hop that is open."""
    writer = new_recording()
    writer.function(7, "cudaFoo")
    lane = writer.lane()
    lane.enter(0)
    lane.api(7, 1, 2, 3, 4)
    lane.api(7, 5)
    lane.exit()
    words = lane.events[2][1]
    words[5] = 1 << 63 | 2 << 59 | 3
    trace = load(writer.write(tmp_path / "x.trace"))
    assert trace.hops.select("op", "open").rows() == [("aten::op0", False)]
    assert len(trace.api_calls) == 1
    assert trace.certificate["torn_events"] == 2
    assert trace.certificate["damaged_chunks"] == 1


def test_events_of_calls_with_and_without_a_word_that_is_zero_are_read_alike(tmp_path: Path) -> None:
    def recorded(brief: bool) -> list[object]:
        writer = new_recording(brief=brief)
        writer.function(7, "cudaFoo", ("enter", "a", "int", 0, 8), ("exit", "*a", "int", 0, 8))
        lane = writer.lane()
        lane.define_string(1, "kernel")
        lane.define_stack(2, 0x7000)
        lane.enter(0)
        for result in (0, 3):
            for kernel in (0, 1):
                lane.api_enter(7, 1, correlation=5 + result, stack=2, kernel=kernel)  # 1: a name, too
                lane.call_exit(*([22] if not result else []), result=result, captured=bool(kernel))
        lane.exit()
        lane.library_enter(7, 1 << 63, source=0)
        lane.call_exit()
        trace = load(writer.write(tmp_path / f"{brief}.trace"))
        assert trace.certificate["torn_events"] == 0
        return [trace.api_calls.rows(), trace.library_calls.rows(), trace.hops.rows()]

    assert recorded(True) == recorded(False)


@examples(60)
@given(
    st.lists(
        st.one_of(
            st.builds(
                Call,
                st.lists(st.sampled_from([0, 5, 1 << 63, 2**64 - 1]), max_size=4),
                st.sampled_from([None, 0, 1, 2**32 - 1]),
                st.sampled_from([0, 1, 1000, 2**30 - 1]),
            ),
            st.sampled_from(["enter", "exit", "call", "library"]),
        ),
        max_size=60,
    ),
    st.integers(30, 200),
)
def test_a_query_is_read_as_the_call_and_the_return_that_it_stands_for(
    tmp_path_factory: pytest.TempPathFactory, moves: list[Call | str], chunk_words: int
) -> None:
    def recorded(as_query: bool) -> list[object]:
        writer = new_recording(hop_chunk_bytes=64 + 8 * chunk_words)
        layout = [("enter", f"a{number}", "void *", 8 * number, 8) for number in range(4)]
        writer.function(7, "cudaFoo", *layout, ("exit", "*a", "int", 0, 4))
        writer.function(8, "cublasFoo", domain=2)
        lane = writer.lane()
        define_sources(lane)
        lane.define_stack(1, 0x7000)
        for number, move in enumerate(moves):
            if isinstance(move, Call):
                words = {"correlation": number + 1, "stack": number % 2}
                if as_query and lane.open_hops:
                    lane.query(7, *move.arguments, **words, lasted=move.lasted, read=move.read)
                    continue
                writer.ticks = lane.api_enter(7, *move.arguments, **words) + move.lasted - 1
                lane.call_exit(*([] if move.read is None else [move.read]))
            elif move == "enter":
                lane.enter(1, source=1)
            elif move == "exit" and lane.open_hops:
                lane.exit()
            elif move == "call":
                lane.api(7, 1, 2)
            elif move == "library":
                lane.library_enter(8)
        while lane.open_calls:
            lane.call_exit()
        trace = load(writer.write(tmp_path_factory.mktemp("queries") / "x.trace"))
        assert trace.certificate["torn_events"] == 0
        arguments = trace.arguments("cudaFoo").rows() if len(trace.api_calls) else None
        return [trace.api_calls.rows(), arguments, trace.library_calls.rows(), trace.hops.rows()]

    assert recorded(True) == recorded(False)


@pytest.mark.parametrize(
    ("event", "word", "flip"),
    [
        (2, 1, 1 << 24),  # bit 63 of an argument that is not there
        (3, 2, 1 << 40),  # of a result
        (4, 1, 1 << 16),  # a library call of the driver
        (4, 2, 5),  # a library call with a correlation id
        (6, 1, 1 << 32),  # of a step
        (6, 0, 1 << 58),  # a step without a word that no step has
        (7, 1, 1 << 16),  # a query of the driver
        (7, 3, 1 << 35),  # what was read at a return where nothing was
        (7, 2, 3),  # no correlation id
        (7, 1, 1 << 46),  # outside hops
    ],
)
def test_calls_with_bits_that_the_writer_never_sets_are_left_out(
    tmp_path: Path, event: int, word: int, flip: int
) -> None:
    writer = new_recording()
    writer.function(7, "cudaFoo")
    lane = writer.lane()
    lane.enter(0)
    lane.api(7, 1, result=2)
    lane.library_enter(7)
    lane.call_exit()
    lane.step(1)
    lane.query(7, correlation=3)
    lane.exit()
    lane.events[event][1][word] ^= flip
    certificate = load(writer.write(tmp_path / "x.trace")).certificate
    assert certificate["torn_events"] >= 1
    assert certificate["damaged_chunks"] == 1
    assert certificate["hops"] == 1


def test_a_call_with_more_argument_words_than_one_can_have_is_left_out(tmp_path: Path) -> None:
    writer = new_recording(hop_chunk_bytes=1 << 12)
    lane = writer.lane()
    lane.api(7, *range(24))
    lane.api(7, *range(25))
    trace = load(writer.write(tmp_path / "x.trace"))
    assert len(trace.api_calls) == 1
    assert trace.certificate["torn_events"] == 1


def test_hops_outside_of_a_damaged_event_stay(tmp_path: Path) -> None:
    writer = new_recording(hop_chunk_bytes=1 << 12)
    lane = writer.lane()
    for _ in range(20):
        lane.enter(0)
        lane.exit()
    data = bytearray(writer.data())
    words = [word for _, event in lane.events[:12] for word in event]
    start = data.index(struct.pack(f"<{len(words)}Q", *words))
    offset = start + 8 * sum(len(event) for _, event in lane.events[:11])
    data[offset + 7] &= 0x7F  # the event bit of the sixth enter
    (tmp_path / "x.trace").write_bytes(data)
    trace = load(tmp_path / "x.trace")
    assert len(trace.hops) == 19
    assert not trace.hops["open"].any()
    assert trace.certificate["unmatched_exits"] == 1
    assert trace.certificate["damaged_chunks"] == 1
    assert "damaged" in trace.certificate["verdict"]


def test_a_damaged_body_word_is_not_taken_for_an_event(tmp_path: Path) -> None:
    """The third word of an enter turned into a node event that would rename what follows."""
    writer = new_recording(hop_chunk_bytes=1 << 12)
    lane = writer.lane()
    lane.define_string(0x1234, "Invented")
    lane.enter(0)
    lane.exit()
    lane.enter(1)
    lane.exit()
    words = lane.events[1][1]
    words[2] = 1 << 63 | 3 << 59 | 1
    words[4] = 0x1234
    trace = load(writer.write(tmp_path / "x.trace"))
    assert trace.hops["op"].to_list() == ["aten::op1"]
    assert trace.hops["backward_node"].to_list() == [None]


def test_an_exit_that_damage_made_an_enter_is_not_taken_for_one(tmp_path: Path) -> None:
    writer = new_recording()
    lane = writer.lane()
    lane.enter(0)
    lane.exit()
    lane.events[-1][1][0] ^= 3 << 59  # the last words of the chunk, with zeros behind them
    trace = load(writer.write(tmp_path / "x.trace"))
    assert len(trace.hops) == 1
    assert trace.certificate["torn_events"] == 1


def test_a_damaged_chunk_header_costs_that_chunk_only(tmp_path: Path) -> None:
    writer = new_recording(hop_chunk_bytes=256)
    lane = writer.lane()
    for _ in range(30):
        lane.enter(0)
        lane.exit()
    chunks = writer.chunks()
    data = writer.data()
    offset = 4096 + sum(map(len, chunks[:3]))
    (tmp_path / "x.trace").write_bytes(data[:offset] + b"\xaa" * 16 + data[offset + 16 :])
    certificate = load(tmp_path / "x.trace").certificate
    assert certificate["damaged_chunks"] == 1
    assert certificate["missing_chunks"] == 1
    assert 24 <= certificate["hops"] < 30


@pytest.mark.parametrize("capacity", [0, 64, 128, 1 << 12, 0xFFFFFFC0])
def test_a_wrong_capacity_does_not_hide_the_chunks_that_follow(tmp_path: Path, capacity: int) -> None:
    writer = new_recording(hop_chunk_bytes=256)
    lane = writer.lane()
    for _ in range(30):
        lane.enter(0)
        lane.exit()
    data = bytearray(writer.data())
    offset = 4096 + sum(map(len, writer.chunks()[:2]))
    data[offset + 4 : offset + 8] = struct.pack("<I", capacity)
    (tmp_path / "x.trace").write_bytes(data)
    certificate = load(tmp_path / "x.trace").certificate
    assert certificate["hops"] == 30
    assert certificate["damaged_chunks"] == 1


def test_a_killed_recording_keeps_every_hop_and_says_what_was_open(tmp_path: Path) -> None:
    writer = TraceWriter(header={"state": 0, "attached": 1}, trailing_zeros=1 << 16)
    writer.process(certificate=None)
    writer.hop(0, "aten::outer")
    writer.hop(1, "aten::inner")
    lane = writer.lane()
    lane.enter(0)
    lane.enter(1)
    lane.exit()
    last = lane.enter(1)
    body = b"".join(struct.pack(f"<{len(words)}Q", *words) for _, words in lane.events)
    torn = struct.pack("<3Q", 0, 99, 1)  # the first word of an event is written last
    lane.events.clear()
    data = writer.data()[: -writer.trailing_zeros]
    data += chunk(1, 0, 100, 0, 0, 1000, body + torn, closed=False, capacity=1 << 14)
    path = tmp_path / "killed.trace"
    path.write_bytes(data + bytes(1 << 16))
    trace = load(path)
    assert trace.hops.select("op", "parent", "open").rows() == [
        ("aten::outer", None, True),
        ("aten::inner", 0, False),
        ("aten::inner", 0, True),
    ]
    assert trace.hops["end_ns"].to_list()[0] == last * NS
    assert trace.certificate["open_hops"] == 2
    assert trace.certificate["torn_events"] == 1
    assert trace.certificate["damaged_chunks"] == 0
    assert trace.certificate["closed_in_order"] == {0: False}


def test_a_chunk_that_was_claimed_and_never_begun_is_no_damage(tmp_path: Path) -> None:
    writer = new_recording()
    lane = writer.lane()
    lane.enter(0)
    lane.exit()
    chunks = writer.chunks()
    header = writer.data()[:4096]
    (tmp_path / "x.trace").write_bytes(header + chunks[0] + bytes(1 << 20) + chunks[1])
    certificate = load(tmp_path / "x.trace").certificate
    assert (certificate["hops"], certificate["damaged_chunks"]) == (1, 0)


def test_a_chunk_trimmed_within_a_record_that_ends_with_zeros_is_whole(tmp_path: Path) -> None:
    writer = new_recording()
    lane = writer.lane()
    lane.enter(0)
    lane.exit()
    words = [word for _, event in lane.events for word in event] + [1 << 63 | 3 << 59 | 9]  # kNode 0, 0
    lane.events.clear()
    data = writer.data() + chunk(1, 0, 100, 0, 0, 1000, struct.pack(f"<{len(words)}Q", *words))
    (tmp_path / "x.trace").write_bytes(data)
    certificate = load(tmp_path / "x.trace").certificate
    assert (certificate["hops"], certificate["torn_events"], certificate["damaged_chunks"]) == (1, 0, 0)


def test_hops_open_when_a_later_thread_takes_the_lane_belong_to_the_first(tmp_path: Path) -> None:
    writer = new_recording()
    lane = writer.lane(thread=1001, torch_thread=1)
    first = lane.enter(0)
    last = lane.enter(1)
    lane.adopt(1002, torch_thread=2)
    lane.enter(2)
    lane.exit()
    hops = load(writer.write(tmp_path / "x.trace")).hops
    assert hops.select("thread", "op", "parent", "open").rows() == [
        (1001, "aten::op0", None, True),
        (1001, "aten::op1", 0, True),
        (1002, "aten::op2", None, False),
    ]
    assert hops["start_ns"][0] == first * NS
    assert hops["end_ns"].to_list()[:2] == [last * NS, last * NS]


@pytest.mark.parametrize("hops_before", range(12))
def test_a_thread_that_takes_a_lane_where_a_chunk_begins_has_its_own_hops(
    tmp_path: Path, hops_before: int
) -> None:
    writer = new_recording(hop_chunk_bytes=64 + 8 * 14)
    lane = writer.lane(thread=1001, torch_thread=1)
    for _ in range(hops_before):
        lane.range_enter(1)
    lane.enter(0)
    lane.exit()
    lane.adopt(1002, torch_thread=2)
    lane.enter(1)
    lane.exit()
    hops = load(writer.write(tmp_path / "x.trace")).hops
    assert hops.select("thread", "op").rows() == [(1001, "aten::op0"), (1002, "aten::op1")]
