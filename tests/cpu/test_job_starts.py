"""Jobs whose ranks are recorded one by one: torchrun, and what srun and mpirun leave in the environment."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from launching import Launcher

import tracer

RANK = """\
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
x = torch.full((3,), float(dist.get_rank()))
dist.all_reduce(x)
print(x.tolist())
dist.destroy_process_group()
"""

AGAIN = """\
import os, sys, time
import torch
import torch.distributed as dist
x = torch.ones(4) + 1
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if os.environ["RANK"] == "1":
        sys.exit(3)
    time.sleep(300)
dist.init_process_group("gloo")
dist.all_reduce(x)
dist.destroy_process_group()
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.trace"))


def torchrun(launcher: Launcher, *options: str) -> list[str]:
    record = [str(launcher.tracer), "record", *options, "script.py"]
    job = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = launcher.run([*job, "--no-python", *record])
    assert run.status == 0, run.err
    assert run.out == "[1.0, 1.0, 1.0]\n" * 2
    return re.findall(r"\S+\.trace", run.said)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("-o", "job/"), ["rank0.trace", "rank1.trace"]),
        (("-o", "run.trace"), ["run.rank0.trace", "run.rank1.trace"]),
        (("-o", "of_%r.trace", "--force"), ["of_0.trace", "of_1.trace"]),
        ((), ["script.rank0.0001.trace", "script.rank1.0001.trace"]),
    ],
)
def test_each_rank_that_torchrun_starts_has_its_file(
    launcher: Launcher, options: tuple[str, ...], expected: list[str]
) -> None:
    launcher.write(RANK)
    said = torchrun(launcher, *options)
    folder = launcher.folder / ("job" if "job/" in options else "")
    assert names(folder) == expected
    assert {Path(path).name for path in said} == set(expected)
    for name in expected:
        trace = tracer.load(folder / name)
        assert trace.certificate["verdict"].startswith("complete: ")
        assert "c10d::allreduce_" in set(trace.hops["op"].cast(str))


def test_a_rank_does_not_write_over_an_older_trace(launcher: Launcher) -> None:
    launcher.write("import torch; torch.ones(1)")
    rank = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}
    (launcher.folder / "job").mkdir()
    record = [str(launcher.tracer), "record", "-o", "job/", "script.py"]
    assert launcher.run(record, extra=rank).status == 0
    again = launcher.run(record, extra=rank)
    assert again.status == 2
    assert again.said.startswith("tracer: job/rank1.trace already exists;")


def test_a_process_alone_is_numbered_in_the_folder(launcher: Launcher) -> None:
    launcher.write("import torch; torch.ones(1)")
    for _ in range(2):
        run = launcher.record("-o", "job/", "script.py")
        assert run.status == 0
    assert "job/script.0002.trace" in run.said
    assert names(launcher.folder / "job") == ["script.0001.trace", "script.0002.trace"]


def test_the_switch_knows_ranks(launcher: Launcher) -> None:
    launcher.write("import torch, os; os.chdir('/'); torch.ones(1)")
    for rank in ("0", "1"):
        of_rank = {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": "2"}
        for switch in ("job.%r.trace", "run.trace", "%p.trace"):
            run = launcher.python("script.py", extra={"TRACER": switch, **of_rank})
            assert (run.status, run.own_err) == (0, "")
            assert ".trace" in run.said
    found = set(names(launcher.folder))
    assert found > {"job.0.trace", "job.1.trace", "run.rank0.trace", "run.rank1.trace"}
    assert len(found) == 6


def test_a_rank_code_without_a_rank_is_refused(launcher: Launcher) -> None:
    launcher.write("print('ran')")
    run = launcher.record("-o", "%r.trace", "script.py")
    assert (run.status, run.out) == (2, "")
    assert "this process has no rank" in run.said


def test_codes_are_those_of_the_name_and_not_of_the_folder_around(launcher: Launcher) -> None:
    (launcher.folder / "%p").mkdir()
    launcher.write("import os, torch\ntorch.ones(1)\n", "%p/script.py")
    command = ["sh", "-c", 'cd %p && exec "$0" script.py', sys.executable]
    run = launcher.run(command, extra={"TRACER": "run.trace"})
    assert (run.status, run.own_err) == (0, "")
    assert names(launcher.folder / "%p") == ["run.trace"]


@pytest.mark.parametrize("absolute", [True, False])
def test_the_switch_where_the_folder_is_gone(launcher: Launcher, absolute: bool) -> None:
    """A program starts there as without us. (torch itself finds no oneMKL there.)"""
    script = str(launcher.write("print('ran')\n"))
    command = ["sh", "-c", 'cd gone && rmdir ../gone && exec "$0" "$1"', sys.executable, script]
    runs = []
    for extra in ({}, {"TRACER": str(launcher.folder / "run.trace") if absolute else "run.trace"}):
        (launcher.folder / "gone").mkdir()
        runs.append(launcher.run(command, extra=extra))
    assert runs[0] == runs[1]
    assert runs[1].out == "ran\n"


def test_a_job_that_is_started_again_is_that_of_its_last_start(launcher: Launcher) -> None:
    launcher.write(AGAIN)
    job = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    record = [str(launcher.tracer), "record", "-o", "job/", "script.py"]
    run = launcher.run([sys.executable, *job, "--no-python", *record])
    assert run.status == 0, run.err
    assert {"rank1.trace", "rank0.0002.trace", "rank1.0002.trace"} <= set(names(launcher.folder / "job"))
    report = launcher.run([str(launcher.tracer), "report", "job/"])
    assert report.out.startswith("# job: 2 of 2 ranks on ")
    (row,) = [row for row in report.out.splitlines() if "`c10d::allreduce_`" in row and "script.py" in row]
    assert re.search(r"\| +2 \| +1 \|", row)  # of two ranks, once
    assert "rank1.trace`: it is of start 1 of the job, and start 2 is read" in " ".join(report.out.split())
