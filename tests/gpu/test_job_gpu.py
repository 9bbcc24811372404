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


def test_calls_of_nccl_have_their_arguments(recorded: Launcher) -> None:
    job = tracer.load_job(recorded.folder / "job")
    for part in job.parts:
        trace = part.trace
        mine = trace.processes.filter(pl.col("rank") == part.rank)["process"]
        calls = trace.library_calls.filter(
            (pl.col("name").cast(pl.String) == "ncclAllReduce") & pl.col("process").is_in(mine.implode())
        )
        reduced = job.calls.filter((pl.col("rank") == part.rank) & (pl.col("op") == "c10d::allreduce_"))
        assert len(calls) == len(reduced) >= 30
        assert calls["result"].unique().to_list() == [0]
        asked = trace.arguments("ncclAllReduce")
        assert asked["datatype"].unique().to_list() == ["ncclFloat32"]
        assert (asked["count"] * 4).to_list() == reduced["bytes"].to_list()
        assert asked["comm"].n_unique() == 1
        hops = trace.hops.filter(pl.col("id").is_in(calls["hop"].implode()))
        assert hops["op"].cast(pl.String).str.starts_with("c10d::allreduce_").all()
        assert trace.certificate["cuda"]["library_hooks"]["ncclGroupEnd"] is True
        ends = trace.library_calls.filter(pl.col("name").cast(pl.String) == "ncclGroupEnd")
        launches = trace.gpu_activities.filter(pl.col("name").cast(pl.String).str.contains("(?i)nccl"))
        made = trace.api_calls.filter(pl.col("id").is_in(launches["api_call"].implode()))
        assert set(made["library_call"].cast(pl.String)) <= {"ncclAllReduce", "ncclGroupEnd", "ncclBroadcast"}
        assert not ends.is_empty()
