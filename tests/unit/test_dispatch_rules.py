"""The rules of the pytest plugin: what they take, and which of them a trace breaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from frames import FakeTrace, TraceBuilder, hop
from gpu_sample import sample  # noqa: F401
from gpu_trace import Sample

from tracer.testing import snapshots
from tracer.testing.rules import RuleError, Rules, rules_of
from tracer.testing.verdict import broken_rules


def small() -> FakeTrace:
    copy = hop("aten::_to_copy", "CPU", hop("aten::copy_", "CPU"))
    return (
        TraceBuilder()
        .calls(hop("aten::to.dtype", "CPU", copy, source="/home/user/project/train.py:7"), times=2)
        .calls(hop("aten::mm", "AutogradCPU", hop("aten::mm", "CPU")))
        .trace()
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"max_launch": 3},
            "unknown rule 'max_launch'; choose no_sync, max_launches, must_run, never, snapshot "
            "(did you mean max_launches?)",
        ),
        ({"max_launches": -1}, "max_launches=-1: give a number from 0"),
        ({"max_launches": True}, "max_launches=True: give a number from 0"),
        ({"never": 3}, 'never=3: give operators, e.g. ["aten::mm", "aten::*conv*"]'),
        ({"must_run": [""]}, "must_run=['']: give operators"),
        ({"no_sync": "yes"}, "no_sync='yes': give True or False"),
    ],
)
def test_wrong_rules(given: dict[str, Any], words: str) -> None:
    with pytest.raises(RuleError) as error:
        rules_of(given)
    assert words in str(error.value)


def test_rules_add_to_those_of_the_marker() -> None:
    marked = rules_of({"never": "aten::copy_", "max_launches": 3})
    assert rules_of({"max_launches": 0}, marked) == Rules(max_launches=0, never=("aten::copy_",))


def test_no_rule_is_never_broken(sample: Sample) -> None:  # noqa: F811
    assert broken_rules(Rules(), sample.trace) == []


def test_an_op_that_must_not_run() -> None:
    (text,) = broken_rules(rules_of({"never": ["copy_", "aten::nothing"]}), small())
    assert text.splitlines() == [
        'never=["copy_"]: it ran, 2 calls',
        "  train.py:7  (2 times)",
        "    aten::to.dtype [CPU] to.dtype_CPU",
        "      aten::_to_copy [CPU] _to_copy_CPU",
        "        aten::copy_ [CPU] copy__CPU",
    ]


def test_a_redispatch_is_no_second_call() -> None:
    (text,) = broken_rules(rules_of({"never": ["aten::mm"]}), small())
    assert text.splitlines()[:2] == ['never=["aten::mm"]: it ran, 1 call', "  no Python line"]


def test_an_op_that_must_run() -> None:
    (text,) = broken_rules(rules_of({"must_run": ["aten::mm", "aten::bmm"]}), small())
    assert text.startswith('must_run=["aten::bmm"]: it did not run; ran: aten::mm')
    (text,) = broken_rules(rules_of({"must_run": ["aten::bmm"]}), TraceBuilder().trace())
    assert text == 'must_run=["aten::bmm"]: it did not run; no op ran'


def test_launches_and_waits_of_a_gpu(sample: Sample) -> None:  # noqa: F811
    launches = sample.cuda["launches"]
    assert broken_rules(rules_of({"max_launches": launches}), sample.trace) == []
    launched, waited = broken_rules(rules_of({"max_launches": launches - 1, "no_sync": True}), sample.trace)
    first, *chain = launched.splitlines()
    assert first == f"max_launches={launches - 1}: {launches:,} kernels were launched"
    assert any(line.strip() == "cudaLaunchKernel" for line in chain)
    assert any("[AutogradCUDA]" in line for line in chain)
    assert waited.startswith("no_sync: the host waited for the GPU, ")
    assert "Synchronize" in waited


@pytest.mark.parametrize(
    ("state", "known"), [("recorded", True), ("not built", True), ("held", False), ("failed", False)]
)
def test_a_rule_that_cannot_be_checked_is_broken(state: str, known: bool) -> None:
    trace = small()
    trace.certificate["cuda"] = {"state": state, "why": "CUPTI is in use"}
    found = broken_rules(rules_of({"max_launches": 0, "no_sync": True}), trace)
    text = "max_launches and no_sync cannot be checked: CUDA was not recorded (CUPTI is in use)"
    assert found == ([] if known else [text])
    assert broken_rules(rules_of({"never": "aten::bmm"}), trace) == []


def test_places_of_snapshots() -> None:
    test = Path("/project/tests/test_net.py")
    assert snapshots.place(test, "test_a[2]") == Path("/project/tests/__dispatch__/test_net/test_a[2].lock")
    one, other = (snapshots.place(test, name).name for name in ("test_a[x/y]", "test_a[x:y]"))
    assert one != other
    assert one.startswith("test_a[x-y]-")
    assert len(snapshots.place(test, "x" * 500).name) < 150


def test_a_snapshot_is_written_once_and_compared(tmp_path: Path) -> None:
    test = tmp_path / "test_net.py"
    path = snapshots.place(test, "test_a")
    assert "does not exist; pytest --dispatch-update writes it" in snapshots.difference(path, test, small())
    assert snapshots.update(path, test, small())
    assert not snapshots.update(path, test, small())
    assert snapshots.difference(path, test, small()) == ""
    other = TraceBuilder().calls(hop("aten::mm", "CPU")).trace()
    assert snapshots.difference(path, test, other).startswith("snapshot: other paths than in ")
    assert snapshots.update(path, test, other)
    path.write_text("my own words")
    assert "line 1: not a dispatch lock" in snapshots.difference(path, test, other)
    assert snapshots.update(path, test, other)
    assert snapshots.difference(path, test, other) == ""
