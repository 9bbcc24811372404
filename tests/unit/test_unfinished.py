"""Ops that had not finished when the trace was dumped: measured until then, and in no median."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_traces import Rank

from tracer.report.reading import Reading
from tracer.report.report import render
from tracer.trace import Trace, load


def dumped(folder: Path) -> Trace:
    """Three op calls of 10 ns; the fourth one is open for 570 ms until the dump."""
    of = Rank(0, 1)
    for _ in range(3):
        of.computes()
    of.at(30).computes(line=4, leaves=False).write(folder, dumped=600)
    return load(folder / "rank0.trace")


def test_it_lasts_until_the_dump(tmp_path: Path) -> None:
    trace = dumped(tmp_path)
    row = trace.hops.filter("open").row(0, named=True)
    assert row["end_ns"] - row["start_ns"] == pytest.approx(570e6, rel=1e-3)
    assert row["end_ns"] == trace.certificate["dumped_ns"]


def test_all_sections_say_the_same(tmp_path: Path) -> None:
    text = render(Reading(dumped(tmp_path), "t"))
    sections = {part.partition("\n")[0]: part for part in text.split("\n## ")}
    assert " 569.99 ms " in sections["Where each thread was"]
    assert "when the trace was dumped: what each thread was running" in sections["Open at the end"]
    assert " 569.99 ms " in sections["Open at the end"]
    assert "0.01 us" in sections["In one look"]
    assert "ms" not in sections["In one look"].partition("| - ")[2]


def test_what_never_finished_has_no_median_in_the_summary(tmp_path: Path) -> None:
    Rank(0, 1).at(30).computes(leaves=False).write(tmp_path, dumped=600)
    text = render(Reading(load(tmp_path / "rank0.trace"), "t"))
    assert "## Open at the end" in text
    assert "## In one look" not in text
