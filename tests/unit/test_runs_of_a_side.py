"""What several runs a side, or one, can say of a change: the line, the machine, or nothing."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from frames import FakeTrace
from made_runs import SCRIPT, US, edited, run, slower

from tracer.analysis.difference import Difference, DifferenceError, difference
from tracer.analysis.difference.pace import pace_of
from tracer.analysis.difference.times import times_of
from tracer.report.decision_text import decision, fail_over_reason
from tracer.report.difference_page import difference_page
from tracer.report.difference_text import rows, verdict
from tracer.report.documents import difference_document

TANH = "hidden = torch.tanh(hidden)"


def compared(before: list[FakeTrace], after: list[FakeTrace]) -> Difference:
    return difference(before, after)


def rule_of(found: Difference) -> str:
    return " ".join(decision(found))


def verdicts(found: Difference) -> dict[str, str]:
    return {line: both.times.verdict for (line, _), both in found.lines.items()}


# The rule for several runs a side, in numbers.


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ([100, 110], [105, 112], "no change"),  # within what runs of one side differ by
        ([100, 110], [115, 126], "no change"),  # the sides do not overlap, but two runs say little
        ([100, 110], [150, 160], "slower"),
        ([150, 160], [100, 110], "faster"),
        ([100, 104, 110], [115, 120, 126], "slower"),  # three say more
        ([100, 100, 190], [120, 120, 120], "no change"),  # one run shows what chance can do
        ([100, 100], [120, 120], "slower"),
    ],
)
def test_a_change_is_outside_what_runs_of_a_side_differ_by(
    before: list[int], after: list[int], said: str
) -> None:
    times = times_of([[ns] * 5 for ns in before], [[ns] * 5 for ns in after])
    assert times.verdict == said
    assert times.runs == (tuple(map(float, before)), tuple(map(float, after)))


def test_steps_do_not_make_a_run_surer() -> None:
    """Of a thousand equal steps each, the runs of one side still differ by a fifth."""
    runs = [[100] * 1000, [120] * 1000]
    assert times_of(runs, [[125] * 1000, [130] * 1000]).verdict == "no change"
    assert times_of(runs[:1], [[125] * 1000]).verdict == "slower"


def test_a_run_in_which_something_takes_no_time_decides_nothing() -> None:
    times = times_of([[0] * 5, [10] * 5], [[20] * 5, [20] * 5])
    assert times.verdict == "no change"
    assert times_of([[0] * 5] * 2, [[20] * 5] * 2).ratio is None


def test_the_pace_is_the_middle_half_of_the_lines() -> None:
    before = dict.fromkeys(range(9), 100.0)
    after = {line: 180.0 + line for line in range(8)} | {8: 900.0}
    pace = pace_of([[before], [after]], 900)
    assert pace is not None
    assert (pace.lines, pace.uniform) == (9, True)
    assert (pace.low, pace.value, pace.high) == pytest.approx((1.82, 1.84, 1.86))
    three = dict.fromkeys(range(3), 100.0)
    assert pace_of([[three], [three]], 300) is None
    assert pace_of([[{}], [{}]], 0) is None
    moved_apart = pace_of([[before], [{line: 100.0 + 60 * line for line in range(9)}]], 900)
    assert moved_apart is not None
    assert not moved_apart.uniform


def test_lines_that_take_next_to_nothing_of_a_step_are_not_the_machine() -> None:
    """no_grad() changed all ops of a model but five of a microsecond, and its gain was called the machine."""
    before, after = dict.fromkeys(range(5), 1400.0), dict.fromkeys(range(5), 1000.0)
    assert pace_of([[before], [after]], 5 * 1000) is not None
    assert pace_of([[before], [after]], 760_000) is None


def test_with_one_run_a_side_a_few_percent_are_no_change() -> None:
    after = times_of([[100] * 20], [[103] * 20])
    assert after.verdict == "slower"
    pace = pace_of([[dict.fromkeys(range(9), 100.0)]] * 2, 900)
    assert after.judged(pace).verdict == "no change"
    assert times_of([[100] * 20], [[108] * 20]).judged(pace).verdict == "slower"


# What is decided of whole runs.


@pytest.mark.parametrize("factor", [1.8, 0.5])
@pytest.mark.parametrize("runs", [1, 2])
def test_if_all_lines_moved_by_one_factor_it_is_the_machine(factor: float, runs: int) -> None:
    before = [run(seed=number) for number in range(runs)]
    found = compared(before, [run(seed=9 + number, factor=factor) for number in range(runs)])
    assert found.step.verdict == "machine"
    assert found.structural == []
    assert set(verdicts(found).values()) == {"machine"}
    which = "this run was" if runs == 1 else "the runs after were"
    how = "1.8 x slower" if factor > 1 else "2.0 x faster"
    assert rule_of(found).startswith(f"{which} {how} everywhere: ")
    assert ", so that is the machine, and no line of yours" in rule_of(found)
    assert ", the machine (" in verdict(found)
    assert "slower and faster rows add up to 0" in verdict(found)


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_a_line_that_changed_is_named_and_no_other(runs: int) -> None:
    before = [run(seed=number) for number in range(runs)]
    found = compared(before, [run(slower(TANH, 4), seed=9 + number) for number in range(runs)])
    said = re.search(
        r"the change is \+(.+?); slower and faster rows add up to \+(.+?), (\d+) % of it", verdict(found)
    )
    assert said
    assert 80 <= int(said[3]) <= 120
    assert found.step.verdict == "slower"
    assert verdicts(found)["train.py:3"] == "slower"
    assert list(verdicts(found).values()).count("no change") == len(SCRIPT) - 1
    assert "slower by that rule: train.py:3 (1" in rule_of(found)
    assert "everywhere" not in rule_of(found)


@pytest.mark.parametrize("runs", [1, 2])
def test_a_line_is_named_on_a_slow_machine_too(runs: int) -> None:
    before = [run(seed=number) for number in range(runs)]
    after = [run(slower(TANH, 4), seed=9 + number, factor=1.8) for number in range(runs)]
    found = compared(before, after)
    assert verdicts(found)["train.py:3"] == "slower"
    assert list(verdicts(found).values()).count("machine") == len(SCRIPT) - 1
    assert "1.8 x slower everywhere" in rule_of(found)
    assert "as long, so that much is the machine the rule: " in rule_of(found)
    assert "slower by that rule: train.py:3 (" in rule_of(found)


@pytest.mark.parametrize("runs", [1, 2])
def test_an_edited_line_is_named_with_its_time(runs: int) -> None:
    new = edited(TANH, "hidden = F.gelu(hidden).exp()", "aten::gelu", 900 * US)
    found = compared(
        [run(seed=number) for number in range(runs)], [run(new, seed=9 + number) for number in range(runs)]
    )
    assert {change.what for change in found.structural} == {("vanished",), ("new",)}
    assert found.step.verdict == "slower"
    assert "slower by that rule: train.py:3 (12" in rule_of(found)
    said = verdict(found).split("; ")
    assert re.match(r"slower and faster rows add up to (0|[+-]\d[.\d]* us)", said[-2]), "within chance"
    assert re.fullmatch(r"new and vanished rows add up to \+7\d\d\.\d us", said[-1])


def test_a_line_of_one_side_is_decided_by_no_rule() -> None:
    more = [*SCRIPT, ("total = output.sum()", "aten::sum", 300 * US)]
    words = rule_of(compared([run(seed=1)], [run(more, seed=2)]))
    assert re.search(r"(^| )new: train\.py:7 \(\d{3}\.\d us\)", words)
    assert "by that rule: train.py:7" not in words
    assert re.search(r"(^| )vanished: train\.py:7 \(", rule_of(compared([run(more, seed=2)], [run(seed=1)])))


def test_of_a_step_that_did_not_change_nothing_is_added_up() -> None:
    """A new op beside "no change" was a change that was "decided"."""
    new = edited(TANH, "hidden = F.gelu(hidden)", "aten::gelu", 121 * US)
    found = compared([run(seed=1, noise=0.2)], [run(new, seed=2, noise=0.2)])
    assert found.step.verdict == "no change"
    assert ", no change (" in verdict(found)
    assert "add up to" not in verdict(found)
    assert "the change is" not in verdict(found)


def test_interruptions_of_steps_are_the_machine() -> None:
    """In most steps another process holds up some line, each time another one: no line is slower."""
    found = compared(
        [run(seed=1, steps=12)], [run(seed=2, steps=12, interrupted=lambda step: 3000 * US * (step % 6 > 0))]
    )
    assert found.step.ratio is not None
    assert found.step.ratio.low > 2
    assert found.step.verdict == "machine"
    assert "it is the machine that interrupted steps, and no line of yours" in rule_of(found)


@pytest.mark.parametrize("runs", [1, 2])
def test_time_outside_ops_that_grows_is_no_interruption(runs: int) -> None:
    before = [run(seed=number) for number in range(runs)]
    found = compared(before, [run(seed=9 + number, outside=5000 * US) for number in range(runs)])
    assert found.step.verdict == "slower"
    assert "slower by that rule: outside ops train.py:6 -> train.py:1 (" in rule_of(found)
    assert [*rows("line", found)[0][:2], rows("line", found)[0][-2]] == [
        "train.py:6 -> train.py:1",
        "outside ops",
        "slower",
    ]


def test_runs_that_differ_by_chance_are_no_change() -> None:
    """Runs of one script, each as fast as the machine was: 20 pairs of sides, none of which changed."""
    import numpy as np

    random = np.random.default_rng(3)
    said = []
    for pair in range(20):
        paces = 1 + 0.15 * random.standard_normal(4)
        runs = [run(seed=10 * pair + n, factor=float(pace)) for n, pace in enumerate(paces)]
        said.append(compared(runs[:2], runs[2:]).step.verdict)
    assert set(said) <= {"no change", "machine"}


def test_with_one_run_a_side_that_is_said_and_how_to_be_sure() -> None:
    words = rule_of(compared([run(seed=1)], [run(seed=2)]))
    assert words.startswith("the rule: one run a side says nothing of how runs differ, ")
    assert "beyond what unchanged lines show (" in words
    assert words.endswith("to be sure: tracer diff --before A B --after C D")
    few = SCRIPT[:1]
    assert "too few unchanged lines" in rule_of(compared([run(few, outside=0)], [run(few, outside=0)]))
    alone = rule_of(compared([run(few)], [run(slower(few[0][0], 3, few))]))
    assert "slower by the 95 % intervals of the steps alone: train.py:1 (" in alone
    uneven = rule_of(compared([run(seed=1)], [run(seed=2), run(seed=3)]))
    assert "one side has one run, which says nothing" in uneven


def test_with_several_the_rule_has_their_spread() -> None:
    found = compared([run(seed=1), run(seed=2, factor=1.5)], [run(seed=3), run(seed=4)])
    assert found.several
    assert (
        "medians of 2 runs before and 2 after differ by more than runs of one side do, "
        "each run measured by its unchanged lines (runs differ in a step by 1.5" in rule_of(found)
    )
    assert "; medians of 2 and 2 runs)" in verdict(found)
    assert rows("line", found)
    assert "`a.trace, b.trace` (before)" in difference_page(found, "a.trace, b.trace", "c.trace", 0)
    assert "- the rule: a time changed if" in difference_page(found, "a", "b", 0)


def test_a_setting_that_differs_may_be_why_all_is_slower() -> None:
    after = run(seed=2, factor=1.8)
    after.environment["settings"] = {"threads": 1}
    before = run(seed=1)
    before.environment["settings"] = {"threads": 4}
    assert "so that is the machine or a setting above, and no line of yours" in rule_of(
        compared([before], [after])
    )


def test_a_line_is_found_though_the_runs_of_a_side_differ_more() -> None:
    """Each run is measured by its unchanged lines: the machine was 2.6 times as slow in some."""
    paces = (1.0, 2.6, 1.4)
    before = [run(seed=n, factor=pace) for n, pace in enumerate(paces)]
    found = compared(before, [run(slower(TANH, 2), seed=9 + n, factor=pace) for n, pace in enumerate(paces)])
    assert found.lines["train.py:3", False].times.ratio.low < 1
    assert found.lines["train.py:3", False].times.beside.low > 1.5
    assert verdicts(found)["train.py:3"] == "slower"
    assert list(verdicts(found).values()).count("no change") == len(SCRIPT) - 1


def test_beside_a_change_of_structure_a_slow_run_may_be_its_effect() -> None:
    new = edited(TANH, "hidden = F.gelu(hidden).exp()", "aten::gelu", 900 * US)
    words = rule_of(compared([run(seed=1)], [run(new, seed=2, factor=1.8)]))
    assert "so that much is the machine, or what the changes do to all lines" in words


# Runs without steps.


@pytest.mark.parametrize("runs", [1, 2])
def test_without_steps_whole_runs_are_compared(runs: int) -> None:
    before = [run(seed=number, marked=False) for number in range(runs)]
    after = [run(slower(TANH, 4), seed=9 + number, marked=False) for number in range(runs)]
    found = compared(before, after)
    assert found.steps == (0, 0)
    assert found.step.factor == pytest.approx(1.36, abs=0.02)
    assert "; the whole run took " in verdict(found)
    assert "no steps: call tracer.step() after each iteration" in verdict(found)
    assert found.lines["train.py:3", False].times.factor == pytest.approx(4, rel=0.05)
    if runs == 2:
        assert verdicts(found)["train.py:3"] == "slower"
    machine = compared(before, [run(seed=9 + n, marked=False, factor=1.8) for n in range(runs)])
    assert "1.8 x slower everywhere" in rule_of(machine)


def test_one_run_without_steps_makes_all_whole_runs() -> None:
    found = compared([run(seed=1)], [run(seed=2, marked=False)])
    assert (found.steps, found.steady) == ((0, 0), False)
    assert found.step.factor == pytest.approx(1, abs=0.05)


# Structure.


def test_what_differs_between_runs_of_a_side_is_no_change() -> None:
    """Each run takes one of two paths; a third path, which only the runs after take, is a change."""
    one, other, third = ({"aten::tanh": [name]} for name in ("aten::a", "aten::b", "aten::c"))
    before = [run(seed=1, children=one), run(seed=2, children=other)]
    after = [run(seed=3, children=other), run(seed=4, children=one)]
    assert compared(before, after).structural == []
    assert [change.what for change in compared(before[:1], after[:1]).structural] == [("another chain",)]
    changed = compared(before, [run(seed=number, children=third) for number in (3, 4)])
    assert [change.what for change in changed.structural] == [("another chain",)]


def test_a_line_in_some_runs_of_one_side_only_is_counted_and_no_change() -> None:
    more = [*SCRIPT, ("print(loss.item())", "aten::item", 10 * US)]
    found = compared([run(seed=1), run(seed=2)], [run(seed=3), run(more, seed=4)])
    assert found.structural == []
    assert found.remarks[0].startswith("1 kind of op calls are in some runs of one side only")
    both = compared([run(seed=1), run(seed=2)], [run(more, seed=3), run(more, seed=4)])
    assert [(change.kind.op, change.what) for change in both.structural] == [("aten::item", ("new",))]


# Traces that cannot be compared, or not well.


def test_runs_of_different_scripts_on_one_side_are_refused() -> None:
    other = run([("y = net(x)", "aten::mm", 10)], file="other.py", path="other.trace")
    with pytest.raises(DifferenceError, match=r"other.trace are on one side .* give runs of the same script"):
        compared([run(), other], [run()])


def test_sides_of_different_scripts_are_named() -> None:
    other = run([("y = net(x)", "aten::mm", 10)], file="other.py")
    other.environment["argv"] = ["/tmp/other.py"]
    (remark,) = compared([run()], [other]).remarks
    assert remark.startswith("the sides have no Python line in common (train.py before, other.py after)")
    assert "record each with tracer record" in remark
    assert compared([run()], [run(file="renamed.py")]).remarks == []


def test_a_trace_that_is_not_complete_is_named_with_what_to_do() -> None:
    cut = run(path="cut.trace")
    cut.certificate |= {"complete": False, "verdict": "incomplete: killed"}
    (first,) = compared([cut], [run()]).remarks
    assert first == (
        "the first trace is not complete, and what it lacks counts as a change; record it again: "
        "incomplete: killed"
    )
    (third,) = compared([run()], [run(seed=1), run(seed=2), cut]).remarks
    assert third.startswith("cut.trace is not complete")
    assert "record it again or leave it out" in third


def test_runs_of_one_side_with_other_options_are_named() -> None:
    other = run(path="other.trace")
    other.environment["options"] = {"shapes": False, "source": True}
    (remark,) = compared([run(), other], [run()]).remarks
    assert remark.startswith("run.trace and other.trace are of one side")
    assert "another --shapes; record them with the same options" in remark


# --fail-over and --json.


def test_why_one_run_a_side_decides() -> None:
    real = compared([run(seed=1)], [run(slower(TANH, 9), seed=2)])
    assert "a step took 1.92 x, and 7 unchanged lines took 1.00 to" in fail_over_reason(real, True)
    assert fail_over_reason(real, True).endswith("so it is not the machine")
    assert fail_over_reason(real, False).endswith("not slower by more than that and PERCENT")
    with pytest.raises(ValueError, match="three steps"):
        fail_over_reason(compared([run(marked=False)], [run(marked=False)]), False)
    few = run(SCRIPT[:1], outside=0)
    with pytest.raises(ValueError, match="two runs a side here"):
        fail_over_reason(compared([few], [replace(few)]), False)


def test_the_document_says_by_what_rule() -> None:
    before, after = [run(seed=1), run(seed=2)], [run(slower(TANH, 4), seed=3), run(seed=4)]
    document = difference_document(before, after, compared(before, after), 0)
    json.dumps(document)
    assert (document["rule"], document["runs"]) == ("runs", [2, 2])
    assert document["traces"]["before"][0]["trace"] == "run.trace"
    assert set(document["pace"]) == {"lines", "value", "low", "high", "runs", "uniform"}
    assert set(document["step"]) == {"before", "after", "ratio", "runs", "verdict", "beside"}
    assert len(document["step"]["runs"][1]) == 2
    assert {row["line"] for row in document["lines"]} == {f"train.py:{n}" for n in range(1, 7)}
    assert {"before_line", "after_line", "times", "gpu"} == set(document["outside"][0])
    assert document["decision"] == decision(compared(before, after))
    single = difference_document(before[:1], after[:1], compared(before[:1], after[:1]), 0)
    assert single["rule"] == "steps"
