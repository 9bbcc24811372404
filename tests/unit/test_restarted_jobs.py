"""Folders with the traces of a job that was started again: the last start is the job."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_traces import Rank

from tracer.analysis.fleet.merge import merge
from tracer.analysis.job.folder import load_job
from tracer.fleet.gather import gather
from tracer.fleet.parts import Parts
from tracer.fleet.processes import Processes
from tracer.fleet.traces import find
from tracer.report.job_page import job_page

WHY = (
    "it is of start 1 of the job, and start 2 is read; to see start 1, move its traces into a folder of "
    "their own"
)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Of three ranks; the second start has two, and a call more."""
    for rank in range(3):
        Rank(rank, 3).calls().write(tmp_path / "job", name=f"rank{rank}.trace")
    for rank in range(2):
        of = Rank(rank, 2, restarts=1).calls().at(10).calls()
        of.write(tmp_path / "job", name=f"rank{rank}.0002.trace")
    return tmp_path / "job"


def test_the_last_start_is_the_job(job: Path) -> None:
    found = load_job(job)
    assert [(Path(part.trace.path).name, part.restarts) for part in found.parts] == [
        ("rank0.0002.trace", 1),
        ("rank1.0002.trace", 1),
    ]
    assert (found.ranks, found.missing, found.rankless) == (2, [], ())
    assert {Path(path).name: why for path, why in found.unread.items()} == dict.fromkeys(
        [f"rank{rank}.trace" for rank in range(3)], WHY
    )
    page = job_page(found, "job")
    assert page.startswith("# job: 2 of 2 ranks on `clock")
    assert " ".join(page.split()).count(WHY) == 3


def test_of_a_rank_a_fleet_reads_the_later_start(job: Path, tmp_path: Path) -> None:
    (job / "rank1.0002.trace").rename(job / "rank1.trace.later.trace")  # behind the other one by name
    parts = Parts(tmp_path / "out")
    errors = gather(parts, find([str(job)]), Processes(1)).errors
    assert {Path(path).name: why for path, why in errors.items()} == {"rank0.trace": WHY, "rank1.trace": WHY}
    ranks = merge(parts.all())["ranks"]
    read = ranks.drop_nulls("rank").sort("rank")
    assert [Path(path).name for path in read["trace"]] == ["rank0.0002.trace", "rank1.trace.later.trace"]
    assert read["ranks"].to_list() == [2, 2]
    unread = {Path(path).name: why for path, why in ranks.drop_nulls("error").select("trace", "error").rows()}
    assert unread == dict.fromkeys(
        [f"rank{rank}.trace" for rank in range(3)], WHY
    )  # of rank 2 none came later


def test_ranks_of_two_starts_in_one_trace(tmp_path: Path) -> None:
    """torchrun itself was recorded: its workers are processes of one trace."""
    one = Rank(0, 2).calls()
    for process, (rank, restarts) in enumerate([(1, 0), (0, 1), (1, 1)], 1):
        one.writer.process(process)
        place = {"rank": rank, "ranks": 2, "host": "clock", "boot": "clock"}
        one.writer.json(process, "rank", place | ({"restarts": restarts} if restarts else {}))
    found = load_job(one.write(tmp_path, name="all.trace"))
    assert [(part.rank, part.process) for part in found.parts] == [(0, 2), (1, 3)]
    assert found.unread == {}
