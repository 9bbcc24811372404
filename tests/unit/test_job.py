"""Collectives matched across ranks, clocks of hosts, and folders of a job."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from rank_traces import Rank

from tracer.analysis.job import JobError, RankPart, job_of
from tracer.analysis.job.clocks import BY_COLLECTIVES, EXACT, UNKNOWN, offsets
from tracer.analysis.job.collectives import CALLS, matched
from tracer.analysis.job.folder import load_job, trace_of_rank, traces_in


def part(rank: int, boot: str = "a", began_ns: int = 1000) -> RankPart:
    return RankPart(rank, 4, f"host-{boot}", boot, began_ns, 0, SimpleNamespace())  # type: ignore[arg-type]


def calls(*rows: dict[str, Any]) -> pl.DataFrame:
    defaults = {"op": "c10d::allreduce_", "group": "0", "number": 0, "bytes": 8, "steady": False}
    return pl.DataFrame([{**dict.fromkeys(CALLS), **defaults, **row} for row in rows], CALLS)


def known(*ranks: int) -> pl.DataFrame:
    return pl.DataFrame(
        [(rank, 0) for rank in ranks], {"rank": pl.Int64, "offset_ns": pl.Int64}, orient="row"
    )


def test_who_came_last_and_by_how_much() -> None:
    table = matched(
        calls(
            {"rank": 0, "start_ns": 100},
            {"rank": 1, "start_ns": 700, "source": "late.py:3"},
            {"rank": 2, "start_ns": 200},
        ),
        known(0, 1, 2),
    )
    (row,) = table.iter_rows(named=True)
    assert (row["last"], row["late_ns"], row["skew_ns"], row["wait_ns"]) == (1, 550, 600, 600 + 500)
    assert (row["ranks"], row["source"], row["transfer_ns"], row["on_gpu"]) == (3, "late.py:3", None, False)


def test_on_the_gpu_the_kernel_counts_and_not_the_call() -> None:
    table = matched(
        calls(
            {"rank": 0, "start_ns": 900, "gpu_start_ns": 1000, "gpu_end_ns": 2100},
            {"rank": 1, "start_ns": 10, "gpu_start_ns": 1600, "gpu_end_ns": 2100},
        ),
        known(0, 1),
    )
    (row,) = table.iter_rows(named=True)
    assert (row["last"], row["late_ns"], row["transfer_ns"], row["on_gpu"]) == (1, 600, 500, True)


def test_the_root_of_a_broadcast_waits_for_nobody() -> None:
    table = matched(
        calls(
            {"rank": 0, "start_ns": 0, "gpu_start_ns": 100, "gpu_end_ns": 150},
            {"rank": 1, "start_ns": 0, "gpu_start_ns": 120, "gpu_end_ns": 930},
            {"rank": 2, "start_ns": 0, "gpu_start_ns": 900, "gpu_end_ns": 940},
        ),
        known(0, 1, 2),
    )
    (row,) = table.iter_rows(named=True)
    assert (row["wait_ns"], row["transfer_ns"]) == (50 + 780, 40)


def test_groups_are_apart_and_calls_of_different_ops_are_none() -> None:
    table = matched(
        calls(
            *({"rank": rank, "group": "dp", "start_ns": 100 * rank} for rank in (0, 2)),
            *({"rank": rank, "group": "tp", "start_ns": 100 * rank} for rank in (1, 3)),
            {"rank": 0, "group": "dp", "number": 1, "start_ns": 500, "op": "c10d::broadcast_"},
            {"rank": 2, "group": "dp", "number": 1, "start_ns": 500},
            {"rank": 0, "group": None, "start_ns": 1},
            {"rank": 1, "group": None, "start_ns": 9},
            {"rank": 3, "group": "alone", "start_ns": 9},
        ),
        known(0, 1, 2, 3),
    )
    assert table.select("group", "number", "last", "ranks").rows() == [("dp", 0, 2, 2), ("tp", 0, 3, 2)]


def test_ranks_whose_clock_is_not_known_are_left_out() -> None:
    clocks = known(0, 1).with_columns(
        offset_ns=pl.when(pl.col("rank") == 1).then(None).otherwise(pl.col("offset_ns"))
    )
    table = calls({"rank": 0, "start_ns": 1}, {"rank": 1, "start_ns": 2})
    assert matched(table, clocks).is_empty()


def test_one_host_has_one_clock() -> None:
    found = offsets([part(0, began_ns=1000), part(1, began_ns=4000)], calls())
    assert found.rows() == [(0, 0, 0, EXACT), (1, 3000, 0, EXACT)]


def test_hosts_meet_at_the_ends_of_collectives() -> None:
    """Host b's clock is 50,000 ns behind; ranks 2 and 3 began 7 ns apart."""
    parts = [part(0), part(1), part(2, "b", 90_000), part(3, "b", 90_007)]
    rows: list[dict[str, Any]] = []
    for number, (end, error) in enumerate([(100_000, 0), (200_000, 4), (300_000, -4), (400_000, 0)]):
        rows += [
            {"rank": 0, "number": number, "gpu_start_ns": end - 10, "gpu_end_ns": end},
            {"rank": 2, "number": number, "gpu_start_ns": 5, "gpu_end_ns": end - 50_000 + error},
            {"rank": 3, "number": number, "gpu_start_ns": 5, "gpu_end_ns": end - 50_007 + error},
        ]
    found = offsets(parts, calls(*rows))
    assert found.select("rank", "offset_ns", "how").rows() == [
        (0, 0, EXACT),
        (1, 0, EXACT),
        (2, 50_000, BY_COLLECTIVES),
        (3, 50_007, BY_COLLECTIVES),
    ]
    assert 0 < found["error_ns"][2] < 10


def test_a_host_without_such_kernels_has_no_known_clock() -> None:
    found = offsets([part(0), part(1, "b")], calls({"rank": 1, "gpu_end_ns": 1}))
    assert found.rows()[1] == (1, None, None, UNKNOWN)
    assert offsets([part(0, ""), part(1, "")], calls()).rows()[1] == (1, None, None, UNKNOWN)


def of_rank(*ranks: int | None, path: str = "x.trace") -> SimpleNamespace:
    processes = pl.DataFrame(
        {
            "process": list(range(len(ranks))),
            "rank": list(ranks),
            "ranks": [4] * len(ranks),
            "host": ["h"] * len(ranks),
            "boot": ["b"] * len(ranks),
            "restarts": [None] * len(ranks),
        },
        schema_overrides={"rank": pl.Int64},
    )
    return SimpleNamespace(processes=processes, began_ns=5, path=path)


def test_ranks_out_of_several_traces() -> None:
    job = job_of([of_rank(None, 3), of_rank(1, 1)])  # type: ignore[list-item]
    assert [(of.rank, of.process) for of in job.parts] == [(1, 0), (3, 1)]
    assert (job.ranks, job.missing) == (4, [0, 2])


def test_what_is_no_job() -> None:
    with pytest.raises(JobError, match="no trace says which rank it is of; start the job with torchrun"):
        job_of([of_rank(None)])  # type: ignore[list-item]
    with pytest.raises(JobError, match=r"a\.trace and b\.trace are both of rank 1; keep one job a folder"):
        job_of([of_rank(1, path="a.trace"), of_rank(1, path="b.trace")])  # type: ignore[list-item]


def test_the_trace_of_a_rank_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"has no \*\.trace; record one a rank"):
        traces_in(tmp_path)
    for name in ("rank00.trace", "rank12.trace.xz", "run.rank03.trace", "rank3", "frank04.trace"):
        (tmp_path / name).touch()
    assert trace_of_rank(tmp_path, 0).name == "rank00.trace"
    assert trace_of_rank(tmp_path, 12).name == "rank12.trace.xz"
    assert trace_of_rank(tmp_path, 3).name == "run.rank03.trace"
    (tmp_path / "unnamed").mkdir()
    (tmp_path / "unnamed" / "a.trace").touch()
    with pytest.raises(JobError, match=r"no name of a trace in .* holds a rank; give the trace instead"):
        trace_of_rank(tmp_path / "unnamed", 4)
    with pytest.raises(JobError, match=r"named after rank 4; there are ranks 0, 3, 12"):
        trace_of_rank(tmp_path, 4)
    for number in (1, 2):
        (tmp_path / f"run.rank07.dump000{number}.trace").touch()
    (tmp_path / "run.rank08.0002.dump0001.trace.xz").touch()
    assert trace_of_rank(tmp_path, 7).name == "run.rank07.dump0002.trace"
    assert trace_of_rank(tmp_path, 8).name == "run.rank08.0002.dump0001.trace.xz"
    (tmp_path / "train.rank03.0002.trace").touch()
    with pytest.raises(JobError, match="both of rank 3"):
        trace_of_rank(tmp_path, 3)


def late_line(folder: Path) -> tuple[int, str | None, str | None]:
    of = load_job(folder).lateness[0]
    return of.rank, of.before, of.after


def test_a_rank_that_sleeps_behind_a_collective_that_all_wait_for(tmp_path: Path) -> None:
    """Rank 1 sleeps 5 ms, and rank 0 computes and calls at once: then it waits as long as rank 1 sleeps."""
    for rank in range(2):
        of = Rank(rank, 2).at(rank * 0.1).calls(waits=True)
        for number in range(6):
            released = 0.1 + 5.1 * number
            of.at(released + (5 if rank else 0.02)).computes(line=1)
            of.at(released + (5.1 if rank else 0.1)).calls(waits=True)
        of.write(tmp_path / "job")
    assert late_line(tmp_path / "job") == (1, "/work/train.py:2", "/work/train.py:1")


def test_behind_an_asynchronous_collective_nothing_is_taken_for_a_wait(tmp_path: Path) -> None:
    """Rank 1 is 10 ms late from the second collective on. Both do the same between two of them."""
    for rank in range(2):
        of = Rank(rank, 2)
        of.calls()
        for number in range(6):
            of.at(20 * number + 10 * rank + 12).computes(line=1)
            of.at(20 * number + 10 * rank + 19).calls()
        of.write(tmp_path / "job")
    rank, before, after = late_line(tmp_path / "job")
    assert (rank, before, after) == (1, None, None)
