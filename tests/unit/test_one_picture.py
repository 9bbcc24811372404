"""The report of a job and that of a fleet have the same figures of the same traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rank_traces import Rank, write_rank
from typer.testing import CliRunner

from tracer.analysis.fleet.merge import merge
from tracer.analysis.job.collectives import waits
from tracer.analysis.job.folder import load_job
from tracer.fleet.gather import gather
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


def document(*words: str) -> dict[str, Any]:
    from tracer.cli.app import app

    return dict(json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout))


@pytest.mark.parametrize("rows", [["--rows", "2"], []])
def test_a_job_and_a_fleet_are_the_same_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[str]
) -> None:
    """Of a folder with a dump that is left out, a file that is no trace, and a trace that says no rank."""
    late_job(tmp_path / "job")
    (tmp_path / "job" / "rank1.dump0001.trace").write_bytes((tmp_path / "job" / "rank1.trace").read_bytes())
    (tmp_path / "job" / "rank9.trace").write_bytes(b"hello")
    (tmp_path / "job" / "gone.trace").symlink_to("nothing")
    write_rank(tmp_path / "job" / "alone.trace", None)
    monkeypatch.chdir(tmp_path)
    of_job = document("report", "job", *rows)
    assert of_job == document("fleet", "job", "-o", "out", "-j", "1", *rows)
    assert [row["rank"] for row in of_job["late"]] == [1, 2]
    assert (len(of_job["ranks"]), of_job["ranks_left_out"]) == ((2, 4) if rows else (6, 0))


@pytest.mark.parametrize("dumped", [None, 3010])
def test_what_ranks_wait_for_is_the_same_document(tmp_path: Path, dumped: float | None) -> None:
    for rank in range(3):
        of = Rank(rank, 4).calls().at(10)
        (of.computes(line=4) if rank == 1 else of.calls(line=3, waits=True)).write(tmp_path / "job", dumped)
    of_job = document("report", str(tmp_path / "job"))
    assert of_job == document("fleet", str(tmp_path / "job"), "-o", str(tmp_path / "out"), "-j", "1")
    assert bool(of_job["outstanding"]) == (dumped is not None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--json", "-o", "job.md"], "--json prints the tables of the job; remove -o"),
        (
            ["--json", "--steady"],
            "job is a folder: only -o, --force, --rows and --json apply to the report of a job; "
            "for the rest, give the trace of one rank",
        ),
        (["--json"], "job has no *.trace; record one a rank into it: tracer record -o DIR/ SCRIPT"),
    ],
)
def test_what_is_no_document_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    from tracer.cli.app import app

    (tmp_path / "job").mkdir()
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["report", "job", *words])
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"tracer: {said}\n")
