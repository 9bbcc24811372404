"""Reading one step: its rows are those of the whole trace, and little else is read."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from gpu_trace import PATH
from hypothesis import given
from hypothesis import strategies as st
from lane_moves import Move, moves, new_recording
from synthetic import AUTOGRAD_CPU, CPU, Lane, TraceWriter
from typer.testing import CliRunner

from examples import examples
from tracer.trace import Trace, TraceError, load

SAME = (
    *("process", "thread", "kind", "op", "key", "start_ns", "end_ns", "self_ns", "source", "called_from"),
    *("range", "sequence_nr", "backward_node", "raised", "step", "open"),
)


def step_of(trace: Trace, step: int) -> list[tuple[object, ...]]:
    """The rows of a step, with parents and forward hops as their times of start."""
    hops = trace.hops
    start = hops["start_ns"]
    return (
        hops.select(*SAME, above=start.gather(hops["parent"]), forward=start.gather(hops["forward_hop"]))
        .with_columns(pl.col(pl.Categorical).cast(pl.String))
        .filter(pl.col("step") == step)
        .rows()
    )


def enter(lane: Lane, move: Move, sequence: int) -> None:
    key_set = AUTOGRAD_CPU if move.at_autograd else CPU
    number = {"sequence": sequence} if move.at_autograd else {}
    lane.enter(move.hop, key_set, source=move.source if not lane.open_hops else 0, **number)


def recording(steps: list[list[tuple[int, Move]]], backward: bool, chunk_bytes: int) -> TraceWriter:
    """Two threads; a move is of one of them, and op calls may reach over the end of a step."""
    writer = new_recording(hop_chunk_bytes=chunk_bytes)
    lanes = [writer.lane(0, number, 1001 + number, torch_thread=1 + number) for number in range(2)]
    for lane in lanes:
        lane.define_string(1, "MmBackward0")
        lane.define_string(2, "outer")
        for line in range(1, 4):
            lane.define_source(line, "train.py", line)
    lanes[0].range_enter(2)
    sequence = 0
    for number, step in enumerate(steps, 1):
        for place, move in step:
            sequence += 1
            enter(lanes[place], move, sequence)
            for _ in range(min(move.leaves, len(lanes[place].open_hops))):
                lanes[place].exit(move.raised)
        if backward:
            lanes[1].node(1, max(sequence - 4, 1), 1)
            lanes[1].enter(3)
            lanes[1].exit()
            lanes[1].node(0)
        lanes[number % 2].step(number)
    return writer


@examples(80)
@given(
    steps=st.lists(st.lists(st.tuples(st.integers(0, 1), moves), max_size=12), min_size=1, max_size=5),
    backward=st.booleans(),
    chunk_bytes=st.sampled_from([200, 400, 4000]),
)
def test_a_step_is_as_in_the_whole_trace(
    steps: list[list[tuple[int, Move]]],
    backward: bool,
    chunk_bytes: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = recording(steps, backward, chunk_bytes).write(tmp_path_factory.mktemp("step") / "x.trace")
    whole = load(path)
    for number in range(len(steps)):
        part = load(path, step=number)
        assert step_of(part, number) == step_of(whole, number)
        for count in ("lost_exits", "unmatched_exits", "torn_events", "missing_chunks", "undefined_hops"):
            assert part.certificate[count] == 0 or whole.certificate[count] != 0


def long_recording(tmp_path: Path) -> Path:
    """20 steps of 50 op calls."""
    writer = new_recording(hop_chunk_bytes=400)
    lane = writer.lane()
    for number in range(1, 21):
        for _ in range(50):
            lane.enter(0)
            lane.enter(1)
            lane.exit()
            lane.exit()
        lane.step(number)
    return writer.write(tmp_path / "x.trace")


def test_little_else_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tracer.trace.tables import one_step

    path = long_recording(tmp_path)
    parse, read = one_step.parse_events, []
    monkeypatch.setattr(
        one_step,
        "parse_events",
        lambda words, key_sets: read.append(int((words > 0).sum())) or parse(words, key_sets),
    )
    trace = load(path, step=7)
    assert 100 <= len(trace.hops) <= 102
    assert sum(read) < 102 * 7 + 60  # words
    assert trace.hops["phase"].null_count() == len(trace.hops)


def test_a_forward_hop_of_an_earlier_step_is_found(tmp_path: Path) -> None:
    writer = new_recording(hop_chunk_bytes=200)
    lane = writer.lane()
    lane.define_string(1, "MmBackward0")
    lane.define_source(1, "train.py", 1)
    lane.define_source(2, "train.py", 2)
    for number in range(40):
        lane.enter(0, AUTOGRAD_CPU, sequence=number, source=1)
        lane.exit()
        if number % 4 == 3:
            lane.step(number // 4 + 1)
    lane.node(1, 5, 1)  # made in the second step
    lane.enter(1, source=2)
    lane.exit()
    lane.node(0)
    lane.step(11)
    path = writer.write(tmp_path / "x.trace")
    (row,) = load(path, step=10).hops.filter(pl.col("step") == 10).iter_rows(named=True)
    assert (row["source"], row["called_from"]) == ("train.py:1", "train.py:2")
    assert row["forward_hop"] is not None


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_recording_from_a_gpu(step: int) -> None:
    whole, part = load(PATH), load(PATH, step=step)
    assert step_of(part, step) == step_of(whole, step)

    def calls(trace: Trace) -> list[tuple[object, ...]]:
        texts = pl.col(pl.Categorical).cast(pl.String)
        rows = trace.api_calls.filter((pl.col("step") == step) & pl.col("hop").is_not_null())
        return rows.select("name", "start_ns", "arguments").with_columns(texts).rows()

    assert calls(part) == calls(whole)
    assert "cuda" not in part.certificate


def test_a_step_that_is_not_there(tmp_path: Path) -> None:
    path = long_recording(tmp_path)
    with pytest.raises(TraceError, match=r"x.trace has no step 20; choose 0 to 19"):
        load(path, step=20)
    writer = new_recording()
    writer.lane().enter(0)
    with pytest.raises(TraceError, match=r"no step ended in .*tracer\.step\(\)"):
        load(writer.write(tmp_path / "y.trace"), step=0)


def test_tree_and_table_of_a_step(tmp_path: Path) -> None:
    from tracer.cli.app import app

    path = str(long_recording(tmp_path))
    tree = CliRunner().invoke(app, ["tree", path, "--step", "3"])
    assert tree.stdout.splitlines()[1] == "no Python line  50 op calls, 1.5 us"
    flat = CliRunner().invoke(app, ["top", path, "--step", "3", "--by", "op"])
    assert [line.split()[-3:-1] for line in flat.stdout.splitlines()[1:]] == [["50", "50"], ["50", "50"]]
    missing = CliRunner().invoke(app, ["tree", path, "--step", "30"])
    assert missing.exit_code == 1
    assert missing.stderr.endswith("has no step 30; choose 0 to 19\n")


def test_calls_outside_ops_belong_to_the_step_too() -> None:
    from tracer.cli.app import app

    whole = CliRunner().invoke(
        app, ["tree", str(PATH), "--step", "1", "--limit", "0", "--op", "cudaMemcpyAsync"]
    )
    assert whole.exit_code == 0
    assert "cudaMemcpyAsync" in whole.stdout
