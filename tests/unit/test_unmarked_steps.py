"""Steps of a program in which neither the script nor an optimizer says when one ends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from synthetic import Lane, TraceWriter

from tracer.base.known_names import KnownNames
from tracer.trace import Trace, load
from tracer.trace.bytes.redact import redact

NET, LOSS, OPTIMIZER = "\x1fmodule:Net", "\x1fmodule:Loss", "Optimizer.step#SGD.step"
NAMES = {name: code for code, name in enumerate((NET, LOSS, OPTIMIZER), 1)}


class Program:
    def __init__(self) -> None:
        self.writer = TraceWriter()
        self.writer.process()
        self.writer.hop(0, "aten::sin")
        self.numbers = 0

    def lane(self, process: int = 0) -> Lane:
        lane = self.writer.lane(process=process, number=process, thread=1001 + process, torch_thread=1)
        for name, code in NAMES.items():
            lane.define_string(code, name)
        return lane

    def call(self, lane: Lane, name: str, ops: int = 1, *, open: bool = False) -> tuple[int, int]:
        """When a call of a module began and ended."""
        self.numbers += 1
        begin = lane.range_begin(NAMES[name], self.numbers)
        end = op(lane, ops)
        return begin, end if open else lane.range_end(self.numbers)

    def read(self, folder: Path) -> Trace:
        return load(self.writer.write(folder / "x.trace"))


def op(lane: Lane, times: int = 1) -> int:
    for _ in range(times):
        lane.enter(0)
        last = lane.exit()
    return last


def spans(trace: Trace) -> list[tuple[int, int, str | None]]:
    return [
        (start // 10, end // 10, module)
        for start, end, module in trace.steps.select("start_ns", "end_ns", "module").iter_rows()
    ]


def test_a_step_is_a_call_of_the_module_that_takes_most_time(tmp_path: Path) -> None:
    program = Program()
    lane = program.lane()
    op(lane)
    calls = []
    for _ in range(3):
        calls.append(program.call(lane, NET, 5))
        program.call(lane, LOSS)
    op(lane)
    begins = [begin for begin, _ in calls]
    trace = program.read(tmp_path)
    assert spans(trace) == [
        (begins[0], begins[1], "Net"),
        (begins[1], begins[2], "Net"),
        (begins[2], calls[2][1], "Net"),
    ]
    # What ran before the first call and after the last one is of no step.
    assert trace.hops["step"].to_list() == [None, *[0] * 6, *[1] * 6, *[2] * 5, None, None]
    assert trace.module_calls["module"].to_list() == ["Net", "Loss"] * 3
    assert trace.module_calls["step"].to_list() == [0, 0, 1, 1, 2, None]
    assert trace.ranges.is_empty()


def test_a_call_that_did_not_end_is_no_step(tmp_path: Path) -> None:
    program = Program()
    lane = program.lane()
    for _ in range(2):
        program.call(lane, NET)
    program.call(lane, NET, open=True)
    trace = program.read(tmp_path)
    assert trace.module_calls["open"].to_list() == [False, False, True]
    assert trace.steps["step"].to_list() == [0, 1]


def test_redaction_keeps_a_path_of_modules_as_elsewhere(tmp_path: Path) -> None:
    program = Program()
    lane = program.lane()
    lane.define_string(4, "\x1fmodule:Net.a secret!.head")
    for number in (1, 2):
        lane.range_begin(4, number)
        op(lane)
        lane.range_end(number)
    with (tmp_path / "out.trace").open("wb") as out:
        redact(program.writer.write(tmp_path / "x.trace"), out, KnownNames())
    assert modules(load(tmp_path / "out.trace")) == ["Net.name 1.head"] * 2


def one_call(program: Program, lane: Lane) -> None:
    program.call(lane, NET)


def steps_are_marked(program: Program, lane: Lane) -> None:
    for number in range(3):
        program.call(lane, NET)
        lane.step(number + 1)


def an_optimizer_is_stepped(program: Program, lane: Lane) -> None:
    for _ in range(3):
        program.call(lane, NET)
    program.call(lane, OPTIMIZER)


@pytest.mark.parametrize(
    ("run", "steps"), [(one_call, 0), (steps_are_marked, 3), (an_optimizer_is_stepped, 1)]
)
def test_steps_that_are_no_calls(tmp_path: Path, run: object, steps: int) -> None:
    program = Program()
    run(program, program.lane())  # type: ignore[operator]
    assert modules(program.read(tmp_path)) == [None] * steps


def modules(trace: Trace) -> Sequence[str | None]:
    return trace.steps["module"].to_list()


def test_a_worker_of_a_data_loader_has_no_steps(tmp_path: Path) -> None:
    program = Program()
    program.writer.process(1, how=1)
    lanes = program.lane(), program.lane(1)
    for lane in lanes:
        for _ in range(3):
            program.call(lane, NET)
    assert program.read(tmp_path).steps["process"].to_list() == [0, 0, 0]
