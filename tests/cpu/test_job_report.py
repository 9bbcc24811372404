"""Ranks side by side: of a folder with a trace a rank, and of one trace with all ranks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import polars as pl
import pytest
from launching import Launcher
from stored import recorded_once

import tracer

TRAIN = """\
import sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for i in range(12):
    x = torch.randn(16, 64)
    if rank == 1:
        time.sleep(0.1)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if rank == 0 and "parted" in sys.argv:
    loss.neg()
dist.destroy_process_group()
"""
GROUPS = """\
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
x = torch.ones(4)
for i in range(6):
    if rank >= 2:
        time.sleep(0.1)
    if rank == 2:
        time.sleep(0.02)
    dist.all_reduce(x, group=pairs[rank // 2])
    x.div_(2)
print(x[0].item())
dist.destroy_process_group()
"""
COMPILED = """\
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

dist.init_process_group("gloo")


@torch.compile
def total(x):
    reduced = functional.all_reduce(x * 2, "sum", dist.group.WORLD)
    return functional.all_gather_tensor(reduced, 0, dist.group.WORLD).sum()


for _ in range(3):
    total(torch.ones(4))
dist.destroy_process_group()
"""
BEHIND = """\
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(4)
for i in range(8):
    x = x / 2
    work = dist.{collective}, async_op={asynchronous})
    if dist.get_rank() == 1:
        time.sleep(0.05)
    if work:
        work.wait()
dist.destroy_process_group()
"""
CAUSE = "`script.py:13 -> script.py:16` (`loss = model(x).square().mean()`)"


def record(launcher: Launcher, ranks: int, *arguments: str) -> None:
    run = launcher.job(ranks, "--force", "-o", "job/", *arguments)
    assert run.status == 0, run.err


def make(launcher: Launcher) -> None:
    launcher.write(TRAIN)
    record(launcher, 2, "script.py", "parted")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return recorded_once(tmp_path_factory.mktemp("job"), make)


@pytest.mark.promise("record", "report", "docs/jobs.md")
def test_the_report_of_a_folder_names_the_late_rank_and_its_line(recorded: Launcher) -> None:
    run = recorded.run([str(recorded.tracer), "report", "job/"])
    assert run.status == 0, run.err
    lines = run.out.splitlines()
    assert lines[0].startswith("# job: 2 of 2 ranks on ")
    head = next(line for line in lines if line.startswith("**Rank 1 was last** in "))
    assert f": {CAUSE} took " in head
    (late,) = (line for line in lines if "| 1    |" in line and " of " in line and CAUSE in line)
    assert "ms" in late
    (parted,) = (line for line in lines if "| 1    |" in line and "nothing more" in line)
    assert "`aten::neg [AutogradCPU]" in parted
    assert any("| `c10d::allreduce_` | `script.py:18`" in line for line in lines)


def test_the_tables_of_a_job(recorded: Launcher) -> None:
    loaded = tracer.load_job(recorded.folder / "job")
    assert [part.rank for part in loaded.parts] == [0, 1]
    assert loaded.missing == []
    late = loaded.collectives.filter(pl.col("late_ns") > 50_000_000)
    assert len(late) >= 10
    steady = late.filter("steady")
    assert len(steady) >= 5, "a busy machine can make the first steps differ"
    assert set(steady["last"]) == {1}
    assert (loaded.clocks["how"] == "exact").all()
    first = loaded.lateness[0]
    folder = recorded.made_in
    assert (first.rank, first.before, first.after) == (1, f"{folder}/script.py:13", f"{folder}/script.py:16")
    assert first.excess_ns == pytest.approx(100e6 * first.times, rel=0.5)


def test_output_and_what_does_not_apply(recorded: Launcher) -> None:
    command = [str(recorded.tracer), "report", "job", "-o", "job.md"]
    assert recorded.run(command).status == 0
    assert "## Who came last" in (recorded.folder / "job.md").read_text()
    again = recorded.run(command)
    assert (again.status, again.out) == (2, "")
    html = recorded.run([str(recorded.tracer), "report", "job", "--html"])
    assert (html.status, html.said) == (0, "tracer: wrote job.html\n")
    assert "Ranks side by side</h2>" in (recorded.folder / "job.html").read_text()
    part = recorded.run([str(recorded.tracer), "report", "job", "--section", "ops"])
    assert part.status == 2
    assert part.said == (
        "tracer: job is a folder: only -o, --html, --force, --rows and --json apply to the report of a job; "
        "for the rest, give the trace of one rank\n"
    )


def test_the_tree_of_a_rank(recorded: Launcher) -> None:
    tree = [str(recorded.tracer), "tree", "job", "--op", "neg"]
    assert "aten::neg" in recorded.run([*tree, "--rank", "0"]).out
    assert recorded.run([*tree, "--rank", "1"]).status == 1
    none = recorded.run([*tree, "--rank", "2"])
    assert (none.status, none.said) == (
        2,
        "tracer: no trace in job is named after rank 2; there are ranks 0, 1\n",
    )
    without = recorded.run(tree)
    assert without.said == "tracer: job is a folder of 2 traces; choose one with --rank N, or give a file\n"


def test_a_rank_that_is_missing_is_said(recorded: Launcher, tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "rank1.trace").write_bytes((recorded.folder / "job" / "rank1.trace").read_bytes())
    run = recorded.run([str(recorded.tracer), "report", str(tmp_path / "part")])
    assert run.status == 0, run.err
    assert "1 of 2 ranks" in run.out
    assert "No trace here is of rank 0." in run.out
    assert "No collective of two ranks or more is in these traces." in run.out


def test_one_trace_with_all_ranks_has_the_same_section(launcher: Launcher) -> None:
    launcher.write(TRAIN)
    module = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "script.py"]
    run = launcher.record("-o", "all.trace", *module)
    assert run.status == 0, run.err
    processes = tracer.load(launcher.folder / "all.trace").processes
    assert sorted(processes["rank"].drop_nulls()) == [0, 1]
    report = launcher.run([str(launcher.tracer), "report", "all.trace"]).out
    assert "## Ranks of the job" in report
    assert f": {CAUSE} took " in report


@pytest.mark.parametrize(
    ("collective", "asynchronous"),
    [
        ("all_reduce(x", False),
        ("all_reduce(x", True),
        ("all_gather([torch.empty(4), torch.empty(4)], x", False),  # gloo's threads call ops
    ],
)
def test_a_rank_that_sleeps_behind_a_collective(
    launcher: Launcher, collective: str, asynchronous: bool
) -> None:
    """The other rank waits in the same gap. Of a call that does not wait at once nothing is certain."""
    launcher.write(BEHIND.format(collective=collective, asynchronous=asynchronous))
    record(launcher, 2, "script.py")
    loaded = tracer.load_job(launcher.folder / "job")
    assert set(loaded.calls["blocks"]) == {not asynchronous}
    report = launcher.run([str(launcher.tracer), "report", "job/"]).out
    head = next(line for line in report.splitlines() if line.startswith("**Rank 1 was last** in 7 of 7 "))
    cause = "`script.py:9 -> script.py:8` (`x = x / 2`) took "
    assert (cause in head) != asynchronous, head


def test_groups_are_matched_each_on_its_own(launcher: Launcher) -> None:
    """Ranks 2 and 3 are slower than 0 and 1, but only rank 2 keeps a rank of its group waiting."""
    launcher.write(GROUPS)
    record(launcher, 4, "script.py")
    loaded = tracer.load_job(launcher.folder / "job")
    of_pairs = loaded.collectives.filter(pl.col("op") == "c10d::allreduce_")
    assert of_pairs["ranks"].unique().to_list() == [2]
    assert of_pairs["group"].n_unique() == 2
    late = of_pairs.filter((pl.col("number") > 0) & (pl.col("late_ns") > 10_000_000))
    assert set(late["last"]) == {2}
    assert len(late) == 5


@pytest.mark.slow
def test_collectives_in_compiled_code_are_matched(launcher: Launcher) -> None:
    launcher.write(COMPILED)
    assert launcher.job(2, "-o", "job/", "script.py").status == 0
    found = tracer.load_job(launcher.folder / "job").collectives
    called = [("c10d::allreduce_", 2, 16), ("c10d::allgather_into_tensor_coalesced_", 2, 32)]
    assert found.select("op", "ranks", "bytes").rows() == called * 3
    assert {Path(line).name for line in found["source"]} == {"script.py:15"}


def test_the_memory_of_each_rank(launcher: Launcher) -> None:
    more = "kept = [torch.zeros(1 << 20)] if rank == 1 else []\n"
    launcher.write(TRAIN.replace("for i in range(12):", more + "for i in range(12):"))
    record(launcher, 2, "--memory", "script.py")
    report = launcher.run([str(launcher.tracer), "report", "job/"]).out
    (text,) = (part for part in report.split("\n## ") if part.startswith("Memory\n"))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "| cpu" in line]
    rows.sort(key=lambda row: row[3])
    assert [row[3:5] for row in rows] == [["0", "cpu"], ["1", "cpu"]]
    assert rows[1][6].startswith("`script.py:12`: 4.0 MiB"), rows
    sizes = [cell[-3:] for row in rows for cell in row[:2]]  # at the peak and at the end, of each rank
    assert sizes == ["KiB", "KiB", "MiB", "MiB"], rows


def test_a_dump_beside_its_recording_and_a_trace_that_cannot_be_read(
    recorded: Launcher, tmp_path: Path
) -> None:
    for rank in (0, 1):
        shutil.copy(recorded.folder / "job" / f"rank{rank}.trace", tmp_path)
        shutil.copy(tmp_path / f"rank{rank}.trace", tmp_path / f"rank{rank}.dump0001.trace")
    whole = recorded.run([str(recorded.tracer), "report", str(tmp_path)])
    assert whole.status == 0, whole.err
    assert "2 of 2 ranks" in whole.out
    fleet = recorded.run([str(recorded.tracer), "fleet", str(tmp_path), "-o", str(tmp_path / "fleet")])
    assert "2 traces read, 0 could not be read" in fleet.err, fleet.err
    (tmp_path / "rank1.trace").write_bytes(b"")
    rest = recorded.run([str(recorded.tracer), "report", str(tmp_path)])
    assert rest.status == 0, rest.err
    assert "## Not read" in rest.out
    assert "rank1.trace`: is empty" in rest.out
    assert "2 of 2 ranks" in rest.out  # by its dump
    (tmp_path / "rank1.dump0001.trace").unlink()
    rest = recorded.run([str(recorded.tracer), "report", str(tmp_path)])
    assert "No trace here is of rank 1." in rest.out
    os.truncate(tmp_path / "rank0.trace", 40000)  # before its first signature
    cut = recorded.run([str(recorded.tracer), "report", str(tmp_path)])
    assert (cut.status, cut.err) == (0, ""), cut.err


def test_a_job_without_shapes(launcher: Launcher) -> None:
    launcher.write(TRAIN)
    record(launcher, 2, "--no-shapes", "script.py")
    report = launcher.run([str(launcher.tracer), "report", "job/"])
    assert report.status == 0, report.err
    assert (
        " collective calls cannot be matched across ranks: their process groups were not recorded"
        in report.out
    )
