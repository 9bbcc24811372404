"""A job on two GPUs whose rank 1 loads its batches 5 ms too late."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import polars as pl
import pytest
import torch
from launching import Launcher

import tracer

EXAMPLE = Path(__file__).parents[2] / "examples" / "ddp.py"

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    launcher = Launcher(tmp_path_factory.mktemp("job"))
    shutil.copy(EXAMPLE, launcher.folder / "ddp.py")
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = launcher.run([*run, "--no-python", str(launcher.tracer), "record", "-o", "job/", "ddp.py"])
    assert done.status == 0, done.err
    return launcher


def test_the_report_names_the_late_rank_the_line_and_the_cause(recorded: Launcher) -> None:
    text = recorded.run([str(recorded.tracer), "report", "job"]).out
    print(text)
    head = next(line for line in text.splitlines() if line.startswith("**Rank 1 was last** in "))
    job = tracer.load_job(recorded.folder / "job")
    first = job.lateness[0]
    assert (first.rank, first.op) == (1, None)
    lines = (recorded.folder / "ddp.py").read_text().splitlines()
    made = next(n for n, line in enumerate(lines, 1) if "return torch.randn" in line)
    assert first.after == f"{recorded.folder}/ddp.py:{made}"
    assert f"-> ddp.py:{made}`" in head
    steady = job.parts[1].trace.steps.filter(pl.col("phase") == "steady")
    assert 4e6 < first.excess_ns / len(steady) < 8e6


def test_collectives_are_those_of_nccl(recorded: Launcher) -> None:
    job = tracer.load_job(recorded.folder / "job")
    reduced = job.collectives.filter(pl.col("op") == "c10d::allreduce_")
    assert len(reduced) >= 30
    assert reduced["on_gpu"].all()
    assert (reduced["transfer_ns"] > 0).all()
    assert reduced["bytes"].max() > 1_000_000
    for part in job.parts:
        assert part.trace.certificate["verdict"].startswith("complete: "), part.trace.certificate["verdict"]


def test_communication_beside_computing(recorded: Launcher) -> None:
    text = recorded.run([str(recorded.tracer), "report", "job"]).out
    assert "## Communication beside computing" in text
