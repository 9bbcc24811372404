"""Dumps of ranks: the collective that one did not reach, and rings that begin at different moments."""

from __future__ import annotations

from pathlib import Path
from shutil import copy

import polars as pl
import pytest
from rank_traces import MS, Rank, add_rank
from synthetic import TraceWriter

from tracer.analysis.fleet.merge import merge
from tracer.analysis.job.folder import load_job
from tracer.analysis.job.outstanding import Outstanding
from tracer.fleet.gather import gather
from tracer.fleet.parts import Parts
from tracer.fleet.processes import Processes
from tracer.fleet.traces import find
from tracer.report.fleet_page import fleet_page, in_words
from tracer.report.job_page import job_page
from tracer.report.job_tables import waiting_in_words
from tracer.report.reading import Reading
from tracer.report.report import render
from tracer.report.sections import dumped
from tracer.trace import load


def outstanding(folder: Path) -> list[Outstanding]:
    return list(load_job(folder).outstanding)


def merged(folder: Path, out: Path) -> dict[str, pl.DataFrame]:
    parts = Parts(out)
    assert gather(parts, find([str(folder)]), Processes(1)).errors == {}
    return merge(parts.all())


def test_the_rank_that_did_not_come_is_the_headline(tmp_path: Path) -> None:
    for rank in range(3):
        of = Rank(rank, 3)
        for number in range(2):
            of.at(10 * number + rank).computes().calls()
        if rank == 1:
            of.at(21).computes(line=4)
        else:
            of.at(20 + rank).computes().calls(line=3, waits=True)
        of.write(tmp_path / "job", dumped=1020)
    (found,) = outstanding(tmp_path / "job")
    assert (found.group, found.number, found.op, found.waiting) == ("0", 2, "c10d::allreduce_", (0, 2))
    assert found.line == "/work/train.py:3"
    assert found.longest_ns == pytest.approx(1e9, rel=1e-3)
    assert found.shortest_ns == pytest.approx(998e6, rel=1e-3)
    (place,) = found.missing
    assert (place.rank, place.is_in, place.op, place.line) == (1, False, "aten::mm", "/work/train.py:4")
    assert place.since_ns == pytest.approx(999e6, rel=1e-3)
    job = load_job(tmp_path / "job")
    assert job.collectives.select("number", "ranks").rows() == [(0, 3), (1, 3)]
    said = (
        "**Rank 1 did not reach** `c10d::allreduce_` of `/work/train.py:3` (call 2 of group `0`). "
        "Ranks 0, 2 have waited there for 998.0 ms to 1.0 s. "
        "Rank 1 left `aten::mm` of `/work/train.py:4` 999.0 ms ago, and has called no op since."
    )
    paragraphs = job_page(job, "job").split("\n\n")
    assert paragraphs[2] == said
    tables = merged(tmp_path / "job", tmp_path / "out")
    assert in_words(tables)[0] == said
    (row,) = tables["outstanding"].iter_rows(named=True)
    assert (row["job"], row["group"], row["number"], row["waiting"]) == ("job", "0", 2, [0, 2])
    assert (row["rank"], row["rank_line"], row["since_step"]) == (1, "/work/train.py:4", None)
    assert tables["collectives"]["number"].to_list() == [0, 1]


def test_a_rank_that_is_in_an_op_or_called_none(tmp_path: Path) -> None:
    Rank(0, 3).at(1).calls(waits=True).write(tmp_path / "job", dumped=50)
    Rank(1, 3).at(1).computes(leaves=False).write(tmp_path / "job", dumped=50)
    Rank(2, 3).write(tmp_path / "job", dumped=50)
    page = job_page(load_job(tmp_path / "job"), "job")
    assert (
        "**Ranks 1, 2 did not reach** `c10d::allreduce_` of `/work/train.py:2` (call 0 of group `0`)." in page
    )
    assert "Rank 0 has waited there for 49.0 ms." in page
    assert "Rank 1 has been in `aten::mm` of `/work/train.py:1` for 49.0 ms." in page
    assert "Rank 2 has called no op in its trace." in page


def said_of(folder: Path, out: Path) -> list[str]:
    """The headlines of the job's report, which are those of `tracer fleet` too."""
    job = load_job(folder)
    said = [waiting_in_words(of, job.numbering.step) for of in job.outstanding]
    assert in_words(merged(folder, out))[: len(said)] == said
    return said


def test_a_rank_that_called_other_ops_since_does_not_wait_there(tmp_path: Path) -> None:
    for rank in range(4):
        of = Rank(rank, 4).calls()
        if rank < 3:
            of.at(10 + rank).calls(line=3)
        if rank == 1:
            of.at(20).computes(line=4)
        if rank == 2:
            of.at(30).computes(line=4, leaves=False)
        of.write(tmp_path / "job", dumped=1010)
    (said,) = said_of(tmp_path / "job", tmp_path / "out")
    assert (
        "Rank 0 called it 1.0 s ago, has called no op since, and probably waits there. "
        "Rank 1 called it 999.0 ms ago, left `aten::mm` of `/work/train.py:4` 990.0 ms ago, "
        "and has called no op since. "
        "Rank 2 called it 998.0 ms ago, and has been in `aten::mm` of `/work/train.py:4` for 980.0 ms. "
    ) in said


def test_ranks_at_one_place_are_one_sentence(tmp_path: Path) -> None:
    for rank in range(3):
        of = Rank(rank, 3).calls()
        if rank:
            of.at(10 * rank).calls(line=3).computes(line=4)
        of.write(tmp_path / "job", dumped=1010)
    (said,) = said_of(tmp_path / "job", tmp_path / "out")
    assert (
        "Ranks 1, 2 called it 990.0 ms to 1.0 s ago, left `aten::mm` of `/work/train.py:4` "
        "990.0 ms to 1.0 s ago, and have called no op since. "
    ) in said


@pytest.mark.parametrize(("waits", "how"), [(True, "has waited"), (False, "has probably waited")])
def test_a_missing_rank_that_waits_in_another_collective(tmp_path: Path, waits: bool, how: str) -> None:
    """Rank 0 waits in `dp` for rank 1, which waits in `tp` for rank 2."""
    Rank(0, 3, ["dp"]).calls("dp").at(10).calls("dp").write(tmp_path / "job", dumped=1010)
    of = Rank(1, 3, ["dp", "tp"]).calls("dp").calls("tp").at(20).calls("tp", line=4, waits=waits)
    of.write(tmp_path / "job", dumped=1010)
    Rank(2, 3, ["tp"]).calls("tp").computes().write(tmp_path / "job", dumped=1010)
    _, said = said_of(tmp_path / "job", tmp_path / "out")
    assert said.endswith(
        f"Rank 1 {how} in `c10d::allreduce_` of `/work/train.py:4` (group `tp`) for 990.0 ms."
    )


def test_a_missing_rank_whose_last_collective_is_done_left_it(tmp_path: Path) -> None:
    Rank(0, 2).calls(waits=True).at(10).calls(line=3).write(tmp_path / "job", dumped=1010)
    Rank(1, 2).calls(waits=True).write(tmp_path / "job", dumped=1010)
    (said,) = said_of(tmp_path / "job", tmp_path / "out")
    assert said.endswith(
        "Rank 1 left `c10d::allreduce_` of `/work/train.py:2` 1.0 s ago, and has called no op since."
    )


def test_a_missing_rank_that_waits_for_another_one_alone(tmp_path: Path) -> None:
    Rank(0, 2).calls().at(10).calls(line=3).write(tmp_path / "job", dumped=1010)
    Rank(1, 2, op="c10d::recv_").calls().at(20).computes().write(tmp_path / "job", dumped=1010)
    (said,) = said_of(tmp_path / "job", tmp_path / "out")
    assert said.endswith("Rank 1 has probably waited in `c10d::recv_` of `/work/train.py:1` for 990.0 ms.")


@pytest.mark.parametrize(("dumped", "usual"), [(450, True), (600, False), (2000, False)])
def test_a_wait_as_in_the_collectives_before_is_no_hang(tmp_path: Path, dumped: int, usual: bool) -> None:
    """Rank 0 waits 20 ms for rank 1 each time, and now since 400 ms."""
    for rank in range(2):
        of = Rank(rank, 2)
        for number in range(4):
            of.at(100 * number + 20 * rank).calls(waits=True)
        if not rank:
            of.at(400).calls(line=3, waits=True)
        of.write(tmp_path / "job", dumped=dumped)
    (said,) = said_of(tmp_path / "job", tmp_path / "out")
    assert said.startswith(
        "**Rank 1 did not reach** `c10d" if not usual else "Rank 1 had not yet reached `c10d"
    )
    assert usual == said.endswith(
        "That is as usual: in the 4 collectives before, the first rank waited for the last one 20.0 ms in "
        "the median, 20.0 ms at most."
    )


def test_a_dump_is_a_window_and_not_incomplete(tmp_path: Path) -> None:
    Rank(0, 2).calls().calls().write(tmp_path / "job", dumped=600)
    Rank(1, 2).calls().calls().write(tmp_path / "job", dumped=600, overwritten=7)
    page = fleet_page(merged(tmp_path / "job", tmp_path / "out"))
    assert "2 ranks of 2 are from dumps: the last window of a recording that went on." in page
    assert "incomplete" not in page.lower()


def test_a_dump_that_lost_a_chunk_is_incomplete(tmp_path: Path) -> None:
    Rank(0, 2).calls().calls().write(tmp_path / "job", dumped=600)
    Rank(1, 2).calls().calls().write(tmp_path / "job", dumped=600)
    trace = tmp_path / "job" / "rank1.trace"
    trace.write_bytes(trace.read_bytes()[:-300])
    page = fleet_page(merged(tmp_path / "job", tmp_path / "out"))
    assert "1 rank of 2 is from dumps" in page
    assert "1 rank of 2 is incomplete." in page


def test_one_dump_of_all_ranks_begins_with_the_hang(tmp_path: Path) -> None:
    writer = TraceWriter(ticks=1000)
    for rank in range(2):
        add_rank(writer, rank, rank, collectives=3 - rank)
    end = 1000 + 1000 * MS
    writer.header = {"last_ticks": end, "last_ns": 5000 + 10 * (end - 1000), "flags": 3 | 64}
    text = render(Reading(load(writer.write(tmp_path / "all.dump0001.trace")), "t"))
    sections = text.split("\n## ")
    assert sections[1].startswith(
        "What ranks wait for\n\n**Rank 1 did not reach** `c10d::allreduce_` of `/work/train.py:2` "
        "(call 2 of group `0`). Rank 0 called it 1.0 s ago, has called no op since, and probably waits there."
    )
    assert sections[2].startswith("Where each thread was")
    assert text.count("did not reach") == 1


@pytest.mark.parametrize("one_file", [True, False])
def test_the_dump_of_one_rank_says_where_it_waits(tmp_path: Path, one_file: bool) -> None:
    Rank(0, 2).calls().at(10).calls(line=3, waits=True).write(tmp_path / "job", dumped=3010)
    if one_file:
        page = render(Reading(load(tmp_path / "job" / "rank0.trace"), "t"))
    else:
        page = job_page(load_job(tmp_path / "job"), "job")
    assert (
        "**Rank 0 probably waits** in `c10d::allreduce_` of `/work/train.py:3` (call 1 of group `0`): "
        "it called it 3.0 s ago, and has called no op since."
    ) in page
    assert "No trace here is of rank 1." in page
    (said, *_) = in_words(merged(tmp_path / "job", tmp_path / "out"))
    assert said in page


def test_where_a_trace_is_missing_all_may_wait_for_it(tmp_path: Path) -> None:
    for rank in range(2):
        Rank(rank, 3).calls().at(10).calls(line=3).write(tmp_path / "job", dumped=3010)
    page = job_page(load_job(tmp_path / "job"), "job")
    assert (
        "**Ranks 0, 1 probably wait** in `c10d::allreduce_` of `/work/train.py:3` (call 1 of group `0`)"
        in page
    )


def test_a_rank_that_called_a_moment_ago_is_not_said_to_wait(tmp_path: Path) -> None:
    Rank(0, 2).calls().at(10).calls(line=3, waits=True).write(tmp_path / "job", dumped=100)
    assert load_job(tmp_path / "job").unanswered == ()


def test_ranks_in_different_collectives_of_one_number(tmp_path: Path) -> None:
    Rank(0, 2).calls().at(10).calls(line=3, waits=True).write(tmp_path / "job", dumped=3010)
    Rank(1, 2, collective="c10d::barrier").calls().at(20).calls(line=4, waits=True).write(
        tmp_path / "job", dumped=3010
    )
    page = job_page(load_job(tmp_path / "job"), "job")
    assert (
        "**Ranks wait in different collectives**: call 1 of group `0` is `c10d::allreduce_` of "
        "`/work/train.py:3` on rank 0 and `c10d::barrier` of `/work/train.py:4` on rank 1. They called it "
        "3.0 s ago, and have called no op since."
    ) in page
    assert page.count("different collectives") == 1
    tables = merged(tmp_path / "job", tmp_path / "out")
    assert in_words(tables)[0] in page
    assert tables["mismatched"].select("op", "ranks").rows() == [
        ("c10d::allreduce_", [0]),
        ("c10d::barrier", [1]),
    ]


def test_ranks_that_reached_neither_of_different_collectives(tmp_path: Path) -> None:
    for rank in range(5):
        of = Rank(rank, 5, collective="c10d::barrier" if rank == 1 else "c10d::allreduce_").calls()
        if rank < 2:
            of.at(10).calls(line=3, waits=True)
        elif rank < 4:
            of.at(5).computes(line=4)
        of.write(tmp_path / "job", dumped=5 if rank == 4 else 3010)  # rank 4 before the others called
    page = job_page(load_job(tmp_path / "job"), "job")
    assert (
        "and `c10d::barrier` of `/work/train.py:3` on rank 1. They called it 3.0 s ago, and have called "
        "no op since. Ranks 2, 3 reached neither: they left `aten::mm` of `/work/train.py:4` 3.0 s ago, and "
        "have called no op since."
    ) in page
    assert "Rank 4 reached" not in page
    assert in_words(merged(tmp_path / "job", tmp_path / "out"))[0] in page


def test_where_one_rank_has_left_the_call_others_do_not_wait_in_different_collectives(tmp_path: Path) -> None:
    for rank, collective in enumerate(("allreduce_", "barrier", "barrier")):
        of = Rank(rank, 3, collective=f"c10d::{collective}").calls().at(10).calls(waits=True)
        (of.computes() if rank == 2 else of).write(tmp_path / "job", dumped=3010)
    assert load_job(tmp_path / "job").mismatched == ()
    assert merged(tmp_path / "job", tmp_path / "out")["mismatched"].is_empty()


def test_of_rings_the_mismatch_is_counted_from_the_step_in_fleet_too(tmp_path: Path) -> None:
    for rank, collective in enumerate(("allreduce_", "barrier")):
        of = Rank(rank, 2, collective=f"c10d::{collective}").at(1).calls().ends_step(6 + rank)
        for step in range(7 + rank, 10):
            of.at(10 * step).computes().calls().ends_step(step)
        of.at(200).computes().calls(line=3 + rank, waits=True)
        of.write(tmp_path / "job", dumped=3200, overwritten=5)
    (mismatch,) = load_job(tmp_path / "job").mismatched
    page = job_page(load_job(tmp_path / "job"), "job")
    (said, *_) = in_words(merged(tmp_path / "job", tmp_path / "out"))
    assert f"call {mismatch.number} of group `0` since step 7" in said
    assert said in page


def test_of_all_ranks_nobody_waits_after_what_all_called(tmp_path: Path) -> None:
    for rank in range(2):
        Rank(rank, 2).calls().write(tmp_path / "job", dumped=3010)
    assert load_job(tmp_path / "job").unanswered == ()


def test_dumps_beside_recordings_are_named(tmp_path: Path) -> None:
    for rank in range(2):
        Rank(rank, 2).calls().write(tmp_path / "job", dumped=None)
    for number in range(1, 3):
        copy(tmp_path / "job" / "rank1.trace", tmp_path / "job" / f"rank1.dump000{number}.trace")
    page = job_page(load_job(tmp_path / "job"), "job")
    assert (
        "2 dumps left out, as the recording is here too. To read them, move them into a folder of their own."
    ) in page
    for said in in_words(merged(tmp_path / "job", tmp_path / "out"))[:1]:
        assert said.startswith("2 dumps left out, as the recording is here too.")


def test_older_dumps_of_a_recording_are_named(tmp_path: Path) -> None:
    for rank in range(2):
        Rank(rank, 2).calls().write(tmp_path / "job", dumped=10)
        for number in range(1, 4):
            copy(
                tmp_path / "job" / f"rank{rank}.trace", tmp_path / "job" / f"rank{rank}.dump000{number}.trace"
            )
        (tmp_path / "job" / f"rank{rank}.trace").unlink()
    said = "4 older dumps left out, as a later one of the same recording is here."
    assert said in job_page(load_job(tmp_path / "job"), "job")
    assert said in in_words(merged(tmp_path / "job", tmp_path / "out"))


def test_the_end_of_a_range_is_no_place(tmp_path: Path) -> None:
    end = "profiler::_record_function_exit._RecordFunction"
    Rank(0, 2, op=end).calls().at(10).calls(line=3, waits=True).computes().write(
        tmp_path / "job", dumped=1010
    )
    Rank(1, 2, op=end).calls().at(5).computes(line=4).write(tmp_path / "job", dumped=1010)
    (said,) = said_of(tmp_path / "job", tmp_path / "out")
    assert "Rank 0 has waited there for 1.0 s." in said
    assert (
        "Rank 1 left `c10d::allreduce_` of `/work/train.py:2` 1.0 s ago, and has called no op since." in said
    )
    threads = dumped.data(Reading(load(tmp_path / "job" / "rank1.trace"), "t")).threads.rows
    assert [row["op"] for row in threads] == ["c10d::allreduce_"]


def test_a_rank_that_was_dumped_before_the_others_called_is_not_missing(tmp_path: Path) -> None:
    Rank(0, 2).calls().at(30).calls().write(tmp_path / "job", dumped=40)
    Rank(1, 2).calls().write(tmp_path / "job", dumped=20)
    assert outstanding(tmp_path / "job") == []


def test_without_dumps_or_without_a_clock_nothing_is_said(tmp_path: Path) -> None:
    Rank(0, 2).calls().calls().write(tmp_path / "ended", dumped=None)
    Rank(1, 2).calls().write(tmp_path / "ended", dumped=None)
    assert outstanding(tmp_path / "ended") == []
    Rank(0, 2).calls().at(1).calls().write(tmp_path / "hosts", dumped=100)
    Rank(1, 2, boot="other").calls().write(tmp_path / "hosts", dumped=100)
    assert outstanding(tmp_path / "hosts") == []


def test_the_collective_that_explains_the_other_one_comes_first(tmp_path: Path) -> None:
    """Rank 0 waits in `dp` for rank 1, which waits in `tp` for rank 2, which computes."""
    Rank(0, 3, ["dp"]).calls("dp").at(1).calls("dp").write(tmp_path / "job", dumped=100)
    Rank(1, 3, ["dp", "tp"]).calls("dp").calls("tp").at(2).calls("tp").write(tmp_path / "job", dumped=100)
    Rank(2, 3, ["tp"]).calls("tp").computes().write(tmp_path / "job", dumped=100)
    first, second = outstanding(tmp_path / "job")
    assert (first.group, first.waiting, first.missing[0].rank) == ("tp", (1,), 2)
    assert (second.group, second.waiting, second.missing[0].rank) == ("dp", (0,), 1)
    assert second.missing[0].op == "c10d::allreduce_"


def test_one_missing_rank_that_waits_in_another_collective_is_enough(tmp_path: Path) -> None:
    """Ranks 0 and 1 are in `pair`: rank 1 waits there for rank 0, and rank 2 in group 0 for both."""
    Rank(0, 3, ["0", "pair"]).calls().calls("pair").computes().write(tmp_path / "job", dumped=1010)
    of = Rank(1, 3, ["0", "pair"]).calls().calls("pair").at(20).calls("pair", line=4, waits=True)
    of.write(tmp_path / "job", dumped=1010)
    Rank(2, 3).calls().at(10).calls(line=3, waits=True).write(tmp_path / "job", dumped=1010)
    first, second = said_of(tmp_path / "job", tmp_path / "out")
    assert first.startswith(
        "**Rank 0 did not reach** `c10d::allreduce_` of `/work/train.py:4` (call 1 of group `pair`)."
    )
    assert second.startswith("**Ranks 0, 1 did not reach** `c10d::allreduce_` of `/work/train.py:3`")
    assert second.endswith(
        "Rank 1 has waited in `c10d::allreduce_` of `/work/train.py:4` (group `pair`) for 990.0 ms."
    )


def test_ranks_that_wait_for_each_other_in_a_circle(tmp_path: Path) -> None:
    Rank(0, 2, ["a", "b"]).calls("a").calls("b").at(10).calls("a").write(tmp_path / "job", dumped=1010)
    Rank(1, 2, ["a", "b"]).calls("a").calls("b").at(20).calls("b").write(tmp_path / "job", dumped=1010)
    assert [of.group for of in outstanding(tmp_path / "job")] == ["a", "b"]


def ring(rank: int, first: int, *, hangs: bool = False) -> Rank:
    """Two collectives a step; the ring has the second one of step `first`, and all of the next ones."""
    of = Rank(rank, 2)
    for step in range(first, 10):
        if step > first:
            of.at(10 * step + rank).computes().calls()
        if not (hangs and step == 9):
            of.at(10 * step + 5 + rank).calls(line=3)
        if step < 9:
            of.at(10 * step + 8).ends_step(step + 1)
    return of


def test_rings_that_begin_at_different_steps_are_counted_from_the_same_one(tmp_path: Path) -> None:
    ring(0, 3).write(tmp_path / "job", dumped=500, overwritten=7)
    ring(1, 5, hangs=True).write(tmp_path / "job", dumped=500, overwritten=9)
    job = load_job(tmp_path / "job")
    assert job.numbering.step == 6
    assert job.collectives["late_ns"].max() == pytest.approx(1e6, rel=1e-3)
    assert job.collectives["number"].to_list() == list(range(7))
    (found,) = job.outstanding
    assert (found.number, found.waiting, found.missing[0].rank) == (7, (0,), 1)
    page = job_page(job, "job")
    assert "(call 7 of group `0` since step 6)" in page
    assert "could not be matched" not in page
    tables = merged(tmp_path / "job", tmp_path / "out")
    assert (
        tables["collectives"].select("number", "late_ns").equals(job.collectives.select("number", "late_ns"))
    )
    assert tables["outstanding"].select("number", "since_step", "rank").rows() == [(7, 6, 1)]


def test_rings_without_a_common_step_are_not_matched(tmp_path: Path) -> None:
    for rank in range(2):
        of = Rank(rank, 2)
        for number in range(4):
            of.at(10 * number + rank).calls()
        of.write(tmp_path / "job", dumped=500, overwritten=7 * rank)
    job = load_job(tmp_path / "job")
    assert job.collectives.is_empty()
    assert job.outstanding == ()
    assert (
        "8 collective calls cannot be matched across ranks: the traces begin at different moments "
        "(rings that overwrote hops, or tracer attach), and share no whole step."
    ) in job_page(job, "job")
    assert merged(tmp_path / "job", tmp_path / "out")["collectives"].is_empty()


def test_a_group_of_one_rank_has_nobody_to_match(tmp_path: Path) -> None:
    for rank in range(2):
        Rank(rank, 2, ["0", f"own{rank}"]).calls().calls(f"own{rank}").write(tmp_path / "job", dumped=None)
    job = load_job(tmp_path / "job")
    assert "could not be matched" not in job_page(job, "job")
    assert "could not be matched" not in fleet_page(merged(tmp_path / "job", tmp_path / "out"))


def test_where_a_trace_is_missing_the_other_rank_may_be_in_it(tmp_path: Path) -> None:
    for rank in range(2):
        Rank(rank, 3, ["0", f"own{rank}"]).calls().calls(f"own{rank}").write(tmp_path / "job", dumped=None)
    assert "2 calls could not be matched" in job_page(load_job(tmp_path / "job"), "job")
    assert "2 calls could not be matched" in fleet_page(merged(tmp_path / "job", tmp_path / "out"))


def test_where_a_rank_went_after_the_same_op_before(tmp_path: Path) -> None:
    """Line 1, line 4, line 3 (a collective), line 1: then line 4 would be next."""
    for rank in range(2):
        of = Rank(rank, 2).computes().at(1).computes(line=4).at(2).calls(line=3).at(10).computes()
        if rank == 0:
            of.at(11).computes(line=4).at(12).calls(line=3, waits=True)
        of.write(tmp_path / "job", dumped=1010)
    (said,) = said_of(tmp_path / "job", tmp_path / "out")
    assert said.endswith(" ago, and has called no op since (last time, `/work/train.py:4` came next).")


def test_of_ranks_recorded_with_ops_others_may_have_run_since(tmp_path: Path) -> None:
    for rank in range(2):
        of = Rank(rank, 2).at(10).calls(waits=True) if rank == 0 else Rank(rank, 2)
        of.writer.json(0, "environment", {"options": {"ops": ["c10d::*"]}})
        of.write(tmp_path / "job", dumped=1010)
    said = "Of 2 ranks only the ops that match --ops c10d::\\* were recorded: others may have run, unseen.\n"
    assert said in job_page(load_job(tmp_path / "job"), "job")
    assert said.strip() in in_words(merged(tmp_path / "job", tmp_path / "out"))
