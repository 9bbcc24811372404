"""What the certificate says."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from synthetic import CERTIFICATE, TraceWriter, one_hop

from tracer.report.reading import Reading
from tracer.report.report import render
from tracer.trace import load
from tracer.trace.bytes.format import SHAPES, SOURCE
from tracer.trace.certificate.hops import NO_GREENLETS, NO_MEMORY
from tracer.trace.certificate.verdict import NOT_JOINED


def certificate(
    tmp_path: Path, *, header: dict[str, int] | None = None, second: bool = False, **stated: Any
) -> dict[str, Any]:
    writer = TraceWriter(header=header or {})
    writer.process(0, certificate={**CERTIFICATE, **stated})
    writer.hop(0)
    processes = [0]
    if second:
        writer.process(1, how=1, parent_pid=100, certificate=None)
        writer.hop(0, process=1)
        processes.append(1)
    for process in processes:
        lane = writer.lane(process)
        lane.enter(0)
        lane.exit()
    return load(writer.write(tmp_path / "x.trace")).certificate


def test_nothing_dropped_is_said(tmp_path: Path) -> None:
    found = certificate(tmp_path)
    assert found["verdict"] == "complete: 1 hop, nothing dropped"
    assert found["why"] == []
    for name in ("lost_hops", "damaged_chunks", "torn_events", "unmatched_exits", "lost_exits", "open_hops"):
        assert found[name] == 0
    assert found["lost_entries"] == found["not_hooked"] == []
    assert (found["processes"], found["threads"], found["hops"], found["op_calls"]) == (1, 1, 1, 1)
    assert found["closed_in_order"] == {0: True}
    assert found["ns_per_hop"] == 42.5
    assert found["entries"] == found["hooked"] == 10
    assert any("callBoxedForDispatchKey" in text for text in found["not_visible"])
    assert any("get_kernel" in text for text in found["not_visible"])


@pytest.mark.parametrize(
    ("stated", "clause"),
    [
        ({"lost_hops": 3}, "3 hops not written (no memory, or the recording had ended)"),
        ({"not_hooked": [{"op": "aten::x", "key": "CPU", "why": "?"}]}, "1 table entry not hooked"),
        (
            {"lost_entries": [{"op": "aten::x", "key": "CPU"}, {"op": "aten::y", "key": "CPU"}]},
            "2 table entries no longer hooked at the stop",
        ),
        (
            {"out_of_space": "No space left on device"},
            "the recording stopped early: No space left on device",
        ),
    ],
)
def test_what_was_dropped_is_in_the_verdict(tmp_path: Path, stated: dict[str, Any], clause: str) -> None:
    found = certificate(tmp_path, **stated)
    assert found["verdict"] == f"incomplete: 1 hop; {clause}"
    assert clause in found["why"]
    assert found["complete"] is False


@pytest.mark.parametrize(
    ("later", "replaced"),
    [
        ({"how": 2, "pid": 100}, True),
        ({"how": 2, "pid": 100, "parent_pid": 7}, False),
        ({"how": 1, "pid": 100}, False),
        ({"how": 2, "pid": 101}, False),
    ],
)
def test_a_program_that_became_another_one(tmp_path: Path, later: dict[str, int], replaced: bool) -> None:
    """The same process of the same parent joins once more. Else the first one just ended."""
    writer = TraceWriter()
    writer.process(0, certificate=None)
    writer.process(1, **later)
    for process in (0, 1):
        writer.hop(0, process=process)
        lane = writer.lane(process)
        lane.enter(0)
        lane.exit()
    found = load(writer.write(tmp_path / "x.trace")).certificate
    clause = (
        "1 program became another one (exec) without a stop" if replaced else "1 process ended without a stop"
    )
    assert found["why"] == [clause]
    assert (found["replaced"], found["not_stopped"]) == ((1, []) if replaced else (0, [0]))
    assert found["verdict"] == f"incomplete: 2 hops; {clause}"


def test_a_python_that_could_not_join(tmp_path: Path) -> None:
    found = load(one_hop(not_joined={"count": 2}).write(tmp_path / "x.trace")).certificate
    assert (found["complete"], found["not_joined"], found["why"]) == (False, True, [NOT_JOINED])


def test_greenlets_that_were_not_followed(tmp_path: Path) -> None:
    seen, lost = certificate(tmp_path, modules=True), certificate(tmp_path, modules=True, greenlets_lost=True)
    assert set(lost["not_visible"]) - set(seen["not_visible"]) == {NO_GREENLETS}


def test_a_full_disk_is_named_without_a_stop_in_order(tmp_path: Path) -> None:
    header = {"state": 2, "error_number": errno.ENOSPC}
    found = certificate(tmp_path, header=header)
    assert found["verdict"] == "incomplete: 1 hop; the recording stopped early: No space left on device"


def test_a_process_that_did_not_stop_in_order(tmp_path: Path) -> None:
    found = certificate(tmp_path, second=True)
    assert found["closed_in_order"] == {0: True, 1: False}
    assert found["verdict"] == "incomplete: 2 hops; 1 process ended without a stop"
    assert found["why"] == ["1 process ended without a stop"]


def test_uncertain_things_are_explained_without_a_drop(tmp_path: Path) -> None:
    found = certificate(tmp_path, call_sites=False, guards={"checkInvariants": False})
    assert found["verdict"] == "complete: 1 hop, nothing dropped"
    assert len(found["why"]) == 2
    assert any("checkInvariants" in line for line in found["why"])


def test_hops_of_an_op_whose_definition_is_lost_are_counted(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process()
    lane = writer.lane()
    lane.enter(5)
    lane.exit()
    trace = load(writer.write(tmp_path / "x.trace"))
    assert trace.hops["op"].to_list() == [None]
    assert trace.certificate["undefined_hops"] == 1
    assert "1 hop of an unknown op" in trace.certificate["verdict"]


@pytest.mark.parametrize(
    ("asked", "known", "environment", "why"),
    [
        (True, True, {"python": "3.15.2"}, []),
        (False, False, {"python": "3.15.2"}, []),
        (True, False, {"python": "3.15.2"}, ["Python 3.15.2"]),
        (True, False, {}, ["that Python"]),
        (True, False, [], ["that Python"]),
    ],
)
def test_why_there_are_no_source_lines(
    tmp_path: Path, asked: bool, known: bool, environment: Any, why: list[str]
) -> None:
    writer = TraceWriter(header={"flags": SHAPES | SOURCE * asked})
    writer.process(certificate={**CERTIFICATE, "source_lines": known})
    writer.json(0, "environment", environment)
    writer.hop(0)
    lane = writer.lane()
    lane.enter(0)
    lane.exit()
    trace = load(writer.write(tmp_path / "x.trace"))
    start = "no source lines recorded: tracer did not know the frames of"
    lines = [f"{start} {python}" for python in why]
    if isinstance(environment, dict):
        assert trace.certificate["why"] == lines
        assert trace.certificate["verdict"] == "complete: 1 hop, nothing dropped"
    else:
        assert trace.certificate["why"] == ["1 record incomplete", *lines]
        assert trace.certificate["verdict"] == "incomplete: 1 hop; 1 record incomplete"
    report = render(Reading(trace, "x.trace")).splitlines()
    assert [line for line in report if "source lines recorded" in line] == [f"- {line}" for line in lines]


@pytest.mark.parametrize("document", [[], "text", 3, {"lost_hops": "many", "guards": [], "not_hooked": [1]}])
def test_a_certificate_of_another_form_is_no_error(tmp_path: Path, document: Any) -> None:
    writer = TraceWriter()
    writer.process(certificate=document)
    writer.json(0, "enums", {"keys": 3})
    writer.json(0, "environment", [])
    writer.hop(0)
    lane = writer.lane()
    lane.enter(0)
    lane.exit()
    trace = load(writer.write(tmp_path / "x.trace"))
    assert trace.environment == {}
    assert trace.certificate["hops"] == 1


@pytest.mark.parametrize(
    ("memory", "missing"),
    [
        ({"wanted": True, "cpu": True, "reported": True}, []),
        ({"wanted": True, "cpu": True, "reported": False}, ["on GPUs and other devices, and shared memory"]),
        ({"wanted": True, "cpu": False, "reported": True}, ["on the CPU"]),
        ({"wanted": False, "cpu": False, "reported": False}, []),
    ],
)
def test_an_allocator_that_could_not_be_recorded(
    tmp_path: Path, memory: dict[str, bool], missing: list[str]
) -> None:
    writer = TraceWriter()
    writer.process(certificate={**CERTIFICATE, "memory": memory})
    writer.hop(0)
    lane = writer.lane()
    lane.enter(0)
    lane.exit()
    trace = load(writer.write(tmp_path / "x.trace"))
    said = [line for line in trace.certificate["not_visible"] if "of memory" in line]
    assert said == [NO_MEMORY.format(name) for name in missing]
