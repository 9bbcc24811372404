"""What makes a recording complete, case by case: the summary and the reader ask the same function."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from tracer.trace.bytes.endings import KILLED, STOPPED, WRITTEN
from tracer.trace.certificate.verdict import Evidence, judge

M = 1 << 20
CASES: list[tuple[dict[str, Any], str, list[str]]] = [
    ({}, "complete", []),
    ({"max_size": 16 * M}, "complete", []),
    ({"recorded": 0}, "incomplete", ["nothing was recorded: no op ran"]),
    (
        {"recorded": 0, "only_ops": ("aten::mm",)},
        "incomplete",
        ["nothing was recorded: no op ran that matches --ops"],
    ),
    ({"only_ops": ("aten::mm", "aten::a*")}, "complete of the ops that match --ops aten::mm, aten::a*", []),
    ({"ended": KILLED}, "killed, or ended without a stop", []),
    ({"ended": KILLED, "not_stopped": 3}, "killed, or ended without a stop", []),
    (
        {"ended": KILLED, "missing_bytes": 3},
        "killed, or ended without a stop",
        ["3 bytes missing at the end of the file"],
    ),
    ({"ended": WRITTEN}, "still being written", []),
    (
        {"out_of_space": "No space left on device"},
        "incomplete",
        ["the recording stopped early: No space left on device"],
    ),
    (
        {"max_size": 4 * M, "stopped_at_max_size": True},
        "incomplete",
        ["the recording stopped at --max-size (4M)"],
    ),
    (
        {"max_size": 16 * M, "overwritten_hops": 1234},
        "incomplete",
        ["1,234 hops overwritten (--max-size 16M keeps the newest)"],
    ),
    (
        {"max_size": 3 << 29, "overwritten_calls": 1, "overwritten_activities": 2},
        "incomplete",
        ["1 CUDA call and 2 GPU activities overwritten (--max-size 1.5G keeps the newest)"],
    ),
    (
        {"other_definitions": 1},
        "incomplete",
        ["1 time the ring had no space for a string, source line or shape: shown as (other)"],
    ),
    ({"lost_hops": 3}, "incomplete", ["3 hops not written (no memory, or the recording had ended)"]),
    ({"damaged_chunks": 1}, "incomplete", ["1 chunk damaged"]),
    ({"missing_chunks": 2}, "incomplete", ["2 chunks missing"]),
    ({"missing_bytes": 4096}, "incomplete", ["4,096 bytes missing at the end of the file"]),
    ({"torn_events": 1}, "incomplete", ["1 record incomplete"]),
    ({"lost_exits": 1}, "incomplete", ["1 hop without a recorded exit"]),
    ({"unmatched_exits": 2}, "incomplete", ["2 exits without a recorded enter"]),
    ({"undefined_hops": 1}, "incomplete", ["1 hop of an unknown op"]),
    (
        {"compiled_code": True},
        "incomplete",
        ["code of torch.compile or AOTInductor ran, and its kernels are not recorded as hops"],
    ),
    ({"not_hooked": 1}, "incomplete", ["1 table entry not hooked"]),
    ({"lost_entries": 2}, "incomplete", ["2 table entries no longer hooked at the stop"]),
    (
        {"still_running": 1},
        "incomplete",
        ["1 process still runs; what it does from now on is not recorded"],
    ),
    (
        {"still_running": 2},
        "incomplete",
        ["2 processes still run; what they do from now on is not recorded"],
    ),
    (
        {"executed": True},
        "incomplete",
        ["the process began another program (exec), which is not recorded"],
    ),
    (
        {"outlived": 1},
        "incomplete",
        ["1 process continued after the recording ended; what it did then is not recorded"],
    ),
    (
        {"outlived": 2},
        "incomplete",
        ["2 processes continued after the recording ended; what they did then is not recorded"],
    ),
    ({"not_stopped": 1}, "incomplete", ["1 process ended without a stop"]),
    ({"replaced": 2}, "incomplete", ["2 programs became another one (exec) without a stop"]),
    (
        {"not_joined": True},
        "incomplete",
        ["a child Python was started with -I, -E or -S, or without its TRACER_JOIN, and is not recorded"],
    ),
    (
        {"no_steps": "there is no step 3"},
        "incomplete",
        ["there is no step 3"],
    ),
    (
        {"recorded": 0, "no_steps": "there is no step 3"},
        "incomplete",
        ["nothing was recorded: there is no step 3"],
    ),
    ({"cuda": ("no CUDA: it is held",)}, "incomplete", ["no CUDA: it is held"]),
    (
        {"lost_hops": 1, "not_stopped": 1, "out_of_space": "full", "cuda": ("x",)},
        "incomplete",
        [
            "the recording stopped early: full",
            "1 process ended without a stop",
            "1 hop not written (no memory, or the recording had ended)",
            "x",
        ],
    ),
]


@pytest.mark.parametrize(("evidence", "head", "missing"), CASES)
def test_cases(evidence: dict[str, Any], head: str, missing: list[str]) -> None:
    verdict = judge(Evidence(**{"recorded": 7} | evidence))
    assert (verdict.head, list(verdict.missing)) == (head, missing)
    assert verdict.complete == head.startswith("complete")


def test_each_kind_of_evidence_has_a_case() -> None:
    tried = {name for evidence, _, _ in CASES for name in evidence}
    assert tried == {field.name for field in fields(Evidence)}


def test_whatever_is_missing_is_not_complete() -> None:
    """A field that is added to the evidence and forgotten by the decision fails here."""
    explains = {"recorded", "only_ops", "max_size"}
    for field in fields(Evidence):
        if field.name in explains:
            continue
        value: Any = {"int": 1, "bool": True, "str | None": "x", "tuple[str, ...]": ("x",)}.get(
            str(field.type), KILLED
        )
        verdict = judge(Evidence(**{"recorded": 7, field.name: value}))
        assert not verdict.complete, field.name
        assert verdict.missing or verdict.ended != STOPPED, field.name
