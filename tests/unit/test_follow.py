"""Following a recording: every hop comes once, when it has ended, as `load` reads it afterwards."""

from __future__ import annotations

import lzma
import os
import random
import signal
from pathlib import Path

import polars as pl
import pytest
from every_kind import written
from growing import Growing
from hypothesis import given
from hypothesis import strategies as st
from lane_moves import Move, moves, new_recording, run
from synthetic import AUTOGRAD_CPU, CPU, TraceWriter, tensor
from typer.testing import CliRunner

from examples import examples
from tracer.cli.app import app
from tracer.trace import TraceError, load
from tracer.trace.live.follower import Follower

COLUMNS = ("process", "thread", "kind", "op", "key", "start_ns", "end_ns", "self_ns", "called_from", "raised")
KEYS = ("process", "thread", "start_ns")


def plain(hops: pl.DataFrame) -> list[tuple[object, ...]]:
    """Rows in the order of the table of hops."""
    texts = pl.col(pl.Categorical).cast(pl.String)
    return hops.select(COLUMNS).with_columns(texts).sort(KEYS).rows()


def look(follower: Follower) -> list[pl.DataFrame]:
    """All batches that are to be had now."""
    assert follower.wait()
    batches = [follower.look()]
    while follower.more:
        batches.append(follower.look())
    return batches


def ended(batches: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(batch.filter(~pl.col("open")) for batch in batches)


def recording(threads: list[list[Move]]) -> TraceWriter:
    writer = new_recording()
    for number, thread_moves in enumerate(threads):
        lane = writer.lane(0, number, 1001 + number, torch_thread=1 + number)
        for line in range(1, 4):
            lane.define_source(line, "train.py", line)
        run(lane, thread_moves, [])
        while lane.open_hops:
            lane.exit()
    return writer


@examples(30)
@given(
    threads=st.lists(st.lists(moves, max_size=12), min_size=1, max_size=2),
    room=st.sampled_from([64, 200, 4000]),
    seed=st.integers(0, 1 << 16),
    stopped=st.booleans(),
)
def test_looks_at_any_moment_add_up_to_the_trace(
    threads: list[list[Move]],
    room: int,
    seed: int,
    stopped: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("follow") / "x.trace"
    writer = recording(threads)
    draw = random.Random(seed)
    growing = Growing(writer, path, room=room)
    growing.define()
    follower = Follower(path)
    batches = look(follower)
    lanes = list(range(len(threads)))
    while any(growing.left(number) for number in lanes):
        growing.write(draw.choice(lanes), draw.randint(1, 12), torn=draw.random() < 0.5)
        batches += look(follower)
        assert not follower.ended
    growing.stop() if stopped else growing.die()
    batches += look(follower)
    assert follower.ended
    assert follower.killed is not stopped
    hops = load(path).hops
    assert plain(ended(batches)) == plain(hops)
    # what a hop stands in comes with it
    for batch in batches:
        parents = batch["parent"].drop_nulls()
        assert parents.is_in(batch["id"].implode()).all()
        depth = batch["depth"].cast(pl.Int64)
        above = depth.gather(batch["parent"])
        assert ((depth == above + 1) | above.is_null()).all()
    follower.close()


def test_size_counts_the_hops_of_an_op_call_over_many_looks(tmp_path: Path) -> None:
    writer = new_recording()
    lane = writer.lane()
    lane.enter(0)
    for _ in range(10):
        lane.enter(1)
        lane.enter(2)
        lane.exit()
        lane.exit()
    lane.exit()
    growing = Growing(writer, tmp_path / "x.trace", room=100)
    growing.define()
    follower = Follower(growing.path)
    batches = []
    while growing.left(0):
        growing.write(0, 3)
        batches += look(follower)
    outermost = ended(batches).filter(pl.col("depth") == 0)
    assert outermost["size"].to_list() == [21]
    assert outermost["self_ns"].sum() == load(growing.path).hops["self_ns"][0]
    growing.die()


def test_nodes_inputs_and_threads_are_known_across_looks(tmp_path: Path) -> None:
    writer = new_recording()
    lane = writer.lane(thread=1001)
    lane.define_string(1, "MmBackward0")
    lane.define_signature(1, tensor((4, 4)))
    lane.name_thread(1, "worker")
    lane.node(1, 7, 1)
    for _ in range(3):
        lane.enter(0, AUTOGRAD_CPU, sequence=5, signature=1)
        lane.enter(0, CPU, call_site=2)
        lane.exit()
        lane.exit(raised=True)
    lane.node(0)
    lane.enter(1)
    lane.exit()
    growing = Growing(writer, tmp_path / "x.trace")
    growing.define()
    follower = Follower(growing.path)
    batches = []
    while growing.left(0):
        growing.write(0, 2)
        batches += look(follower)
    hops = ended(batches).sort("start_ns")
    assert hops["backward_node"].cast(pl.String).to_list() == ["MmBackward0"] * 6 + [None]
    assert hops["thread"].unique().to_list() == [1001]
    assert hops["kind"].cast(pl.String).to_list() == ["call", "redispatch"] * 3 + ["call"]
    assert hops["raised"].to_list() == [True, False] * 3 + [False]
    assert follower.threads.rows() == [(0, 1001, "worker")]
    (number,) = hops["inputs"].drop_nulls().unique().to_list()
    shapes = follower.signatures_table([number])
    assert shapes.select("id", "shape").rows() == [(number, [4, 4])]
    growing.die()


def test_memory_holds_one_look_whatever_the_file_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tracer.trace.live import follower as reading

    monkeypatch.setattr(reading, "_BUDGET", 1000)
    writer = new_recording()
    lane = writer.lane()
    for _ in range(500):
        lane.enter(0)
        lane.exit()
    path = writer.write(tmp_path / "x.trace")
    follower = Follower(path)
    batches = look(follower)
    assert follower.ended
    assert len(batches) > 10
    assert max(map(len, batches)) < 60
    assert plain(ended(batches)) == plain(load(path).hops)


def test_a_file_that_is_reserved_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "x.trace"
    path.touch()
    follower = Follower(path)
    assert not follower.wait()
    os.truncate(path, 4096)
    assert not follower.wait()
    lane = (writer := new_recording()).lane()
    lane.enter(0)
    lane.exit()
    writer.write(path)
    assert follower.wait()
    assert len(ended(look(follower))) == 1


def test_a_packed_trace_is_over(tmp_path: Path) -> None:
    """Also that of a process that was killed, of which the header says that it is being written."""
    writer = TraceWriter(header={"state": 0, "attached": 1})
    writer.process(certificate=None)
    writer.hop(0)
    lane = writer.lane()
    lane.enter(0)
    lane.exit()
    path = tmp_path / "x.xz"
    path.write_bytes(lzma.compress(writer.data()))
    follower = Follower(path)
    assert follower.wait()
    assert len(ended(look(follower))) == 1
    assert follower.ended
    follower.close()


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.trace"
    with pytest.raises(TraceError, match="no such file"):
        Follower(path).wait()
    path.write_text("something else")
    with pytest.raises(TraceError, match="is not a trace"):
        Follower(path).wait()
    path.write_bytes(b"\xfd7zXZ\x00 and nothing more")  # of what is packed nothing more comes
    with pytest.raises(TraceError, match="is a damaged packed file"):
        Follower(path).wait()


# ---- the command ---------------------------------------------------------------------------------


def test_an_interrupt_in_a_look_ends_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised there, polars makes a TypeError of it."""
    look = Follower.look

    def interrupted(self: Follower, **options: bool) -> pl.DataFrame:
        signal.raise_signal(signal.SIGINT)
        return look(self, **options)

    monkeypatch.setattr(Follower, "look", interrupted)
    before = signal.getsignal(signal.SIGINT)
    run = CliRunner().invoke(app, ["watch", str(written(closed=True).write(tmp_path / "run.trace"))])
    assert run.exit_code == 0, run.output
    assert "aten::mm" in run.stdout
    assert signal.getsignal(signal.SIGINT) is before
