"""The picture of a job: which bars its ranks have on one clock, and the page with them."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from rank_traces import MS, Rank
from typer.testing import CliRunner

from tracer.analysis.fleet.in_memory import parts_in_memory
from tracer.analysis.fleet.merge import merge
from tracer.analysis.fleet.side_by_side import MOST_RANKS, MOST_STEPS, SideBySide, side_by_side
from tracer.analysis.job.folder import load_job
from tracer.cli.app import app
from tracer.report.html.columns import unpacked
from tracer.report.html.job import render_job

NS = MS * 10  # of a ms


def straggler(folder: Path, steps: int = 4, late: int = 1, ranks: int = 3, slow: int = -1) -> Path:
    """Steps of 10 ms in which a rank comes 4 ms after the others; in step `slow` it comes 8 ms after them."""
    for number in range(ranks):
        rank = Rank(number, ranks)
        for step in range(steps):
            begin = 10 * step
            rank.at(begin).ends_step(step).computes()
            if number == late:
                rank.at(begin + 4 + 4 * (step == slow)).computes(line=3)
            rank.at(begin + 1).calls(waits=True)
        rank.at(10 * steps).ends_step(steps).write(folder)
    return folder


def picture(folder: Path) -> SideBySide:
    parts = parts_in_memory(load_job(folder), "job")
    return side_by_side(parts, merge(parts))


def test_each_rank_waits_for_the_last_one_and_the_reason_is_named(tmp_path: Path) -> None:
    found = picture(straggler(tmp_path / "job"))
    assert list(found.offsets) == [0, 1, 2]
    assert found.end_ns - found.begin_ns == pytest.approx(40 * NS, abs=100)
    assert len(found.meetings) == 4
    assert set(found.meetings["last"]) == {1}
    assert set(found.meetings["before"]) == {"/work/train.py:1"}
    assert set(found.meetings["after"]) == {"/work/train.py:3"}
    waits = found.calls.filter(pl.col("meeting") == 2)
    assert [round(wait / NS) for wait in waits["wait_ns"]] == [3, 0, 3]
    assert (waits["end_ns"] >= waits["start_ns"] + waits["wait_ns"]).all()
    total = found.calls.group_by("rank").agg(pl.col("wait_ns").sum())
    parts = parts_in_memory(load_job(tmp_path / "job"), "job")
    ranks = merge(parts)["ranks"].select("rank", wait_ns="waited_ns")
    assert total.sort("rank").equals(ranks.sort("rank")), "as the table of ranks has it"


def test_of_many_steps_those_in_which_ranks_waited_longest(tmp_path: Path) -> None:
    found = picture(straggler(tmp_path / "job", steps=50, slow=40))
    steps = found.steps["step"].unique().sort().to_list()
    assert len(steps) == MOST_STEPS
    assert 40 in steps
    assert found.all_steps == 50
    assert len(found.calls) == 3 * MOST_STEPS


def test_of_many_calls_whole_collectives_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracer.analysis.fleet.side_by_side.MOST_CALLS", 6)
    found = picture(straggler(tmp_path / "job", steps=10, slow=4))
    assert found.calls_left_out == 24
    assert found.calls["meeting"].value_counts()["count"].to_list() == [3, 3]
    assert 4 in found.meetings["step"]


def test_of_many_ranks_those_that_differ(tmp_path: Path) -> None:
    found = picture(straggler(tmp_path / "job", steps=2, late=17, ranks=20))
    assert len(found.offsets) == MOST_RANKS
    assert 17 in found.offsets
    assert (found.meetings["came_ns"] - found.meetings["first_ns"] > 2 * NS).all()
    assert found.ranks_left_out == 20 - MOST_RANKS


def test_ranks_that_wait_at_a_dump_wait_until_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "hang"
    for number in range(3):
        rank = Rank(number, 3)
        for call in range(4):
            rank.at(call).calls(waits=True)
        rank.at(5).computes()
        if number != 1:
            rank.at(6).calls(waits=True)
        rank.write(folder, dumped=3000)
    found = picture(folder)
    stuck = found.meetings.filter(pl.col("missing").is_not_null())
    assert stuck["missing"].to_list() == [[1]]
    waits = found.calls.filter(pl.col("meeting") == stuck["meeting"][0])
    assert waits["rank"].to_list() == [0, 2]
    assert all(wait == pytest.approx(2994 * NS, rel=0.001) for wait in waits["wait_ns"])


def test_the_page_has_the_picture_and_the_tables_of_the_report(tmp_path: Path) -> None:
    folder = straggler(tmp_path / "job")
    done = CliRunner().invoke(app, ["report", str(folder), "--html"])
    assert (done.exit_code, done.stderr) == (0, f"tracer: wrote {tmp_path / 'job.html'}\n")
    page = (tmp_path / "job.html").read_text()
    assert page.startswith("<!doctype html>")
    said = CliRunner().invoke(app, ["report", str(folder)]).stdout
    titles = re.findall("^## (.*)", said, re.MULTILINE)
    assert re.findall("<h2>(.*)</h2>", page)[1:] == titles
    data = re.search('id="job-data">([^<]*)<', page)
    assert data is not None
    columns, meta = unpacked(data[1])
    assert [rank["title"] for rank in meta["ranks"]][1] == ("rank 1 on clock: others waited 12.0 ms for it")
    (why,) = {meta["texts"][number] for number in columns["meetings.why"]}
    assert re.fullmatch(
        "/work/train.py:1 -> /work/train.py:3 took 4.0 ms longer than on the other ranks", why
    )
    assert CliRunner().invoke(app, ["report", str(folder), "--html"]).exit_code == 2, "it exists"
    refused = CliRunner().invoke(app, ["report", str(folder), "--html", "--json"])
    assert refused.stderr == "tracer: --json prints the tables of the job; remove --html and -o\n"


def test_eight_ranks_of_twenty_steps_fit_in_five_megabytes(tmp_path: Path) -> None:
    for number in range(8):
        rank = Rank(number, 8)
        for step in range(20):
            rank.at(100 * step).ends_step(step)
            for call in range(60):
                rank.at(100 * step + call).computes().at(100 * step + call + number / 20).calls()
        rank.at(2000).ends_step(20).write(tmp_path / "job")
    page = render_job(load_job(tmp_path / "job"), "job")
    assert len(page.encode()) < 1 << 20


def test_the_gpu_computes_beside_the_kernels_in_which_it_waits(tmp_path: Path) -> None:
    for number in range(2):
        rank = Rank(number, 2).ends_step(0)
        rank.at(1).launches(10, 20 + 30 * number).at(2).reduces(20 + 30 * number, 60).at(100).ends_step(1)
        rank.write(tmp_path / "job")
    page = render_job(load_job(tmp_path / "job"), "job")
    data = re.search('id="job-data">([^<]*)<', page)
    assert data is not None
    _, meta = unpacked(data[1])
    assert [round(sum(rank["busy"]) / NS) for rank in meta["ranks"]] == [10, 40]
    assert meta["ranks"][0]["memory"] == {}


def test_ranks_of_a_host_whose_clock_is_not_known_are_named(tmp_path: Path) -> None:
    for number in range(4):
        Rank(number, 4, boot=f"host{number // 2}").calls().at(5).calls().write(tmp_path / "job")
    assert list(picture(tmp_path / "job").offsets) == [0, 1]
    page = render_job(load_job(tmp_path / "job"), "job")
    assert "Ranks 2, 3 left out: how their clocks differ is not known." in page


def test_a_job_with_nothing_to_draw_says_so(tmp_path: Path) -> None:
    for number in range(2):
        Rank(number, 2).computes().write(tmp_path / "job")
    page = render_job(load_job(tmp_path / "job"), "job")
    assert "These traces have no step, collective or message to draw." in page
