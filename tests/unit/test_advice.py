"""What a measured ratio means for a row of advice, and how rows are put in order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from test_ledger import row, trace

from tracer.advice.advise import arranged
from tracer.advice.experiments import Experiment, OptimizerStep, Recorded, WorkerBatch
from tracer.advice.finding import BOUNDED, DROPPED, MEASURED, UNDECIDED, Advice, Finding, Gain, bounded
from tracer.advice.often import often
from tracer.advice.rules import RULES
from tracer.advice.rules.optimizer import _of_all
from tracer.advice.steady import Steady, TooFewStepsError
from tracer.analysis.source_lines import SourceLines
from tracer.experiments.measured import gain_of
from tracer.replay.change import recorded_threads
from tracer.replay.replay_errors import CannotReplayError
from tracer.report.advice_text import advice_document, lines, ratio

STEP = 100.0
STEPS = tuple(range(1000, 6000, 1000))


def steady(rows: list[dict[str, Any]] | None = None) -> Steady:
    ops = rows or [
        row(n, "aten::mm", "CPU", 1000 * n, 1000 * n + 100, step=n, inputs=n, kind="call") for n in range(5)
    ]
    return Steady.of(trace(ops, STEPS, certificate={}))  # type: ignore[arg-type]


def finding(hops: set[int], cost: float, experiment: Experiment | None = None, **more: Any) -> Finding:
    return Finding(
        "a.py:1", "do it", "seen", cost, more.pop("most", cost), frozenset(hops), None, experiment, **more
    )


TRIED = OptimizerStep("Adam", (), (((3,), "float32"),), "cpu", "foreach=False", "fused=True")
CALM = [1.0, 0.97, 1.02]


def told(low: float, value: float, high: float) -> dict[str, Any]:
    return {"ratio": [value, low, high], "again": CALM, "took": 50.0}


def test_a_measured_gain_is_the_ratio_of_the_cost() -> None:
    gain = gain_of(finding({1}, 50.0, TRIED), told(1.5, 2.0, 4.0), STEP)
    assert gain.known == MEASURED
    assert (gain.ns, gain.low, gain.high) == (25.0, pytest.approx(50 / 3), 37.5)


@pytest.mark.parametrize("low", [0.9, 1.0, 1.02])
def test_an_interval_that_allows_a_gain_and_none_decides_nothing(low: float) -> None:
    gain = gain_of(finding({1}, 50.0, TRIED), told(low, 1.5, 2.0), STEP)
    assert (gain.known, gain.ns) == (UNDECIDED, 25.0)
    found = arranged(steady(), [Advice("one", finding({1}, 50.0, TRIED), gain)])
    text = "\n".join(lines(found, SourceLines({}), True))
    assert "not decided: none, or up to " in text
    assert f"(95 %: {low:.2f} to 2.00)" in text
    assert "no gain" not in text


@pytest.mark.parametrize(
    ("low", "value", "high", "known"),
    [(0.8, 0.9, 1.01, DROPPED), (1.0, 1.01, 1.019, DROPPED), (0.97, 1.0, 1.03, UNDECIDED)],
)
def test_a_gain_below_one_percent_of_a_step_is_none(
    low: float, value: float, high: float, known: str
) -> None:
    gain = gain_of(finding({1}, 50.0, TRIED), told(low, value, high), STEP)
    assert gain.known == known


def test_no_gain_is_decided_within_what_the_same_work_differs_from_itself() -> None:
    said = {"ratio": [1.2, 1.1, 1.3], "again": [1.0, 0.9, 1.15], "took": 50.0}
    assert gain_of(finding({1}, 50.0, TRIED), said, STEP).known == UNDECIDED


@pytest.mark.parametrize("took", [24.9, 100.1])
def test_an_experiment_that_is_not_the_recorded_work_measures_nothing(took: float) -> None:
    gain = gain_of(finding({1}, 50.0, TRIED), {**told(1.5, 2.0, 4.0), "took": took}, STEP)
    assert (gain.known, gain.ns) == (BOUNDED, 50.0)
    assert gain.why_not.startswith("the same calls took ")
    assert gain_of(finding({1}, 50.0, TRIED), told(1.5, 2.0, 4.0), STEP).known == MEASURED


def test_both_times_are_said_if_they_differ() -> None:
    said = {**told(1.0, 1.07, 1.2), "took": 750_000.0}
    gain = gain_of(finding({1}, 3_600_000.0, TRIED), said, 4e6)
    assert ratio(gain) == (
        "not measured: the same calls took 0.75 ms here, 3.6 ms in the recording; if the machine was busy "
        "then, record again"
    )


def test_recorded_calls_are_as_long_as_the_calls_that_are_tried() -> None:
    calls = Recorded((1, 2), (20.0, 10.0), (2.0, 1.0), "threads", "2")
    for took, known in ((30.0, MEASURED), (14.0, BOUNDED), (61.0, BOUNDED)):
        assert gain_of(finding({1}, 500.0, calls), {**told(1.5, 2.0, 4.0), "took": took}, STEP).known == known


@pytest.mark.parametrize("again", [[1.0, 0.79, 1.1], [1.0, 0.9, 1.26]])
def test_a_busy_machine_measures_nothing(again: list[float]) -> None:
    gain = gain_of(finding({1}, 50.0, TRIED), {"ratio": [5.0, 4.0, 6.0], "again": again}, STEP)
    assert (gain.known, gain.ns, gain.why_not) == (BOUNDED, 50.0, "the machine is busy")


def test_what_failed_is_a_bound_that_says_why() -> None:
    gain = gain_of(finding({1}, 50.0, TRIED, most=40.0), {"error": "it took longer than 20 s"}, STEP)
    assert (gain.known, gain.ns, gain.why_not) == (BOUNDED, 40.0, "it took longer than 20 s")


def test_a_worker_is_no_gain_if_its_batch_costs_as_much() -> None:
    found = finding({1}, 30.0, WorkerBatch((((3,), "float32"),), 1.0))
    assert gain_of(found, {"ns": [29.0, 28.9, 29.1], "again": CALM}, STEP).known == DROPPED
    gain = gain_of(found, {"ns": [10.0, 9.0, 11.0], "again": CALM}, STEP)
    assert (gain.known, gain.ns) == (BOUNDED, 20.0)
    undecided = gain_of(found, {"ns": [29.0, 10.0, 40.0], "again": CALM}, STEP)
    assert (undecided.known, undecided.ns) == (UNDECIDED, 20.0)
    assert ratio(gain).endswith("; whether a core is free is not known")  # an experiment, and no ratio
    assert "not measured" not in ratio(gain)


def measured(found: Finding, least: float) -> Advice:
    return Advice("one", found, Gain(MEASURED, least, least, least, 2.0, 2.0, 2.0))


def test_rows_of_the_same_time_are_one_under_the_best_that_was_measured() -> None:
    rows = [
        bounded("wide", finding({1, 2, 3, 4}, 900.0)),
        measured(finding({3, 4}, 500.0), 100.0),
        measured(finding({4}, 500.0), 300.0),
        bounded("other", finding({9}, 200.0)),
    ]
    found = arranged(steady(), rows)
    assert [row.gain.ns for row in found.rows] == [300.0, 200.0]
    assert [row.rule for row in found.rows[0].alternatives] == ["wide", "one"]


def test_less_than_a_hundredth_of_a_step_is_not_said() -> None:
    assert steady().step_ns == 1000.0
    found = arranged(steady(), [bounded("a", finding({1}, 9.9)), bounded("b", finding({2}, 10.0))])
    assert [row.rule for row in found.rows] == ["b"]


def test_what_only_an_experiment_tells_is_no_row_without_one() -> None:
    found = arranged(steady(), [bounded("a", finding({1}, 500.0, TRIED, needs_experiment=True))])
    assert (found.rows, [row.rule for row in found.untried]) == ((), ["a"])


def shown(*rows: Advice) -> str:
    sources = SourceLines.of(steady().trace)
    return "\n".join(lines(arranged(steady(), rows), sources, everything=True))


def test_an_experiment_that_failed_says_why_and_is_not_asked_for() -> None:
    row = bounded("threads", finding({1}, 500.0, TRIED, needs_experiment=True))
    assert "Only an experiment can tell: threads. To try: --measure" in shown(row)
    failed = replace(row, gain=replace(row.gain, why_not="it took longer than 20 s"))
    said = shown(failed)
    assert "--measure" not in said
    assert "  threads: it took longer than 20 s" in said
    document = advice_document("t", arranged(steady(), [failed]), SourceLines.of(steady().trace), None)
    assert (document["untried"], document["failed"]) == ([], {"threads": "it took longer than 20 s"})


def test_what_an_experiment_said_in_words_was_tried() -> None:
    row = bounded("data-loader", finding({1}, 500.0, TRIED, needs_experiment=True))
    found = arranged(steady(), [replace(row, gain=replace(row.gain, note="a batch took 1 ms"))])
    assert ([one.rule for one in found.rows], found.untried) == (["data-loader"], ())


@pytest.mark.parametrize(
    ("number", "said"), [(1.0, "1 call a step"), (1234.0, "1,234 calls a step"), (0.25, "0.2 calls a step")]
)
def test_one_a_step_is_one(number: float, said: str) -> None:
    assert often(number, "call") == said


def test_parameters_that_are_not_known_are_not_counted() -> None:
    assert _of_all((), "", False) == ""
    assert _of_all((((2, 3), "float32"),), " or more", False) == " for 1 or more parameter of 6 numbers"


@pytest.mark.parametrize("number", [1013, 100_000, 1 << 70, 0, -1])
def test_a_trace_starts_no_threads_that_the_machine_has_no_cores_for(number: int) -> None:
    with pytest.raises(CannotReplayError, match=f"{number:,} threads"):
        recorded_threads(number)
    assert recorded_threads(1) == 1


def test_a_call_that_was_preempted_counts_as_the_others_do() -> None:
    rows = [
        row(n, "aten::mm", "CPU", 1000 * n, 1000 * n + 100, step=n, inputs=7, kind="call") for n in range(5)
    ]
    rows[2] = replace_time(rows[2], 900)
    assert steady(rows).usual_ns(steady(rows).calls) == 100.0


def test_inputs_of_few_steps_count_as_such_calls_of_their_line_do() -> None:
    rows = [
        row(n, "aten::cat", "CPU", 1000 * n, 1000 * n + 100, step=n, inputs=n, kind="call") for n in range(5)
    ]
    rows[2] = replace_time(rows[2], 900)
    assert steady(rows).usual_ns(steady(rows).calls) == 100.0


def replace_time(hop: dict[str, Any], ns: int) -> dict[str, Any]:
    return hop | {"end_ns": hop["start_ns"] + ns}


def test_few_steady_steps_say_too_little() -> None:
    rows = [row(0, "aten::mm", "CPU", 0, 100, step=0)]
    with pytest.raises(TooFewStepsError, match="2 steps are steady"):
        Steady.of(trace(rows, (1000, 2000), certificate={}))  # type: ignore[arg-type]


def test_a_rule_explains_itself() -> None:
    assert list(RULES) == [
        "optimizer", "data-loader", "dense-gradient", "gpu-waits", "launch-bound", "attention",
        "channels-last", "python-loop", "threads", "wide-numbers", "inference", "recompiles",
    ]  # fmt: skip
    for rule in RULES.values():
        assert len(rule.looks_for) > 20
        assert len(rule.threshold) > 20
    assert replace(bounded("a", finding({1}, 1.0)), rule="b").rule == "b"
