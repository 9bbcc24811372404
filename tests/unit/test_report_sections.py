"""Each section of a report against a golden file of its own.

TRACER_UPDATE_GOLDEN=1 writes the golden files anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import cuda_training
import pytest
import test_report
from frames import FakeTrace, TraceBuilder

from tracer.report.cells import table
from tracer.report.page import Page
from tracer.report.reading import Reading
from tracer.report.report import render
from tracer.report.section import Section
from tracer.report.sections import NAMED, head, order, tables
from tracer.report.sections import name_of as named

GOLDEN = Path(__file__).parent / "golden" / "sections"
TRACES: dict[str | None, tuple[str, Callable[[], FakeTrace]]] = {
    None: ("hops", test_report.training),
    "cuda": ("cuda", cuda_training.training),
    "kernels": ("cuda", cuda_training.training),
}


REPORTS = (None, "cuda", "kernels")
CASES = [
    pytest.param(only, section, id=f"{only or 'all'}-{named(section)}")
    for only in REPORTS
    for section in order(only)
]


@pytest.mark.parametrize(("only", "section"), CASES)
def test_a_section(only: str | None, section: Section) -> None:
    name, trace = TRACES[only]
    reading = Reading(trace(), f"{name}.trace", only=only)
    golden = GOLDEN / f"{only or 'all'}_{named(section)}.md"
    wanted = section.wanted(reading)
    text = section.markdown(section.data(reading), Page.of(reading)) + "\n" if wanted else ""
    if os.environ.get("TRACER_UPDATE_GOLDEN"):
        golden.unlink(missing_ok=True)
        if wanted:
            golden.parent.mkdir(exist_ok=True)
            golden.write_text(text)
    assert text == (golden.read_text() if golden.exists() else "")


TABLE = re.compile(r"^\| (.+) \|\n\| ([-: |]+) \|\n((?:\|.*\n)+)", re.MULTILINE)
TIME_OR_SHARE = re.compile(r"\**(?:< )?[\d,.]+ (?:us|ms|s|%|x)\**")


def kinds_of(titles: str, rule: str, rows: str) -> list[str]:
    """Of each column of a table `time` (or share), `figure`, `text`, or `heading`; "" if it has no cell."""
    columns = zip(*([cell.strip() for cell in split(row)] for row in rows.splitlines()), strict=True)
    kinds = []
    for title, line, cells in zip(titles.split("|"), rule.split("|"), columns, strict=True):
        filled = [cell for cell in cells if cell]
        time = any(map(TIME_OR_SHARE.fullmatch, filled))
        figure = ("time" if time else "figure" if filled else "") if line.strip().endswith(":") else "text"
        kinds.append(figure if title.strip() else "heading")
    return [kind for kind in kinds if kind]


def split(row: str) -> list[str]:
    return re.split(r"(?<!\\)\|", row)[1:-1]


@pytest.mark.parametrize("path", sorted(GOLDEN.iterdir()), ids=lambda path: path.stem)
def test_numbers_come_first_in_every_table(path: Path) -> None:
    """`test_a_section` holds each file against what its section writes."""
    order = ["heading", "time", "figure", "text"]
    for found in TABLE.findall(path.read_text()):
        kinds = kinds_of(*found)
        phases = "x, " in found[2]  # `3 x, 12.3 us` is a time too, and no figure alone
        assert phases or kinds == sorted(kinds, key=order.index), found[0]
        assert not re.search(r"\| 0\.0+ (us|ms|s) \|", found[2])


def test_a_new_table_cannot_have_a_number_behind_a_text() -> None:
    shown = table(
        ["op", "calls:", "share:", "idle:"], [["mm", "3", "50.0 %", ""], ["add", "4", "< 0.1 %", ""]]
    )
    titles, *_ = shown.splitlines()
    assert [title.strip() for title in split(titles)] == ["share", "idle", "calls", "op"]
    facts = table(["", "stock:", "calls:"], [["host time", "3.0 ms", "7"]])
    assert [cell.strip() for cell in split(facts.splitlines()[-1])] == ["host time", "3.0 ms", "7"]


def test_no_golden_file_is_left_over() -> None:
    known = {f"{only or 'all'}_{named(section)}.md" for only in REPORTS for section in order(only)}
    assert {path.name for path in GOLDEN.iterdir()} <= known


@pytest.mark.parametrize("only", REPORTS)
def test_a_report_is_its_head_and_its_sections_in_order(only: str | None) -> None:
    reading = Reading(TRACES[only][1](), "t", only=only)
    text = render(reading)
    page = Page.of(reading)
    assert text.startswith(head.markdown(head.data(reading), page))
    expected = [
        (section.level, section.title)
        for section in order(only)
        if section.wanted(reading) and section.markdown(section.data(reading), page)
    ]
    titles = {section.title for section in order(only)}
    found = [(len(mark), title) for mark, title in re.findall(r"^(##+) (.*)$", text, flags=re.M)]
    assert [heading for heading in found if heading[1] in titles] == expected


@pytest.mark.parametrize("only", REPORTS)
def test_the_contents_lead_to_the_headings(only: str | None) -> None:
    text = render(Reading(TRACES[only][1](), "t", only=only))
    (contents,) = [line for line in text.splitlines() if line.startswith("[")]
    links = re.findall(r"\[([^\]]+)\]\(#([^)]+)\)", contents)
    assert [title for title, _ in links] == re.findall(r"^## (.*)$", text, flags=re.M)
    assert all(anchor == title.lower().replace(" ", "-") for title, anchor in links)


def test_a_report_of_a_trace_without_hops_is_short() -> None:
    text = render(Reading(TraceBuilder().trace(), "empty.trace"))
    assert re.findall(r"^## (.*)$", text, flags=re.M) == ["Hottest paths", "Environment", "Certificate"]
    assert "No op call was recorded." in text


def test_sections_have_data_that_nobody_changes() -> None:
    for only in REPORTS:
        reading = Reading(TRACES[only][1](), "t", only=only)
        for section in order(only):
            if section.wanted(reading):
                data = section.data(reading)
                assert type(data).__dataclass_params__.frozen, section.title


def test_every_section_is_in_a_report() -> None:
    assert {named(section) for only in REPORTS for section in order(only)} == set(NAMED)
    files = {path.stem for path in Path(head.__file__).parent.glob("*.py")} - {"__init__", "head", "tables"}
    of_tables = {one.name for one in vars(tables).values() if isinstance(one, tables.TableSection)}
    assert files | of_tables == set(NAMED)


def test_chosen_sections_alone() -> None:
    reading = Reading(cuda_training.training(), "t", sections=("sources", "paths", "copies"))
    text = render(reading)
    assert re.findall(r"^##+ (.*)$", text, flags=re.M) == [
        "Hottest paths",
        "Copies and fills",
        "Source lines",
    ]
    verdict = cuda_training.training().certificate["verdict"]
    assert text.startswith(f"# Dispatch report of `t`\n\n**{verdict}**\n\n## Hottest paths\n"), "and no more"
