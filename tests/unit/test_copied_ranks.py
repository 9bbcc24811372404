"""benchmarks/fleet.py: the copies of a recording are of different ranks of one job."""

from __future__ import annotations

import sys
from pathlib import Path

from rank_traces import GROUP, add_rank
from synthetic import TraceWriter

from tracer.analysis.job.folder import load_job

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))


def test_each_copy_says_its_rank_wherever_the_recording_says_one(tmp_path: Path) -> None:
    """A rank is written at the begin of a recording, and again with each process group that it joins."""
    from fleet import Template

    writer = TraceWriter(header={"start_ns": 5000, "last_ns": 6000})
    add_rank(writer, 0, 0, 2)
    groups = {"0": {"ranks": [0, 1], "description": "default_pg"}}
    writer.json(0, "rank", {"rank": 0, "ranks": 2, "host": "a", "boot": "clock", "groups": groups})
    template = Template(writer.write(tmp_path / "base.trace"))
    (tmp_path / "job").mkdir()
    for rank in range(3):
        template.write(tmp_path / "job" / f"rank{rank}.trace", rank, 3)
    job = load_job(tmp_path / "job")
    assert [part.rank for part in job.parts] == [0, 1, 2]
    assert [part.ranks for part in job.parts] == [3, 3, 3]
    assert job.unread == {}
    assert job.parts[2].trace.process_groups["ranks"].to_list() == [[0, 1, 2]]
    assert job.calls["group"].unique().to_list() == [GROUP.split('"')[3]]
