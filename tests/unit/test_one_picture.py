"""The report of a job and that of a fleet have the same figures of the same traces."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_traces import Rank

from tracer.analysis.job.collectives import waits
from tracer.analysis.job.folder import load_job
from tracer.fleet.gather import gather
from tracer.fleet.merge import merge
from tracer.fleet.parts import Parts
from tracer.fleet.processes import Processes
from tracer.fleet.traces import find
from tracer.report.fleet_page import fleet_page
from tracer.report.job_page import job_page


def table_of(page: str, title: str) -> list[dict[str, str]]:
    """The rows of a section's table by the titles of their columns, without the job and the cause."""
    section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    titles, _, *rows = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    found = [dict(zip([title.strip("| ") for title in titles], row, strict=True)) for row in rows]
    others = (
        "job",
        "where it lost the time",
    )  # a fleet looks for causes in all collectives
    return [{title: cell.strip("| ") for title, cell in row.items() if title not in others} for row in found]


def late_job(folder: Path) -> Path:
    """Three ranks, two collectives in each of five rounds: rank 1 is late by line 4, rank 2 by line 3."""
    for rank in range(3):
        of = Rank(rank, 3, ["0", "pair"])
        for number in range(5):
            of.at(100 * number + rank * 0.01).computes(line=1)
            of.at(100 * number + (20 if rank == 1 else 1)).computes(line=4)
            of.at(100 * number + (21 if rank == 1 else 2)).calls()
            if rank:
                of.at(100 * number + 40).computes(line=1)
                of.at(100 * number + (50 if rank == 2 else 41)).computes(line=3)
                of.at(100 * number + (51 if rank == 2 else 42)).calls("pair", line=3)
        of.write(folder)
    return folder


@pytest.mark.parametrize(
    ("title", "in_all"), [("Who came last", ["76.0 ms", "36.0 ms"]), ("Collectives", ["190.0 ms", "45.0 ms"])]
)
def test_a_job_and_a_fleet_have_the_same_table(tmp_path: Path, title: str, in_all: list[str]) -> None:
    folder = late_job(tmp_path / "job")
    parts = Parts(tmp_path / "out")
    assert gather(parts, find([str(folder)]), Processes(1)).errors == {}
    of_job = table_of(job_page(load_job(folder), "job"), title)
    assert [row["in all"] for row in of_job] == in_all
    assert table_of(fleet_page(merge(parts.all())), title) == of_job


def test_a_wait_for_a_rank_that_did_not_come_counts_in_neither(tmp_path: Path) -> None:
    """Ranks 0 and 1 are 30 ms apart in a call that rank 2 never makes."""
    for rank in range(3):
        of = Rank(rank, 3)
        for number in range(3):
            of.at(100 * number + 10 * rank).computes().calls(waits=True)
        if rank < 2:
            of.at(300 + 30 * rank).calls(line=3, waits=True)
        of.write(tmp_path / "job", dumped=5000)
    job = load_job(tmp_path / "job")
    waited = waits(job.calls, job.clocks, job.collectives)
    assert waited[0] == pytest.approx(3 * 20e6, rel=1e-3)
    parts = Parts(tmp_path / "out")
    gather(parts, find([str(tmp_path / "job")]), Processes(1))
    assert dict(merge(parts.all())["ranks"].select("rank", "waited_ns").iter_rows()) == waited
