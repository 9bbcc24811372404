"""Gathering parts of many traces: each once, in any order, and past those that cannot be read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from rank_traces import add_rank, write_rank
from synthetic import TraceWriter

from tracer.analysis.fleet.merge import merge
from tracer.fleet.fleet_errors import FleetError
from tracer.fleet.gather import Gathered, gather
from tracer.fleet.parts import FORMAT, Parts
from tracer.fleet.processes import Processes
from tracer.fleet.traces import TraceFile, find, on_this_machine
from tracer.fleet.work import Part, Task, analyse


class Backwards:
    """An engine whose last task is done first."""

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, list[Part]]]:
        for task in reversed(list(tasks)):
            yield task, analyse(task)


def run(out: Path, *paths: Path, engine: object = None, said: list[str] | None = None) -> Gathered:
    say = said.append if said is not None else lambda _: None
    traces = find([str(path) for path in paths])
    return gather(Parts(out), traces, engine or Processes(1), say=say)  # type: ignore[arg-type]


def ranks(out: Path) -> list[tuple[int | None, str]]:
    return [(part.rank, Path(part.trace).name) for part in Parts(out).all() if part.error is None]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    for rank in range(3):
        write_rank(tmp_path / "job" / f"rank{rank}.trace", rank, 3)
    return tmp_path / "job"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_parts_are_in_folders_by_job_host_and_rank(job: Path, out: Path) -> None:
    assert run(out, job) == Gathered(read=3)
    folders = sorted(str(path.relative_to(out)) for path in out.glob("part/*/*/*"))
    assert folders == [f"part/job=job/host=a/rank={rank}" for rank in range(3)]
    tables = "ranks ops kernels groups calls lines messages steps memory overlap certificates"
    found = {path.name for path in (out / folders[0]).iterdir()}
    assert found == {"about.json", *(f"{name}.parquet" for name in tables.split())}


def test_a_trace_that_cannot_be_read_is_one_line_and_one_row(job: Path, out: Path) -> None:
    (job / "rank1.trace").write_bytes(b"junk, and more than a few bytes of it")
    said: list[str] = []
    found = run(out, job, said=said)
    assert (found.read, list(found.errors)) == (2, [str(job / "rank1.trace")])
    (line,) = said
    assert line.startswith(f"{job}/rank1.trace: is not a trace; ")
    assert "junk" not in line  # a stranger's secret
    assert ranks(out) == [(0, "rank0.trace"), (2, "rank2.trace")]
    (unread,) = (part for part in Parts(out).all() if part.error)
    assert unread.table("ranks").select("trace", "complete").row(0) == (str(job / "rank1.trace"), False)
    write_rank(job / "rank1.trace", 1, 3)
    assert run(out, job) == Gathered(read=1, known=2)
    assert [part.error for part in Parts(out).all()] == [None] * 3


def test_what_was_read_is_not_read_again_but_for_what_changed(job: Path, out: Path) -> None:
    run(out, job)
    assert run(out, job) == Gathered(known=3)
    os.utime(job / "rank2.trace", ns=(1, 1))
    assert run(out, job) == Gathered(read=1, known=2)
    next(out.glob("part/job=job/host=a/rank=0")).rename(out / "elsewhere")
    assert run(out, job) == Gathered(read=1, known=2)


def test_parts_of_another_version_are_made_again(job: Path, out: Path) -> None:
    run(out, job)
    about = out / "part/job=job/host=a/rank=1/about.json"
    about.write_text(about.read_text().replace(f'"format": {FORMAT}', '"format": 0'))
    assert run(out, job) == Gathered(read=1, known=2)


def test_parts_stay_when_their_traces_are_deleted(job: Path, out: Path) -> None:
    for rank in range(3):
        run(out, job / f"rank{rank}.trace")
        (job / f"rank{rank}.trace").unlink()
    assert [rank for rank, _ in ranks(out)] == [0, 1, 2]


@pytest.mark.parametrize("engine", [Processes(1), Backwards()])
def test_of_two_traces_of_a_rank_the_first_by_path_is_used_in_any_order(
    job: Path, out: Path, engine: object
) -> None:
    write_rank(job / "rank1.0002.trace", 1, 3)
    write_rank(job / "z.trace", 1, 3, host="b")
    said: list[str] = []
    found = run(out, job, engine=engine, said=said)
    assert ranks(out) == [(0, "rank0.trace"), (1, "rank1.0002.trace"), (2, "rank2.trace")]
    used = f"is in {job}/rank1.0002.trace too, which is used; keep one job a folder"
    lines = [f"{job}/{name}: rank 1 of job job {used}" for name in ("rank1.trace", "z.trace")]
    assert (found.read, sorted(found.errors)) == (3, [f"{job}/rank1.trace", f"{job}/z.trace"])
    if engine.__class__ is Processes:
        assert said == lines


def test_a_rank_that_was_recorded_again_replaces_the_old_one_which_is_said(job: Path, out: Path) -> None:
    run(out, job)
    again = write_rank(job.parent / "again" / "job" / "new.trace", 1, 3, host="b")
    said: list[str] = []
    assert run(out, again, said=said) == Gathered(read=1)
    assert said == [f"rank 1 of job job is now that of {again}, not of {job}/rank1.trace"]
    assert ranks(out) == [(0, "rank0.trace"), (1, "new.trace"), (2, "rank2.trace")]


def test_a_launcher_s_trace_has_a_part_for_each_rank(out: Path, tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process(0)
    for process, rank in ((1, 1), (2, 0)):
        add_rank(writer, process, rank)
    (tmp_path / "job").mkdir()
    writer.write(tmp_path / "job" / "all.trace")
    assert run(out, tmp_path / "job") == Gathered(read=1)
    assert ranks(out) == [(0, "all.trace"), (1, "all.trace")]
    assert run(out, tmp_path / "job") == Gathered(known=1)


def test_traces_without_a_rank_are_all_kept(out: Path, tmp_path: Path) -> None:
    for folder in ("a/job", "b/job"):
        write_rank(tmp_path / folder / "run.trace", None)
    traces = find([str(tmp_path)], job="both")
    assert gather(Parts(out), traces, Processes(1)) == Gathered(read=2)
    assert ranks(out) == [(None, "run.trace")] * 2


def test_names_of_jobs_and_hosts_are_one_folder_each(out: Path, tmp_path: Path) -> None:
    trace = write_rank(tmp_path / "x" / "r.trace", 0, host="../a=b/c")
    traces = find([str(trace)], job="..")
    gather(Parts(out), traces, Processes(1))
    (part,) = Parts(out).all()
    assert str(part.folder.relative_to(out)) == "part/job=%2E%2E/host=..%2Fa%3Db%2Fc/rank=0"
    assert (part.job, part.host) == ("..", "../a=b/c")


def test_traces_are_found_in_folders_and_below(job: Path, tmp_path: Path) -> None:
    write_rank(tmp_path / "other" / "job" / "x.trace.xz")
    (tmp_path / "other" / "job" / "x.trace.md").touch()
    found = find([str(tmp_path), str(job / "rank0.trace")])
    assert [(trace.name, trace.job) for trace in found] == [
        ("rank0.trace", f"{tmp_path.name}/job"),
        ("rank1.trace", f"{tmp_path.name}/job"),
        ("rank2.trace", f"{tmp_path.name}/job"),
        ("x.trace.xz", "other/job"),
    ]
    assert {trace.job for trace in find([str(job)])} == {"job"}


def test_what_cannot_be_found(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="nowhere does not exist; give traces, folders of traces, or URLs"):
        find([str(tmp_path / "nowhere")])
    with pytest.raises(FleetError, match=r"has no \*\.trace; record one a rank into it"):
        find([str(tmp_path)])


@pytest.fixture
def remote(job: Path) -> Iterator[str]:
    """A folder of traces in fsspec's file system of this process."""
    fsspec = pytest.importorskip("fsspec", reason="the package fsspec is not installed")
    system = fsspec.filesystem("memory")
    for trace in job.iterdir():
        system.pipe_file(f"/bucket/job/{trace.name}", trace.read_bytes())
    yield "memory://bucket/job"
    system.rm("/bucket", recursive=True)


def test_remote_traces_are_copied_one_by_one_and_their_copies_deleted(
    remote: str, job: Path, out: Path, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    traces = find([remote])
    assert [(trace.name, trace.job) for trace in traces] == [
        (f"rank{rank}.trace", "job") for rank in range(3)
    ]
    left = []
    found = gather(
        Parts(out), traces, Processes(1), str(scratch), done=lambda _: left.extend(scratch.iterdir())
    )
    assert (found, left) == (Gathered(read=3), [])
    assert gather(Parts(out), find([f"{remote}/*.trace"]), Processes(1)) == Gathered(known=3)
    with on_this_machine(traces[0].path, str(scratch)) as local:
        assert Path(local).read_bytes() == (job / "rank0.trace").read_bytes()
        assert Path(local).parent.parent == scratch


def test_what_is_remote_and_wrong(remote: str) -> None:
    with pytest.raises(FleetError, match="memory://bucket/none does not exist"):
        find(["memory://bucket/none"])
    with pytest.raises(FleetError, match="cannot open nosuch://x: Protocol not known: nosuch"):
        find(["nosuch://x"])
    gone = TraceFile("memory://bucket/gone.trace", "job", "1")
    (part,) = analyse(Task(gone))
    assert part.error is not None
    assert "tracer-fleet" not in part.error


def test_dumps_that_a_shell_names_beside_their_recording_are_left_out(tmp_path: Path) -> None:
    for name in ("rank0.trace", "rank0.dump0001.trace", "rank1.dump0001.trace"):
        (tmp_path / name).touch()
    found = find([str(path) for path in sorted(tmp_path.iterdir())])
    assert [trace.name for trace in found] == ["rank0.trace", "rank1.dump0001.trace"]
    assert [trace.dumps for trace in found] == [1, 0]


def test_a_trace_is_read_again_if_other_dumps_are_left_out(job: Path, out: Path) -> None:
    before = run(out, job)
    (job / "rank0.dump0001.trace").touch()
    (job / "rank0.dump0002.trace").touch()
    after = run(out, job)
    assert (before.read, after.read, after.known) == (3, 1, 2)
    ranks = merge(Parts(out).all())["ranks"]
    assert ranks["dumps_left_out"].to_list() == [2, 0, 0]
