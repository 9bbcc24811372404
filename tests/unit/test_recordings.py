"""Of files of one name: which one is read, if some are broken, or of another recording."""

from __future__ import annotations

import lzma
import os
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
from rank_traces import Rank
from synthetic import TraceWriter

from tracer.analysis.fleet.merge import merge
from tracer.analysis.job.folder import load_job, trace_of_rank
from tracer.analysis.job.recordings import Recording, recordings
from tracer.fleet.gather import Gathered, gather
from tracer.fleet.parts import Parts
from tracer.fleet.processes import Processes
from tracer.fleet.traces import find
from tracer.report.fleet_page import fleet_page, heading, in_words
from tracer.report.job_page import job_page
from tracer.trace.bytes import format as fmt
from tracer.trace.bytes.start import Start

LEFT_OUT = "1 older dump left out, as a later one of the same recording is here."
S = 1_000_000_000


def dump(folder: Path, rank: int, number: int, session: int = 7, pid: int = 100, wall_s: int = 0) -> Path:
    """A dump of a rank that waits in its second collective; of two ranks rank 1 does not reach it."""
    of = Rank(rank, 2).calls()
    if rank == 0:
        of.at(10).calls(line=3, waits=True)
    of.write(folder, dumped=1010)
    trace = folder / f"rank{rank}.trace"
    data = bytearray(trace.read_bytes())
    trace.unlink()
    header = fmt.unpack_file_header(bytes(data))
    header = header._replace(session=session, root_pid=pid, wall_ns=wall_s * S)
    data[: fmt.FILE_HEADER.size] = fmt.FILE_HEADER.pack(*header)
    path = folder / f"rank{rank}.dump{number:04d}.trace"
    path.write_bytes(data)
    return path


def half_dump() -> bytes:
    """A dump whose facts are lost."""
    writer = TraceWriter(header={"flags": 3 | 64})
    writer.process(0)
    writer.hop(0, "aten::mm")
    lane = writer.lane(thread=100)
    lane.enter(0)
    lane.exit()
    return writer.data()


class Both(NamedTuple):
    """What is said of a folder by the report of the job, and by the fleet."""

    page: str
    tables: dict[str, pl.DataFrame]
    gathered: Gathered


def both(folder: Path) -> Both:
    parts = Parts(folder.with_name("out"))
    gathered = gather(parts, find([str(folder)]), Processes(1))
    page = job_page(load_job(folder), "job").replace("\n  ", " ")
    return Both(page, merge(parts.all()), gathered)


BROKEN = {
    "is empty: nothing was recorded to it": b"",
    "is not a trace; give a file that tracer recorded": b"hello",
    "is cut or damaged: the part that says its rank and its host is lost": half_dump(),
}


@pytest.mark.parametrize(("why", "data"), BROKEN.items(), ids=["empty", "text", "half"])
def test_instead_of_a_broken_dump_the_older_one_is_read(tmp_path: Path, why: str, data: bytes) -> None:
    job = tmp_path / "job"
    for rank in range(2):
        dump(job, rank, 3)
        dump(job, rank, 4)
    (job / "rank1.dump0005.trace").write_bytes(data)
    found = both(job)
    assert "**Rank 1 did not reach**" in found.page
    assert f"\n- `{job}/rank1.dump0005.trace`: {why}" in found.page.replace("\\", "")
    assert "No trace here" not in found.page
    assert LEFT_OUT.replace("1 older dump", "2 older dumps") in found.page
    assert (found.gathered.read, list(found.gathered.errors)) == (2, [str(job / "rank1.dump0005.trace")])
    assert found.gathered.errors[str(job / "rank1.dump0005.trace")].startswith(why)
    assert heading(found.tables) == "2 ranks of 1 job on 1 host, 1 trace not read"
    said = in_words(found.tables)
    assert said[0] in found.page
    assert LEFT_OUT.replace("1 older dump", "2 older dumps") in said
    again = gather(Parts(tmp_path / "out"), find([str(job)]), Processes(1))
    assert (again.known, again.read, again.errors) == (2, 0, found.gathered.errors)


def test_half_a_dump_without_an_older_one_is_named(tmp_path: Path) -> None:
    job = tmp_path / "job"
    dump(job, 0, 4)
    (job / "rank1.dump0004.trace").write_bytes(half_dump())
    found = both(job)
    assert f"\n- `{job}/rank1.dump0004.trace`: is cut or damaged" in found.page
    assert "No trace here is of rank 1." in found.page
    assert (found.gathered.read, len(found.gathered.errors)) == (1, 1)
    assert heading(found.tables) == "1 rank of 1 job on 1 host, 1 trace not read"
    assert found.tables["ops"]["ranks"].max() == 1


def test_a_dump_of_another_job_does_not_replace_the_right_one(tmp_path: Path) -> None:
    job = tmp_path / "job"
    for rank in range(2):
        dump(job, rank, 3, session=10 + rank, pid=200 + rank, wall_s=5000)
        dump(job, rank, 4, session=10 + rank, pid=200 + rank, wall_s=5000)
    other = dump(job, 0, 8, session=3, pid=99, wall_s=4000)
    found = both(job)
    why = (
        "is of another recording (process 99, begun 1970-01-01 01:06:40 UTC) than rank0.dump0004.trace "
        "(process 200, begun 1970-01-01 01:23:20 UTC), whose recording is used; keep one job a folder"
    )
    assert f"\n- `{other}`: {why}" in found.page
    assert found.gathered.errors == {str(other): why}
    assert "**Rank 1 did not reach**" in found.page
    assert "2 older dumps left out, as a later one of the same recording is here." in found.page
    assert in_words(found.tables)[0] in found.page
    assert "other recording" in fleet_page(found.tables).replace("\n", " ")


def test_files_that_are_no_files_are_named_by_both(tmp_path: Path) -> None:
    job = tmp_path / "job"
    for rank in range(2):
        dump(job, rank, 4)
    (job / "dir.trace").mkdir()
    os.mkfifo(job / "fifo.trace")
    (job / "self.trace").symlink_to("self.trace")
    (job / "gone.trace").symlink_to("nothing")
    found = both(job)
    whys = {
        "dir": "it is a folder",
        "fifo": "it is not a regular file",
        "self": "Too many levels of symbolic links",
    }
    for name, why in whys.items():
        assert f"\n- `{job}/{name}.trace`: cannot read it: {why}\n" in found.page
        assert found.gathered.errors[str(job / f"{name}.trace")] == f"cannot read it: {why}"
    assert f"\n- `{job}/gone.trace`: no such file\n" in found.page
    assert found.gathered.errors[str(job / "gone.trace")] == "no such file"
    assert (found.gathered.read, len(found.gathered.errors)) == (2, 4)


def test_an_intact_trace_without_a_rank_is_named(tmp_path: Path) -> None:
    dump(tmp_path / "job", 0, 4)
    writer = TraceWriter()
    writer.process(0)
    writer.write(tmp_path / "job" / "single.trace")
    page = job_page(load_job(tmp_path / "job"), "job")
    assert f"`{tmp_path}/job/single.trace` does not say which rank it is of." in page


def test_the_trace_of_a_rank_is_not_a_broken_one(tmp_path: Path) -> None:
    right = dump(tmp_path, 1, 4)
    (tmp_path / "rank1.dump0005.trace").touch()
    assert trace_of_rank(tmp_path, 1) == right


def test_packed_dumps_are_of_their_recording_too(tmp_path: Path) -> None:
    for rank in range(2):
        for number in range(3, 5):
            plain = dump(tmp_path / "job", rank, number, session=10 + rank)
            plain.with_name(f"{plain.name}.xz").write_bytes(lzma.compress(plain.read_bytes()))
            plain.unlink()
    job = load_job(tmp_path / "job")
    assert (len(job.parts), job.unread, list(job.left_out.values())) == (2, {}, [1, 1])


def test_dumps_at_a_url_are_chosen_in_the_same_way(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    job = tmp_path / "job"
    for rank in range(2):
        dump(job, rank, 4, session=10 + rank, wall_s=5000)
    dump(job, 0, 8, session=3, wall_s=4000)
    (job / "rank1.dump0005.trace").write_bytes(half_dump())
    files = fsspec.filesystem("memory")
    for path in job.iterdir():
        files.pipe_file(f"/recordings/job/{path.name}", path.read_bytes())
    here = gather(Parts(tmp_path / "here"), find([str(job)]), Processes(1))
    there = gather(Parts(tmp_path / "there"), find(["memory://recordings/job"]), Processes(1))
    assert here.read == there.read == 2
    assert [*here.errors.values()] == [*there.errors.values()]
    files.rm("/recordings", recursive=True)


def chosen(starts: dict[str, Start | None]) -> list[Recording]:
    return recordings(starts, starts.get)


def test_dumps_beside_their_recording_are_left_out() -> None:
    one = Start(1, 1, 1, 1)
    found = chosen(
        {
            "job/rank0.dump0001.trace": one,
            "job/rank0.trace": one,
            "job/rank1.dump0002.trace": one,
            "job/rank1.dump0012.trace": one,
            "job/rank2.dump0001.trace.xz": None,
            "job/rank2.trace.xz": None,
        }
    )
    assert [of.paths[0] for of in found] == [
        "job/rank0.trace",
        "job/rank1.dump0012.trace",
        "job/rank2.trace.xz",
    ]
    assert [of.left_out(of.paths[0]) for of in found] == [(1, 0), (0, 1), (1, 0)]
    assert not any(of.mixed for of in found)


def test_of_two_whole_jobs_in_a_folder_the_newer_one_is_used() -> None:
    starts: dict[str, Start | None] = {}
    for rank in range(3):
        starts[f"rank{rank}.dump0001.trace"] = Start(rank, rank, 1, 100 * S + rank)
        starts[f"rank{rank}.dump0002.trace"] = Start(9 + rank, 9 + rank, 1, 200 * S + rank * S // 9)
    found = chosen(starts)
    assert [of.paths for of in found] == [(f"rank{rank}.dump0002.trace",) for rank in range(3)]
    assert [of.mixed[0][0] for of in found] == [f"rank{rank}.dump0001.trace" for rank in range(3)]


def test_the_older_job_is_used_if_only_it_has_all_ranks() -> None:
    starts: dict[str, Start | None] = {
        "rank0.dump0001.trace": Start(1, 1, 1, 100 * S),
        "rank0.trace": Start(2, 2, 2, 200 * S),
        "rank1.dump0001.trace": Start(3, 3, 3, 101 * S),
    }
    assert [of.paths for of in chosen(starts)] == [("rank0.dump0001.trace",), ("rank1.dump0001.trace",)]
