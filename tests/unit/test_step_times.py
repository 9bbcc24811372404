"""Where the wall time of steps goes, and the time outside ops, against sums worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from frames import FakeTrace, TraceBuilder, hop

from tracer.advice.advise import advise, arranged, found
from tracer.advice.experiments import Recorded
from tracer.advice.finding import Finding
from tracer.analysis.gaps import gaps
from tracer.analysis.phases import BACKWARD
from tracer.analysis.source_lines import SourceLines
from tracer.analysis.step_times import AFTER, WHOLE, step_times
from tracer.cli.top import _busy
from tracer.experiments.measured import measured
from tracer.report.advice_text import advice_table, heading, lines
from tracer.report.reading import Reading
from tracer.report.report import render
from tracer.report.step_tables import about_busy
from tracer.trace.tables import schema

BUSY = "the machine was busy"
LINE = "/home/user/project/train.py"


def op(name: str, at: int, line: int | None, length: int = 1000, **columns: Any) -> dict[str, Any]:
    source = f"{LINE}:{line}" if line else None
    row = dict.fromkeys(schema.HOPS) | {"op": f"aten::{name}", "process": 0, "thread": 1, "source": source}
    return row | {"called_from": source, "start_ns": at, "end_ns": at + length} | columns


def trace(
    ops: list[dict[str, Any]], ends: list[int], phases: list[str | None], **tables: pl.DataFrame
) -> FakeTrace:
    empty = TraceBuilder().calls(hop("aten::a", "CPU")).trace()
    strings = {name: pl.String if kind == schema.STRING else kind for name, kind in schema.HOPS.items()}
    starts = [min(row["start_ns"] for row in ops), *ends[:-1]]
    steps = [
        (0, number, phase, start, end, None, None, None)
        for number, (phase, start, end) in enumerate(zip(phases, starts, ends, strict=bool(ends)))
    ]
    return replace(
        empty,
        hops=pl.DataFrame(ops, strings).cast(dict(schema.HOPS)),
        steps=pl.DataFrame(steps, schema.STEPS, orient="row"),
        **tables,
    )


def calls(*rows: tuple[str, int, int, int | None]) -> pl.DataFrame:
    """API calls: role, start, end, hop."""
    strings = {name: pl.String if kind == schema.STRING else kind for name, kind in schema.API_CALLS.items()}
    full = [
        dict.fromkeys(schema.API_CALLS)
        | {"process": 0, "role": role, "name": f"cuda{role}", "start_ns": start, "end_ns": end, "hop": hop_}
        | {"source": f"{LINE}:7"}
        for role, start, end, hop_ in rows
    ]
    return pl.DataFrame(full, strings).cast(dict(schema.API_CALLS))


def training() -> FakeTrace:
    """Two steps of 10,000 ns; a wait for the GPU within an op of the second and one outside of ops."""
    ops = [
        op("conv2d", 0, 10, 2000),
        op("conv_backward", 2500, 11, 3000, backward_node="ConvBackward0", source=f"{LINE}:10"),
        op("add_", 6000, 12, 1000, range="Optimizer.step#SGD.step"),
        op("conv2d", 12000, 10, 4000),
        op("item", 16500, 13, 2000),
        op("stack", 21000, 14, 500),
    ]
    waits = calls(("synchronisation", 16800, 18000, 4), ("synchronisation", 18700, 19000, None))
    return trace(ops, [10_000, 20_000], [None, None], api_calls=waits)


def test_the_parts_of_a_step_add_up() -> None:
    table = step_times(training())
    rows = table.to_dicts()
    assert [row["name"] for row in rows] == ["0", "1", AFTER]
    first, second, after = rows
    assert (first["forward_ns"], first["backward_ns"], first["optimizer_ns"]) == (2000, 3000, 1000)
    assert (first["wall_ns"], first["outside_ns"], first["waiting_ns"]) == (10_000, 4000, 0)
    assert (second["waiting_ns"], second["forward_ns"], second["outside_ns"]) == (1500, 4800, 3700)
    assert (after["wall_ns"], after["forward_ns"], after["outside_ns"], after["step"]) == (
        1500,
        500,
        1000,
        None,
    )
    assert [row["ops"] for row in rows] == [3, 2, 1]


def test_ops_of_two_threads_at_a_time_count_once() -> None:
    ops = [
        op("mm", 0, 10, 4000),
        op("mm_backward", 1000, None, 5000, thread=2, backward_node="MmBackward0", source=f"{LINE}:10"),
    ]
    (row,) = step_times(trace(ops, [8000], [None])).to_dicts()
    assert (row["backward_ns"], row["forward_ns"], row["outside_ns"]) == (5000, 1000, 2000)


def test_a_step_that_took_long_stands_out() -> None:
    ends = [1000, 2000, 3000, 13_000, 14_000]
    ops = [op("a", at, 1, 10) for at in (0, 1000, 2000, 3000, 13_000)]
    table = step_times(trace(ops, ends, ["warmup", *["steady"] * 4]))
    assert table["of_median"].to_list() == [1, 1, 1, 10, 1]


def test_a_recording_without_steps_is_one_row() -> None:
    (row,) = step_times(trace([op("a", 500, 1), op("b", 3000, 2)], [], [])).to_dicts()
    assert (row["step"], row["name"], row["wall_ns"], row["outside_ns"]) == (None, WHOLE, 3500, 1500)
    assert row["of_median"] is None


def test_the_ops_of_ranges_are_no_time_in_ops() -> None:
    ops = [op("a", 0, 1), op("x", 1500, 2, op="profiler::_record_function_enter_new"), op("b", 4000, 3)]
    made = trace(ops, [], [])
    assert step_times(made)["outside_ns"].to_list() == [3000]
    assert gaps(made).table.select("before", "after").rows() == [(f"{LINE}:1", f"{LINE}:3")]


def test_a_gap_is_between_the_lines_around_it() -> None:
    found = gaps(training())
    assert (found.of, found.wall_ns, found.steps, found.outside_ns) == ("steps", 20_000, 2, 7700)
    table = {(row["before"], row["after"]): row for row in found.table.iter_rows(named=True)}
    slept = table[f"{LINE}:12", f"{LINE}:10"]
    assert (slept["total_ns"], slept["gaps"]) == (5000, 1)
    assert (slept["before_op"], slept["after_op"]) == ("aten::add_", "aten::conv2d")
    assert table[f"{LINE}:13", f"{LINE}:7"]["total_ns"] == 200, "a wait outside ops is no gap"
    assert table[f"{LINE}:7", f"{LINE}:14"]["total_ns"] == 1000, "cut at the end of the last step"
    assert found.outside_ns == step_times(training()).filter(pl.col("step") >= 0)["outside_ns"].sum()


def test_gaps_between_equal_lines_are_one_row_with_its_spread() -> None:
    lengths = [100] * 19 + [900]
    at, ops = 0, []
    for length in [*lengths, 0]:
        ops.append(op("item", at, 5, 50))
        at += 50 + length
    (row,) = gaps(trace(ops, [], [])).table.to_dicts()
    assert (row["gaps"], row["total_ns"], row["median_ns"], row["longest_ns"]) == (20, 2800, 100, 900)
    assert row["p95_ns"] == 900


@pytest.mark.parametrize("phases", [["warmup", "steady"], [None, None]])
def test_steady_steps_are_looked_at_if_there_are_some(phases: list[str | None]) -> None:
    found = gaps(trace([op("a", 0, 1), op("b", 9000, 2), op("c", 12_000, 3)], [10_000, 20_000], phases))
    assert found.wall_ns == (10_000 if phases[0] else 20_000)
    assert (f"{LINE}:1", f"{LINE}:2") not in found.table.select("before", "after").rows() or not phases[0]


def test_a_line_of_autograds_thread_is_not_a_forward_line() -> None:
    backward = {"backward_node": "MmBackward0", "called_from": None, "thread": 2}
    ops = [op("ones_like", 0, 20), op("mm", 3000, 10, **backward), op("mm", 6000, 11, **backward)]
    found = gaps(trace(ops, [], [])).table.select("before", "after").rows()
    assert sorted(found) == [(f"{LINE}:20", BACKWARD), (BACKWARD, BACKWARD)]


def test_time_on_the_gpu_and_an_open_op() -> None:
    strings = {
        name: pl.String if kind == schema.STRING else kind for name, kind in schema.GPU_ACTIVITIES.items()
    }
    busy = [(100, 600), (400, 900), (1500, 2500), (0, 0)]
    work = [
        dict.fromkeys(schema.GPU_ACTIVITIES) | {"process": 0, "start_ns": begin, "end_ns": end}
        for begin, end in busy
    ]
    ops = [op("a", 0, 1, end_ns=None), op("b", 1200, 2, 800)]
    made = trace(
        ops, [2000], [None], gpu_activities=pl.DataFrame(work, strings).cast(dict(schema.GPU_ACTIVITIES))
    )
    first = step_times(made).to_dicts()[0]
    assert first["gpu_busy_ns"] == 800 + 500
    assert first["forward_ns"] == 2000, "an op that did not end lasts as long as anything else"


def busy(*preempted: int | None) -> FakeTrace:
    """Steps of 10,000 ns, and how long their thread was ready to run while others ran."""
    ends = [10_000 * (number + 1) for number in range(len(preempted))]
    ops = [op("mm", end - 10_000, 10, 2000) for end in ends]
    made = trace(ops, ends, ["steady"] * len(ends))
    waited = pl.Series("preempted_ns", preempted, pl.Int64)
    return replace(made, steps=made.steps.with_columns(waited, cpu_ns=9_000 - waited))


@pytest.mark.parametrize(
    ("preempted", "said"),
    [
        ((None, None, None), ""),
        ((0, 1_999, 10), ""),
        (
            (0, 2_000, None),
            "The machine was busy: in step 1 the thread waited 2.0 us of 10.0 us for a CPU core, "
            "and ran 7.0 us.",
        ),
        (
            (0, 2_000, 6_000, 0),
            "The machine was busy in 2 of 4 steps: the thread waited 20.0 % of the time or longer "
            "for a CPU core. In step 2 it waited 6.0 us of 10.0 us, and ran 3.0 us.",
        ),
    ],
)
def test_a_busy_machine_is_said(preempted: tuple[int | None, ...], said: str) -> None:
    assert about_busy(step_times(busy(*preempted))) == said


def test_top_and_the_report_say_it_too() -> None:
    said = "The machine was busy: in step 1 the thread waited 9.0 us of 10.0 us for a CPU core"
    assert said in _busy(busy(0, 9_000, 0))  # type: ignore[arg-type]
    assert said in render(Reading(busy(0, 9_000, 0), "x.trace", sections=["steps"]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("preempted", "heading_"),
    [
        ((0, 0, 9_000, 0, 9_000), "3 steady steps of 10.0 us; the machine was busy in 2 more: left out"),
        ((0, 9_000, 9_000, 0), "4 steady steps of 10.0 us; the machine was busy in 2 of them: record again"),
        ((0, 0, None), "3 steady steps of 10.0 us"),
    ],
)
def test_advice_leaves_out_the_steps_of_a_busy_machine(
    preempted: tuple[int | None, ...], heading_: str
) -> None:
    assert heading(advise(busy(*preempted))) == heading_


@pytest.mark.parametrize(
    ("preempted", "why"),
    [
        ((9_000, 9_000, 9_000), BUSY),
        ((0, 9_000, 9_000, 9_000), BUSY),
        ((0, 9_000, 9_000, 0), ""),
        ((0, 9_000, 9_000, 0, 0), ""),
    ],
)
def test_no_gain_is_measured_if_the_usual_step_was_of_a_busy_machine(
    preempted: tuple[int, ...], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Recorded((0,), (2_000.0,), (1.0,), "threads", "2")
    rows = [Finding(LINE, "do it", "seen", 2_000.0, 2_000.0, needs_experiment=of) for of in (False, True)]
    rule = SimpleNamespace(find=lambda _: [replace(row, experiment=calls) for row in rows] + rows[:1])
    monkeypatch.setattr("tracer.advice.advise.RULES", {"threads": rule})
    tried = []
    monkeypatch.setattr("tracer.experiments.measured._told", lambda *_: tried.append(1) or {"error": "no"})
    steady, bounds = found(busy(*preempted))  # type: ignore[arg-type]
    assert [row.gain.why_not for row in bounds] == [why] * 3
    told = arranged(steady, measured(busy(*preempted), steady, bounds))  # type: ignore[arg-type]
    assert len(tried) == (0 if why else 2)
    text = "\n".join(lines(told, SourceLines({}), True))
    assert text.count(f"not measured: {why or 'no'}\n") == (2 if why else 1)
    assert f"but nothing was measured:\n  threads: {why or 'no'}" in text
    assert f"at most; not measured: {why or 'no'} |" in advice_table(told, SourceLines({}))


def test_what_was_measured_before_is_not_said_of_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = SimpleNamespace(find=lambda _: [Finding(LINE, "do it", "seen", 2_000.0, 2_000.0)])
    monkeypatch.setattr("tracer.advice.advise.RULES", {"threads": rule})
    monkeypatch.setattr("tracer.advice.remembered.is_own", lambda _: True)
    monkeypatch.setattr("tracer.advice.remembered._key", lambda _: "here")
    gain = {"known": "measured", "ns": 1_000.0, "why_not": "", "note": ""}
    gain |= dict.fromkeys(("low", "high", "ratio", "ratio_low", "ratio_high"), 1.0)
    kept = json.dumps({json.dumps(["threads", LINE, "do it"]): gain})
    monkeypatch.setattr("tracer.base.kept.read", lambda *_: kept)
    assert [row.gain.known for row in advise(busy(0, 0, 0)).rows] == ["measured"]  # type: ignore[arg-type]
    assert [row.gain.why_not for row in advise(busy(9_000, 9_000, 9_000)).rows] == [BUSY]  # type: ignore[arg-type]
