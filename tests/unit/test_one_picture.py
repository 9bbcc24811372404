"""The report of a job and that of a fleet have the same figures of the same traces."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rank_traces import MS, Rank, add_rank, write_rank
from synthetic import TraceWriter
from typer.testing import CliRunner

from tracer.analysis.fleet.across import across
from tracer.analysis.fleet.merge import merge
from tracer.analysis.fleet.partial import RANK_CALLS
from tracer.analysis.job.collectives import waits
from tracer.analysis.job.folder import load_job
from tracer.analysis.job.lateness import counted
from tracer.fleet.gather import gather
from tracer.fleet.parts import Parts
from tracer.fleet.processes import Processes
from tracer.fleet.traces import find
from tracer.report.fleet_page import fleet_page, in_words
from tracer.report.job_page import job_page
from tracer.report.job_tables import Tables
from tracer.report.reading import Reading
from tracer.report.report import render
from tracer.trace import load


def table_of(page: str, title: str) -> list[dict[str, str]]:
    """The rows of a section's table by the titles of their columns, without the job."""
    section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    if not lines:
        return []
    titles, _, *rows = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    found = [dict(zip([title.strip("| ") for title in titles], row, strict=True)) for row in rows]
    return [{title: cell.strip("| ") for title, cell in row.items() if title != "job"} for row in found]


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


def merged(folder: Path, out: Path) -> Tables:
    parts = Parts(out)
    gather(parts, find([str(folder)]), Processes(1))
    return merge(parts.all())


def titles(page: str) -> list[str]:
    return re.findall("^## (.*)$", page, flags=re.M)


def full_job(folder: Path) -> Path:
    """Two ranks of two hosts: steps, kernels of NCCL and others, and memory."""
    for rank in range(2):
        of = Rank(rank, 3, boot=f"host{rank}", op=f"aten::op{rank}")
        of.writer.string(1, "ncclDevKernel_AllReduce")
        of.writer.string(2, "gemm")
        begin = 1000 + 15 * MS
        of.writer.activity(1, 1, begin, begin + 4 * MS, name=1)
        of.writer.activity(1, 2, begin + MS, begin + (5 + rank) * MS, name=2, stream=8)
        for number in range(4):
            of.at((10 + 2 * rank) * number).computes(line=1).calls().ends_step(number)
        of.lane.enter(0, source=3)
        of.lane.memory(0x1000, 1 << 20 << rank)
        of.lane.memory(0x2000, 1 << 10)
        of.lane.exit()
        of.lane.memory(0x1000, 0, freed=True)
        of.write(folder)
    return folder


ROWS = {
    "Incomplete": ["1", "host1", "incomplete: 9 hops; 2 kernels without a recorded call"],
    "Ranks": ["12.0 ms", "", "", "3", "9", "0", "1", "host1", "100"],
    "Slowest ranks": ["12.0 ms", "11.0 ms", "", "1", "host1"],
    "What differs between ranks": ["1 of 2", "0", "5", "`aten::op1` [CPU]", "1"],
    "Communication beside computing": ["4.0 ms", "75.0 %", "5.0 ms", "36.0 ms", "1"],
    "Ops": ["0.07 us", "0.03 us", "", "1", "5", "5", "`aten::op1` [CPU]"],
    "Device kernels": ["9.0 ms", "5.0 ms", "2", "2", "`gemm`", "1"],
    "Memory": ["2.0 MiB", "1.0 KiB", "2", "1", "cpu", "", "`/work/train.py:3`: 2.0 MiB"],
    "Clocks": ["", "1", "not known: its times are left out"],
    "Jobs": ["2", "2", "18", "18", "4", "8", "1 unknown"],
}
"""A row of each section"""


def test_a_job_and_a_fleet_are_one_page(tmp_path: Path) -> None:
    folder = full_job(tmp_path / "job")
    of_job = job_page(load_job(folder), "job")
    of_fleet = fleet_page(merged(folder, tmp_path / "out"))
    assert titles(of_fleet) == list(ROWS)
    for title, row in ROWS.items():
        assert row in [list(cells.values()) for cells in table_of(of_job, title)], title
        assert table_of(of_job, title) == table_of(of_fleet, title)
    paths = "Where paths part"  # which only traces in memory can say
    assert [title for title in titles(of_job) if title != paths] == titles(of_fleet)
    assert [list(row.values()) for row in table_of(of_job, paths)] == [
        ["1", "0", *(f"`aten::op{rank} [CPU] ?` of `/work/train.py:1`" for rank in (1, 0))]
    ]


def test_rows_bound_each_table_of_a_job(tmp_path: Path) -> None:
    folder = full_job(tmp_path / "job")
    job = load_job(folder)
    whole = job_page(job, "job")
    of_two = [title for title in titles(whole) if len(table_of(whole, title)) > 1]
    assert "Ranks" in of_two
    page = job_page(job, "job", 1)
    assert [title for title in of_two if len(table_of(page, title)) == 1] == of_two
    assert page.count("1 more row left out.") + page.count("2 more rows left out.") == len(of_two)


def test_rows_name_their_job_if_there_are_several(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / "jobs").mkdir(exist_ok=True)
        full_job(tmp_path / "jobs" / name)
    tables = merged(tmp_path / "jobs", tmp_path / "out")
    page = fleet_page(tables)
    assert all(f"| {name} | 1    | host1 |" in page for name in ("one", "two"))
    assert "Job two: No trace here is of rank 2." in in_words(tables)
    assert "Job two: No collective of two ranks or more is in these traces." in in_words(tables)


def in_rings(folder: Path) -> None:
    for rank in range(2):
        Rank(rank, 2).calls().calls().write(folder, overwritten=7)


def without_shapes(folder: Path) -> None:
    for rank in range(2):
        of = Rank(rank, 2)
        of.lane.enter(1, source=2)
        of.lane.exit()
        of.write(folder)


def without_calls(folder: Path) -> None:
    for rank in range(2):
        Rank(rank, 2).computes().write(folder)


def at_once(folder: Path) -> None:
    for rank in range(2):
        Rank(rank, 2).calls().calls().write(folder)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            in_rings,
            "4 collective calls cannot be matched across ranks: the traces begin at different moments (rings "
            "that overwrote hops, or tracer attach), and share no whole step.",
        ),
        (
            without_shapes,
            "2 collective calls cannot be matched across ranks: their process groups were not recorded, as "
            "with `--no-shapes`.",
        ),
        (without_calls, "No collective of two ranks or more is in these traces."),
        (at_once, "No rank came last by more than 20 us."),
    ],
)
def test_why_no_rank_came_last(tmp_path: Path, make: Callable[[Path], None], said: str) -> None:
    make(tmp_path / "job")
    assert in_words(merged(tmp_path / "job", tmp_path / "out"))[-1] == said
    assert f"\n\n{said}\n" in job_page(load_job(tmp_path / "job"), "job")


def test_the_clock_of_another_host_is_of_all_calls(tmp_path: Path) -> None:
    """Host 1 is 50 us ahead in 1,000 calls, and 90 us in the 2,000 after them."""

    def calls_of(place: int, first: int, end: int) -> pl.DataFrame:
        ahead = pl.when(pl.col("number") < 1000).then(50_000).otherwise(90_000) * place
        rows = pl.DataFrame([{"number": number} for number in range(first, min(end, 3000))], RANK_CALLS)
        return rows.with_columns(group=pl.lit("0"), gpu_end_ns=pl.col("number") * 1_000_000 + ahead)

    ranks = [Clock(rank, f"host{rank}") for rank in range(2)]
    assert across(ranks, 3000, 1, calls_of).clocks["offset_ns"].to_list() == [0, -90_000]


@dataclass
class Clock:
    rank: int
    boot: str
    began_ns: int = 5000


def test_a_wait_for_a_rank_that_did_not_come_counts_in_neither(tmp_path: Path) -> None:
    """Ranks 0 and 1 are 30 ms apart in a call that rank 2 never makes; the first call ends their start."""
    for rank in range(3):
        of = Rank(rank, 3)
        for number in range(3):
            of.at(100 * number + 10 * rank).computes().calls(waits=True)
        if rank < 2:
            of.at(300 + 30 * rank).calls(line=3, waits=True)
        of.write(tmp_path / "job", dumped=5000)
    job = load_job(tmp_path / "job")
    waited = waits(job.calls, job.clocks, counted(job.collectives))
    assert waited[0] == pytest.approx(2 * 20e6, rel=1e-3)
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
    assert of_job["unanswered"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--json", "-o", "job.md"], "--json prints the tables of the job; remove --html and -o"),
        (
            ["--json", "--steady"],
            "job is a folder: only -o, --html, --force, --rows and --json apply to the report of a job; "
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


def test_several_traces_without_a_rank_are_one_sentence(tmp_path: Path) -> None:
    at_once(tmp_path / "job")
    for name in ("x", "y", "z"):
        write_rank(tmp_path / "job" / f"{name}.trace", None)
    said = f"`{tmp_path}/job/x.trace` does not say which rank it is of, nor do 2 more."
    assert said in in_words(merged(tmp_path / "job", tmp_path / "out"))


def test_one_trace_of_all_ranks_has_the_sections_of_a_job(tmp_path: Path) -> None:
    """But for those that the report of a trace has anyway."""
    writer = TraceWriter()
    for rank in range(2):
        add_rank(writer, rank, rank, late=4000 * rank, ops=1 + rank)
    page = render(Reading(load(writer.write(tmp_path / "all.trace")), "all.trace"))
    own = page.partition("\n## Ranks of the job\n")[2].partition("\n## ")[0]
    assert "\n**Rank 1 was last** in 2 of 2 collectives" in own
    assert re.findall("^### (.*)$", own, flags=re.M) == [
        *("Ranks", "Who came last", "What differs between ranks", "Collectives", "Where paths part")
    ]


def test_a_wait_behind_a_collective_is_no_cause(tmp_path: Path) -> None:
    """Rank 1 sleeps 5 ms behind a collective in which rank 0 waits as long, so the gaps of both are alike."""
    for rank in range(2):
        of = Rank(rank, 2).at(rank * 0.1).calls(waits=True)
        of.writer.json(0, "source_lines", {"/work/train.py": {"cell": None, "lines": {"1": "x = x / 2"}}})
        for number in range(6):
            released = 0.1 + 5.1 * number
            of.at(released + (5 if rank else 0.02)).computes(line=1)
            of.at(released + (5.1 if rank else 0.1)).calls(waits=True)
        of.write(tmp_path / "job")
    cause = "`/work/train.py:2 -> /work/train.py:1` (`x = x / 2`) took "
    page = job_page(load_job(tmp_path / "job"), "job")
    assert page.count(cause) == 2, "in the sentence, and in the table"
    assert fleet_page(merged(tmp_path / "job", tmp_path / "out")).count(cause) == 2


@pytest.mark.parametrize(("first", "excess_ns"), [(0, None), (3, 5_000_000)])
def test_a_gap_counts_in_each_collective_that_it_reaches_into(
    tmp_path: Path, first: int, excess_ns: int | None
) -> None:
    """A thread without lines calls, so no gap ends there; rank 1 is late by 5 ms from call `first` on."""
    for rank in range(2):
        of = Rank(rank, 2)
        script = of.writer.lane(number=1, thread=101, torch_thread=2)
        for at, line in ((0, 1), (70, 4)):
            script.define_source(line, "/work/train.py", line)
            for number in range(6 if at else 0):
                of.at(10 * number + (6 if rank and number >= first else 1)).calls(line=0)
            of.at(at)
            script.enter(0, source=line)
            script.exit()
        of.write(tmp_path / "job")
    (late,) = merged(tmp_path / "job", tmp_path / "out")["late"].to_dicts()
    assert (late["rank"], late["times"], late["excess_ns"]) == (1, 6 - max(first, 1), excess_ns)
    assert late["after"] == (None if excess_ns is None else "/work/train.py:4")


def test_rings_of_other_steps_have_the_cause_of_the_steps_that_they_share(tmp_path: Path) -> None:
    """Rank 1 sleeps in step 7 alone, behind line 4; its ring begins two steps after that of rank 0."""
    for rank in range(2):
        of = Rank(rank, 2)
        for number in range(3 + 2 * rank, 9):
            late = 5 if rank and number == 7 else 0
            of.at(10 * number).computes(line=4).at(10 * number + 1 + late).computes(line=1).calls(waits=True)
            of.at(10 * number + 8).ends_step(number)
        of.write(tmp_path / "job", dumped=500, overwritten=7)
    (late,) = merged(tmp_path / "job", tmp_path / "out")["late"].to_dicts()
    assert (late["rank"], late["times"], late["before"]) == (1, 1, "/work/train.py:4")
    (of_job,) = load_job(tmp_path / "job").lateness
    assert of_job.excess_ns == late["excess_ns"]


def test_collectives_name_the_dimension_of_a_mesh(tmp_path: Path) -> None:
    described = {"0": "default_pg", "pair": "mesh_tp"}
    for rank in range(2):
        of = Rank(rank, 2, ["0", "pair"], described=described)
        for number in range(3):
            of.at(10 * number + rank).calls().calls("pair", line=3)
        of.write(tmp_path / "job")
    page = fleet_page(merged(tmp_path / "job", tmp_path / "out"))
    assert {row["group"] for row in table_of(page, "Collectives")} == {"`0`", "`mesh_tp pair`"}
    assert load_job(tmp_path / "job").parts[0].trace.process_groups["ranks"].to_list() == [[0, 1]] * 2


def test_the_groups_of_a_dimension_are_one_row(tmp_path: Path) -> None:
    """Of a mesh of 2 x 2 two pairs are of the dimension tp, and each of them calls line 3."""
    for rank in range(4):
        pair = f"pair{rank // 2}"
        described = {"0": "default_pg", pair: "mesh_tp"}
        of = Rank(rank, 4, ["0", pair], described=described)
        for number in range(3):
            of.at(10 * number + rank).calls().calls(pair, line=3)
        of.write(tmp_path / "job")
    page = fleet_page(merged(tmp_path / "job", tmp_path / "out"))
    rows = {row["group"]: row for row in table_of(page, "Collectives")}
    assert set(rows) == {"`0`", "`mesh_tp` (2 groups)"}
    assert (rows["`mesh_tp` (2 groups)"]["times"], rows["`mesh_tp` (2 groups)"]["ranks"]) == ("6", "2")


def test_calls_of_symmetric_memory_are_counted_as_not_matched(tmp_path: Path) -> None:
    """They name no group of torch.distributed: nothing said that ranks exchange anything."""
    for rank in range(2):
        for number, op in enumerate(("symm_mem::one_shot_all_reduce", "symm_mem::nvshmem_put")):
            path = tmp_path / "job" / f"rank{rank}.{number}.trace"
            write_rank(path, rank + 2 * number, 4, collectives=2, ops=3 - number, op=op)
    said = (
        "20 calls of symmetric memory, most of them `symm_mem::one_shot_all_reduce`, cannot be matched "
        "across ranks: who waited in them is not known."
    )
    assert said in in_words(merged(tmp_path / "job", tmp_path / "out"))
    assert f"\n\n{said}\n" in job_page(load_job(tmp_path / "job"), "job")
