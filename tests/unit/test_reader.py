"""Reading the bytes of a trace: what is whole is read, what is not is counted."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lane_moves import Move, moves, record
from synthetic import TraceWriter

from examples import examples
from tracer.trace import TraceError, load
from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.nesting import nest, sources_inside

# ---- any recording reads back ----------------------------------------------------------------


@examples(60)
@given(
    processes=st.lists(
        st.lists(st.lists(st.lists(moves, max_size=40), min_size=1, max_size=3), max_size=2), max_size=2
    ),
    chunk_words=st.integers(13, 200),
)
def test_any_recording_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, processes: list[list[list[list[Move]]]], chunk_words: int
) -> None:
    writer, rows = record(processes, hop_chunk_bytes=64 + 8 * chunk_words)
    trace = load(writer.write(tmp_path_factory.mktemp("any") / "any.trace"))
    columns = list(rows[0]) if rows else []
    assert trace.hops.select(columns).to_dicts() == rows
    assert trace.hops["id"].to_list() == list(range(len(rows)))
    assert trace.certificate["hops"] == len(rows)
    assert trace.certificate["open_hops"] == sum(row["open"] for row in rows)
    plural = "hop" if len(rows) == 1 else "hops"
    if rows:
        assert trace.certificate["verdict"] == f"complete: {len(rows)} {plural}, nothing dropped"
        assert trace.certificate["why"] == []
    else:
        assert trace.certificate["why"] == ["nothing was recorded: no op ran"]
    assert trace.certificate["complete"] == bool(rows)


# ---- damage -----------------------------------------------------------------------------------


# ---- killed processes -----------------------------------------------------------------------


# ---- what is no trace ---------------------------------------------------------------------------


def test_a_script_is_not_a_trace(tmp_path: Path) -> None:
    script = tmp_path / "slow one.py"
    script.write_text("import torch\n" * 400)
    with pytest.raises(
        TraceError, match=r"slow one\.py is not a trace; to record it: tracer record '.*\.py'$"
    ):
        load(script)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"is empty: nothing was recorded"),
        (b"PK\x03\x04 and so on", r"is not a trace; give a file"),
        (b"tracer", r"ends inside its header \(6 of 4096 bytes\)"),
        (b"tracer\n\x1a" + bytes(200), r"ends inside its header \(208 of 4096 bytes\)"),
        (
            TraceWriter(header={"version": 5}).data(),
            r"has trace format 5, which was never released; this tracer reads 6 and 7: record it again",
        ),
        (
            TraceWriter(header={"version": 9}).data(),
            r"has trace format 9, but this tracer reads 6 and 7: upgrade",
        ),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.trace"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_no_file_and_a_folder_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        load(tmp_path / "absent.trace")
    with pytest.raises(TraceError, match="it is a folder"):
        load(tmp_path)


def test_a_trace_without_a_chunk_is_an_empty_trace(tmp_path: Path) -> None:
    trace = load(TraceWriter().write(tmp_path / "x.trace"))
    assert len(trace.hops) == len(trace.signatures) == len(trace.processes) == len(trace.threads) == 0


# ---- the mirror of records.h ----------------------------------------------------------------------


def test_numbers_are_those_of_the_writer() -> None:
    header = (Path(__file__).parents[2] / "csrc/trace/records.h").read_text()
    header = re.sub(r"//.*", "", header)
    numbers = {
        name: int(value, 0)
        for name, value in re.findall(r"\bk(\w+)\s*=\s*(0x[0-9a-f]+|\d+)u?\s*[,;}]", header)
    }
    mirrored = 0
    for name, value in numbers.items():
        constant = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()
        if hasattr(fmt, constant):
            assert getattr(fmt, constant) == value, name
            mirrored += 1
    assert mirrored >= 60
    sizes = dict(re.findall(r"sizeof\((\w+)\) == (\d+)", header))
    assert fmt.FILE_HEADER.size == int(sizes["FileHeader"])
    assert fmt.CHUNK_HEADER.size == int(sizes["ChunkHeader"])
    assert fmt.DEFINITION_HEAD.size == int(sizes["DefinitionHead"])


# ---- nesting ----------------------------------------------------------------------------------------


def test_nest_finds_parents_and_exits() -> None:
    # 0( 1( 2() 3() ) ) 4()
    depth = np.array([0, 1, 2, 2, 2, 2, 1, 0, 0, 0], np.uint16)
    enter = np.array([1, 1, 1, 0, 1, 0, 0, 0, 1, 0], np.bool_)
    hop = np.array([9, 8, 7, 7, 6, 6, 8, 9, 5, 5], np.uint32)
    nesting = nest(depth, enter, hop)
    assert nesting.parent.tolist() == [-1, 0, 1, 1, -1]
    assert nesting.exit.tolist() == [7, 6, 3, 5, 9]
    assert nesting.unmatched_exits == 0


def test_a_hop_without_a_line_of_its_own_has_that_of_the_hop_around_it() -> None:
    # 0( 1( 2() 3( 4() ) ) 5() ) 6( 7() ) 8(): 7 is in a hop that no Python called
    parent = np.array([-1, 0, 1, 1, 3, 0, -1, 6, -1])
    source = np.array([5, 0, 7, 8, 0, 0, 0, 9, 5], np.uint32)
    assert sources_inside(source, parent).tolist() == [5, 5, 7, 8, 8, 5, 0, 9, 5]
    assert sources_inside(source[:0], parent[:0]).tolist() == []


def test_nest_ends_a_hop_whose_exit_is_lost_where_the_thread_is_seen_above_it() -> None:
    # 0( 1( <lost exit> ) 2(
    depth = np.array([0, 1, 0, 0], np.uint16)
    enter = np.array([1, 1, 0, 1], np.bool_)
    hop = np.array([0, 1, 0, 2], np.uint32)
    nesting = nest(depth, enter, hop)
    assert nesting.exit.tolist() == [2, -1, -1]
    assert nesting.end.tolist() == [2, 2, -1]


def test_nest_does_not_match_an_exit_of_another_hop() -> None:
    nesting = nest(np.array([0, 0], np.uint16), np.array([1, 0], np.bool_), np.array([1, 2], np.uint32))
    assert nesting.exit.tolist() == [-1]
    assert nesting.unmatched_exits == 1


def test_a_ring_says_what_it_lacks(tmp_path: Path) -> None:
    header = {"ring_slots": 12, "max_bytes": 16 << 20, "overwritten_hops": 1234, "other_definitions": 2}
    writer = TraceWriter(header=header)
    writer.process()
    lane = writer.lane()
    writer.hop(1, "aten::neg")
    lane.enter(1, source=0x7FFFFFFF, signature=0x7FFFFFFF)
    lane.exit()
    certificate = load(path := writer.write(tmp_path / "ring.trace")).certificate
    assert certificate["why"] == [
        "1,234 hops overwritten (--max-size 16M keeps the newest)",
        "2 times the ring had no space for a string, source line or shape: shown as (other)",
    ]
    hops = load(path).hops
    assert hops["called_from"].to_list() == ["(other)"]
    assert hops["inputs"].to_list() == [None]


@pytest.mark.parametrize(
    ("owner", "damaged"), [(fmt.SLOT_IN_USE, 0), (1 << 30, 1)], ids=["in use", "written"]
)
def test_a_slot_of_a_ring_that_was_being_erased_is_not_damaged(
    tmp_path: Path, owner: int, damaged: int
) -> None:
    slots = {
        "ring_slots": 2,
        "max_bytes": 4 << 20,
        "header_bytes": 2 * fmt.HEADER_BYTES,
        "state": fmt.RECORDING,
    }
    writer = TraceWriter(header=slots)
    writer.process()
    writer.hop(1, "aten::neg")
    definitions = writer.data()
    erased_to_its_half = bytes(fmt.SLOT_BYTES // 2) + b"what was there" * 1000
    owners = struct.pack("<2I", 0, owner).ljust(fmt.HEADER_BYTES, b"\0")
    path = tmp_path / "ring.trace"
    path.write_bytes(
        definitions[: fmt.HEADER_BYTES]
        + owners
        + bytes(fmt.SLOT_BYTES)
        + erased_to_its_half.ljust(fmt.SLOT_BYTES, b"\0")
        + definitions[fmt.HEADER_BYTES :]
    )
    assert load(path).certificate["damaged_chunks"] == damaged
