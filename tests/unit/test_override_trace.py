"""Overrides in a trace: the column, the certificate, the tree and the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from synthetic import AUTOGRAD_CPU, CPU, REDISPATCH, TraceWriter
from typer.testing import CliRunner

from tracer.analysis import trees
from tracer.cli.app import app
from tracer.cli.explain import _joined
from tracer.dispatch.report import Explanation, explain_lines
from tracer.report.handed_over import with_handed_over
from tracer.report.reading import Reading
from tracer.report.report import render
from tracer.report.tree import plain, tree_lines
from tracer.trace import Trace, load

BEGIN_NS = 5000
"""Of the recording in CLOCK_MONOTONIC, as synthetic.py has it"""
OWN = "override mine, /project/mine.py:3"


def entry(**changed: Any) -> dict[str, Any]:
    return {
        "name": "mine",
        "mode": "auto",
        "operator": "aten::mm",
        "key": "CPU",
        "kernel": "mine.my_mm (/project/mine.py:3)",
        "registered_at": OWN,
        "from_ns": BEGIN_NS - 50,
        "to_ns": None,
        "times": 1,
        "ran": 1,
        "handed_over": {},
    } | changed


def recorded(
    tmp_path: Path, *entries: dict[str, Any], compiled: int = 0, options: dict[str, Any] | None = None
) -> Trace:
    """aten::mm at AutogradCPU and at CPU (the override), aten::mm.out at CPU, aten::neg at AutogradCPU."""
    writer = TraceWriter()
    writer.process()
    writer.json(0, "environment", {"argv": ["train.py"], "options": options or {}})
    if entries:
        writer.json(0, "overrides", {"compiled_frames": compiled, "overrides": list(entries)})
    writer.hop(1, key="AutogradCPU", registered_at="VariableType.cpp:1")
    writer.hop(2, registered_at=OWN, python_kernel="mine.my_mm (/project/mine.py:3)")
    writer.hop(3, op="aten::mm.out")
    writer.hop(4, op="aten::neg", key="AutogradCPU")
    lane = writer.lane()
    for hop in (1, 3, 4):
        lane.enter(hop, CPU if hop == 3 else AUTOGRAD_CPU)
        if hop == 1:
            lane.enter(2, CPU, call_site=REDISPATCH)
            lane.exit()
        lane.exit()
    return load(writer.write(tmp_path / "x.trace"))


def test_hops_of_an_override_have_its_name(tmp_path: Path) -> None:
    trace = recorded(tmp_path, entry())
    assert trace.hops["override"].to_list() == [None, "mine", None, None]
    (said,) = trace.certificate["overrides"]
    assert (said["name"], said["hops"], said["ran"], said["never_ran"]) == ("mine", 1, 1, None)
    assert (said["from_ns"], said["to_ns"], said["processes"]) == (0, None, 1)
    assert trace.certificate["why"] == []


def test_without_overrides_nothing_is_said(tmp_path: Path) -> None:
    trace = recorded(tmp_path)
    assert trace.hops["override"].null_count() == 4
    assert "overrides" not in trace.certificate
    assert "Overrides" not in render(Reading(trace, "x.trace"))


def test_a_hop_whose_registration_was_not_recorded_goes_by_its_python_name(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process()
    writer.json(0, "overrides", {"compiled_frames": 0, "overrides": [entry()]})
    writer.hop(1, registered_at="", python_kernel="mine.my_mm (/project/mine.py:3)")
    writer.hop(2, registered_at="", python_kernel="other.my_mm (/project/mine.py:3)")
    lane = writer.lane()
    for hop in (1, 2):
        lane.enter(hop)
        lane.exit()
    assert load(writer.write(tmp_path / "x.trace")).hops["override"].to_list() == ["mine", None]


def test_a_forked_process_has_the_overrides_of_its_parent_and_counts_add_up(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process(0)
    writer.process(1, how=1, parent_pid=100)
    writer.process(2, how=1, parent_pid=100)  # killed: it wrote no document
    ended = {"from_ns": BEGIN_NS + 10, "to_ns": BEGIN_NS + 90}
    writer.json(0, "overrides", {"overrides": [entry(ran=2, handed_over={"K = 0": 1})]})
    writer.json(
        1, "overrides", {"overrides": [entry(ran=3, handed_over={"K = 0": 2, "not float32": 1}, **ended)]}
    )
    for process in range(3):
        writer.hop(1, registered_at=OWN, process=process)
        lane = writer.lane(process)
        lane.enter(1)
        lane.exit()
    trace = load(writer.write(tmp_path / "x.trace"))
    assert trace.hops["override"].to_list() == ["mine"] * 3
    (said,) = trace.certificate["overrides"]
    assert (said["ran"], said["hops"], said["processes"]) == (5, 3, 2)
    assert said["handed_over"] == {"K = 0": 3, "not float32": 1}
    assert said["to_ns"] is None


@pytest.mark.parametrize(
    ("changed", "compiled", "why"),
    [
        ({"operator": "aten::bmm"}, 0, "aten::bmm was never called"),
        (
            {"operator": "aten::bmm"},
            2,
            "aten::bmm was never called; torch.compile generated its own code for 2 frames",
        ),
        (
            {"operator": "aten::mm.dtype"},
            0,
            "aten::mm.dtype was never called; aten::mm and aten::mm.out were",
        ),
        ({"operator": "aten::neg"}, 0, "aten::neg was never dispatched to CPU, only to AutogradCPU"),
        ({"operator": "aten::mm.out"}, 0, "aten::mm.out was dispatched to CPU only while it was disabled"),
        ({"handed_over": {"K = 0": 4}}, 0, "it handed over every call to stock (4)"),
        ({"registered_at": None, "name": "other"}, 0, "another override was in its place"),
        ({}, 0, "its function raised, or its process was killed before it could count"),
    ],
)
def test_why_an_override_never_ran(tmp_path: Path, changed: dict[str, Any], compiled: int, why: str) -> None:
    trace = recorded(tmp_path, entry(ran=0, **changed), compiled=compiled)
    (said,) = trace.certificate["overrides"]
    assert said["never_ran"] == why
    name, operator = changed.get("name", "mine"), changed.get("operator", "aten::mm")
    never_ran = f"override {name} of {operator} [CPU] was enabled but never ran: {why}"
    assert trace.certificate["why"] == [never_ran]
    assert trace.certificate["verdict"].startswith("complete")
    text = render(Reading(trace, "x.trace"))
    assert f"- **`{name}` for `{operator}` never ran**: {why}".replace("_", r"\_") in text.replace("_", r"\_")


def test_of_operators_that_were_not_recorded_it_is_not_said_that_they_were_not_called(tmp_path: Path) -> None:
    trace = recorded(tmp_path, entry(ran=0, operator="aten::bmm"), options={"ops": ["aten::mm*"]})
    (said,) = trace.certificate["overrides"]
    why = "no call of aten::bmm at CPU was recorded, but not every call was recorded (--ops)"
    assert said["never_ran"] == why


def test_the_tree_marks_hops_of_overrides(tmp_path: Path) -> None:
    trace = recorded(tmp_path, entry())
    _, nodes = trees.fold(trees.Forest.of(trace.hops), ["process"])
    lines = [plain(line) for line in tree_lines(nodes, trace.signatures)]
    assert [line.endswith(" override mine") for line in lines] == [False, True, False, False]


def test_the_report_has_a_section(tmp_path: Path) -> None:
    handed_over = {"K = 0": 1, "not float32": 12}
    trace = recorded(
        tmp_path, entry(ran=1234, handed_over=handed_over, times=3), entry(mode="force", to_ns=5900)
    )
    text = render(Reading(trace, "x.trace"))
    section = text.partition("## Overrides")[2].partition("\n## ")[0]
    cells = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if "`mine`" in line
    ]
    kernel = "`mine.my_mm (/project/mine.py:3)`"
    assert cells[:2] == [
        [
            *("1,234", "13", "1", "`mine`", "auto", "`aten::mm [CPU]`", kernel),
            "the beginning to the end (3 times)",
        ],
        ["1", "0", "1", "`mine`", "force", "`aten::mm [CPU]`", kernel, "the beginning to 0.90 us"],
    ]
    assert "- `mine` for `aten::mm` handed 12 calls over to stock: not float32\n" in section
    assert section.index("12 calls") < section.index("1 call over")


def test_damaged_documents_are_left_out(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process()
    writer.json(0, "overrides", {"overrides": [{"name": 3}, "x", entry()]})
    writer.process(1, how=1, parent_pid=1)
    writer.json(1, "overrides", ["no document"])
    writer.hop(1, registered_at=OWN)
    lane = writer.lane()
    lane.enter(1)
    lane.exit()
    trace = load(writer.write(tmp_path / "x.trace"))
    assert [one["name"] for one in trace.certificate["overrides"]] == ["mine"]


def test_a_call_that_was_left_to_stock_says_so_and_no_other(tmp_path: Path) -> None:
    """In which calls it did not run was only counted: a reader found no line of them."""
    writer = TraceWriter()
    writer.process()
    entries = [entry(ran=1, handed_over={"not float32": 2, "K = 0": 1})]
    writer.json(0, "overrides", {"compiled_frames": 0, "overrides": entries})
    writer.hop(1, registered_at=OWN)
    writer.hop(2, op="aten::neg")
    lane = writer.lane()
    lane.define_source(1, "a.py", 3)
    for number, reason in enumerate(["", "not float32", "K = 0", "not float32"], 1):
        lane.enter(1, source=1)
        if reason:
            lane.define_string(number, f"\x1fhanded over:{reason}")
            lane.range_enter(number)
            lane.enter(2)
            lane.exit()
            lane.range_exit()
        lane.exit()
    trace = load(writer.write(tmp_path / "x.trace"))
    mine = trace.hops.filter(pl.col("override") == "mine")
    assert mine["handed_over"].to_list() == [None, "not float32", "K = 0", "not float32"]
    assert trace.hops["handed_over"].count() == 3
    assert trace.certificate["overrides"][0]["handed_over_hops"] == 3
    assert trace.ranges.is_empty()
    found = CliRunner().invoke(app, ["tree", str(trace.path), "--depth", "1"]).stdout.splitlines()
    assert [line.partition(" override ")[2] for line in found if "aten::mm" in line] == [
        "mine",
        "mine (left to stock: not float32)",
        "mine (left to stock: K = 0)",
    ]
    section = render(Reading(trace, "x.trace")).partition("## Overrides")[2]
    assert "handed 2 calls over to stock: not float32, at `a.py:3` (2 calls)\n" in section
    assert "handed 1 call over to stock: K = 0, at `a.py:3`\n" in section


def test_rows_of_an_override_say_how_many_calls_it_left_to_stock_and_why(tmp_path: Path) -> None:
    """A reader of the tree took calls that stock computed for the override's."""
    two = entry(ran=1, handed_over={"not float32": 1, "K = 0": 1})
    everything = entry(ran=0, handed_over={"not float32": 1234})
    long = entry(ran=1, handed_over={"a": 1, "b": 2, "c" * 50: 3})
    for entries, said in (
        ([two], "mine (handed 2 of its 3 calls over to stock: not float32, K = 0)"),
        (
            [two, entry(mode="force", ran=4)],
            "mine (handed 2 of its 7 calls over to stock: not float32, K = 0)",
        ),
        ([everything], "mine (handed all its calls (1,234) over to stock: not float32)"),
        ([long], f"mine (handed 6 of its 7 calls over to stock: {'c' * 27}..., b, ...)"),
        ([entry()], "mine"),
    ):
        trace = recorded(tmp_path, *entries)
        shown = with_handed_over(trace.hops, trace.certificate)
        assert shown["override"].to_list() == [None, said, None, None]
        found = CliRunner().invoke(app, ["tree", str(trace.path)])
        assert f" override {said}\n" in found.stdout
        explained = " ".join(
            text.strip() for _, text in explain_lines(_joined(Explanation("aten::mm"), trace))
        )
        assert f" override {said} " in f"{explained} "
