"""More than one line of the Python stack: the column `python_stack` and its table."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from synthetic import AUTOGRAD_CPU, Lane, TraceWriter
from typer.testing import CliRunner

from tracer.cli.app import app
from tracer.trace import Trace, load

MAIN = "train.py:20 function"
MODEL = "model.py:5 function"


def new_writer() -> TraceWriter:
    writer = TraceWriter()
    writer.process()
    writer.hop(0, "aten::mm")
    return writer


def new_lane(writer: TraceWriter, **options: int) -> Lane:
    """Sources: 1 model.py:5, 2 train.py:20, 3 both, 4 the second alone."""
    lane = writer.lane(**options)
    lane.define_source(1, "model.py", 5)
    lane.define_source(2, "train.py", 20)
    lane.define_python_stack(3, 1, 2)
    lane.define_python_stack(4, 2)
    return lane


def run(lane: Lane, **options: int) -> None:
    lane.enter(0, **options)
    lane.exit()


def read(writer: TraceWriter, folder: Path) -> Trace:
    return load(writer.write(folder / "x.trace"))


def test_hops_have_the_stack_of_their_op_call_and_its_first_line(tmp_path: Path) -> None:
    writer = new_writer()
    lane = new_lane(writer)
    lane.enter(0, source=3)
    run(lane)
    lane.exit()
    run(lane, source=4)
    run(lane)
    trace = read(writer, tmp_path)
    assert trace.hops.select("source", "called_from", "python_stack").rows() == [
        ("model.py:5", "model.py:5", 0),
        ("model.py:5", "model.py:5", 0),
        ("train.py:20", "train.py:20", 1),
        (None, None, None),
    ]
    assert trace.python_stacks.rows() == [(0, [MODEL, MAIN]), (1, [MAIN])]


def test_equal_stacks_of_two_threads_are_one(tmp_path: Path) -> None:
    writer = new_writer()
    for number in (0, 1):
        run(new_lane(writer, number=number, thread=1000 + number), source=3)
    trace = read(writer, tmp_path)
    assert trace.hops["python_stack"].to_list() == [0, 0]
    assert len(trace.python_stacks) == 2


def test_backward_hops_have_the_stack_of_their_forward_hop(tmp_path: Path) -> None:
    writer = new_writer()
    lane = new_lane(writer, torch_thread=1)
    lane.define_string(1, "MmBackward0")
    run(lane, key_set=AUTOGRAD_CPU, sequence=0, source=3)
    lane.node(1, sequence=0, made_by=1)
    run(lane, source=4)
    hops = read(writer, tmp_path).hops
    assert hops.select("source", "called_from", "python_stack").rows() == [
        ("model.py:5", "model.py:5", 0),
        ("model.py:5", "train.py:20", 0),
    ]


def test_without_stacks_the_table_is_empty(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane()
    lane.define_source(1, "model.py", 5)
    run(lane, source=1)
    trace = read(writer, tmp_path)
    assert trace.hops["python_stack"].to_list() == [None]
    assert trace.python_stacks.is_empty()
    assert trace.python_stacks.schema == {"id": pl.UInt32, "frames": pl.List(pl.String)}


def test_a_stack_of_unknown_lines_is_not_whole(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane()
    lane.define_python_stack(3, 1, 2)
    run(lane, source=3)
    trace = read(writer, tmp_path)
    assert trace.certificate["torn_events"] == 1
    assert trace.hops.select("source", "python_stack").rows() == [(None, None)]


def test_a_stack_of_more_frames_than_are_recorded_is_not_whole(tmp_path: Path) -> None:
    """Each frame may have a long name: 4 bytes of a trace would be 8,192 characters of a line."""
    writer = new_writer()
    lane = new_lane(writer)
    lane.define_python_stack(5, *[1] * 128)
    lane.define_python_stack(6, *[1] * 129)
    lane.define_stack(1, *[7] * 129)
    run(lane, source=5)
    run(lane, source=6)
    trace = read(writer, tmp_path)
    assert trace.certificate["torn_events"] == 2
    stack, none = trace.hops["python_stack"]
    assert (len(trace.python_stacks["frames"][stack]), none) == (128, None)


def test_the_tree_has_a_group_a_stack_with_its_lines(tmp_path: Path) -> None:
    writer = new_writer()
    lane = new_lane(writer)
    lane.define_source(5, "train.py", 30)
    lane.define_python_stack(6, 1, 5)
    for source in (3, 3, 6, 4):
        run(lane, source=source)
    path = writer.write(tmp_path / "x.trace")
    lines = CliRunner().invoke(app, ["tree", str(path)]).output.splitlines()
    assert [line.split(",")[0] for line in lines[1:] if " aten::" not in line] == [
        "model.py:5  2 op calls",
        "  called from train.py:20 function",
        "model.py:5  1 op call",
        "  called from train.py:30 function",
        "train.py:20  1 op call",
    ]
