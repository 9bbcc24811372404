"""Ranks that wait for their GPUs, and the one whose kernel does not end."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from rank_traces import Rank

from tracer.analysis.fleet.merge import merge
from tracer.analysis.job.folder import load_job
from tracer.fleet.gather import gather
from tracer.fleet.parts import Parts
from tracer.fleet.processes import Processes
from tracer.fleet.traces import find
from tracer.report.fleet_page import in_words
from tracer.report.job_page import job_page
from tracer.report.job_tables import gpu_waits_in_words


def test_ranks_that_wait_for_their_gpus(tmp_path: Path) -> None:
    """Both called the same collective; rank 1 launched a kernel of line 4 before it, which does not end."""
    for rank in range(2):
        of = Rank(rank, 2).launches(1, 2)
        if rank == 1:
            of.launches(3, 4, line=4)
        of.reduces(5, 6).at(10)
        of.writer.function(2, "cudaStreamSynchronize")
        of.lane.enter(0, source=3)
        of.lane.api_enter(2)
        of.write(tmp_path / "job", dumped=2010)
    job = load_job(tmp_path / "job")
    said = (
        "**Ranks 0, 1 have waited for the GPU** in `aten::mm` of `/work/train.py:3` for 2.0 s. Rank 1 alone "
        "launched kernels in `/work/train.py:4` since it waited for its GPU before: probably one of them "
        "does not end."
    )
    assert job_page(job, "job").split("\n\n")[2] == said
    parts = Parts(tmp_path / "out")
    assert gather(parts, find([str(tmp_path / "job")]), Processes(1)).errors == {}
    assert in_words(merge(parts.all()))[0] == said


def test_a_strangers_table_of_ranks_that_wait_says_no_nonsense() -> None:
    columns = {"rank": pl.Int64, "is_in": pl.Boolean, "op": pl.String, "op_line": pl.String}
    schema = columns | {"op_ns": pl.Int64, "dumped_ns": pl.Int64, "launched": pl.List(pl.String)}
    rows = [
        (0, True, "aten::mm", None, 0, 2_000_000_000, [None, "a.py:1"]),
        (None, True, "aten::mm", None, 0, 2_000_000_000, ["a.py:2"]),
        (2, True, None, None, 0, 2_000_000_000, ["a.py:3"]),
    ]
    assert gpu_waits_in_words(pl.DataFrame(rows, schema, orient="row")) == [
        "**Rank 0 has waited for the GPU** in `aten::mm` for 2.0 s."
    ]
