"""Why a rank was late: synthetic traces of ranks, whose GPUs and hosts work at known moments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rank_traces import Rank
from synthetic import tensor

from tracer.analysis.job.folder import load_job
from tracer.analysis.job.lateness import Lateness
from tracer.report.job_page import job_page

ROUNDS = 5
Work = Callable[[Rank, float], float]
"""Launches kernels from a moment on (ms), and returns when the last one ends"""


def of_lengths(*lengths: float, line: int = 1, signature: int = 10) -> Work:
    """Kernels behind each other that take these times (ms)."""

    def work(of: Rank, begin: float) -> float:
        for length in lengths:
            of.launches(begin, begin + length, line=line, signature=signature)
            begin += length
        return begin

    return work


def both(*works: Work) -> Work:
    def work(of: Rank, begin: float) -> float:
        for one in works:
            begin = one(of, begin)
        return begin

    return work


def job(folder: Path, *of_ranks: Work, host_ms: tuple[float, ...] = ()) -> Path:
    """Rounds of 50 ms: each rank does its work, and all reduce. `host_ms`: its host does nothing first."""
    for rank, work in enumerate(of_ranks):
        of = Rank(rank, len(of_ranks))
        of.lane.define_signature(10, tensor((64, 128)))
        of.lane.define_signature(11, tensor((64, 512)))
        texts = {"1": "y = x @ w", "4": "z = z + more"}
        of.writer.json(0, "source_lines", {"/work/train.py": {"cell": None, "lines": texts}})
        for number in range(ROUNDS):
            begin = 50 * number
            of.at(begin).computes(line=3)
            begin += host_ms[rank] if host_ms else 0
            of.at(begin + 0.5)
            of.reduces(work(of, begin + 1), 50 * number + 40)
        of.write(folder)
    return folder


def cause(folder: Path, *of_ranks: Work, **more: Any) -> tuple[Lateness, str]:
    """The cause of the rank that was late most, and the sentence of the report."""
    found = load_job(job(folder / "job", *of_ranks, **more))
    sentence = next(line for line in job_page(found, "job").splitlines() if line.startswith("**Rank "))
    return found.lateness[0], sentence


def test_more_work_of_a_line_is_named_with_its_op_and_kernel(tmp_path: Path) -> None:
    usual = of_lengths(2, 3)
    found, said = cause(tmp_path, usual, usual, both(usual, of_lengths(*[2.5] * 4, line=4)))
    assert (found.rank, found.why, found.before, found.op) == (2, "gpu work", "/work/train.py:4", "aten::mm")
    assert (found.runs, found.kernel, found.others_inputs) == (4 * (ROUNDS - 1), "gemm", None)
    assert found.excess_ns == 10_000_000 * (ROUNDS - 1) == found.total_ns
    assert said.endswith(
        "by 10.0 ms in the median (40.0 ms in all): `aten::mm` of `/work/train.py:4` (`z = z + more`) took "
        "40.0 ms longer on the GPU than on the other ranks: 16 kernels more, most time in `gemm`."
    )


def test_larger_inputs_of_the_same_line_are_told_apart_from_more_work(tmp_path: Path) -> None:
    usual = of_lengths(2, 3)
    found, said = cause(tmp_path, usual, usual, of_lengths(6, 9, signature=11))
    assert (found.why, found.before, found.excess_ns) == ("gpu inputs", "/work/train.py:1", 40_000_000)
    assert (found.inputs, found.others_inputs) == ("64x512 f32", "64x128 f32")
    assert said.endswith(": inputs `64x512 f32`, on the other ranks `64x128 f32`.")


def test_a_slower_gpu_is_told_apart_from_more_work(tmp_path: Path) -> None:
    usual, slower = (
        both(of_lengths(2 * by, 3 * by), of_lengths(4 * by, line=4, signature=11)) for by in (1.0, 1.5)
    )
    found, said = cause(tmp_path, usual, usual, slower)
    assert (found.why, found.before, found.excess_ns) == ("slower gpu", None, 4_500_000 * (ROUNDS - 1))
    assert found.ratio == pytest.approx(1.5)
    assert said.endswith(
        ": kernels that all ranks ran took 1.50 x as long on its GPU, 18.0 ms in all: another process may "
        "use it, or it is hot."
    )


def test_kernels_that_others_run_while_they_wait_are_not_more_work(tmp_path: Path) -> None:
    """As in DDP, whose backward goes on beside the first all-reduce: the late rank has it before."""

    def usual(of: Rank, begin: float) -> float:
        of_lengths(6, line=4, signature=11)(of, begin + 8)
        return of_lengths(4)(of, begin)

    slower = both(of_lengths(8), of_lengths(12, line=4, signature=11))
    found, _ = cause(tmp_path, usual, usual, slower)
    assert (found.why, found.before, found.kernel) == ("slower gpu", None, None)
    assert found.ratio == pytest.approx(2.0)
    assert found.excess_ns == 10_000_000 * (ROUNDS - 1)


def test_more_work_in_many_lines_has_no_line(tmp_path: Path) -> None:
    usual = of_lengths(2)
    found, said = cause(tmp_path, usual, usual, both(usual, spread))
    assert (found.why, found.before, found.op) == ("gpu work", None, None)
    assert said.endswith(
        ": its kernels took 40.0 ms longer on the GPU than on the other ranks, in many lines."
    )


def spread(of: Rank, begin: float) -> float:
    """Ten kernels of 1 ms, each of an op of its own."""
    for number in range(10):
        of.writer.hop(20 + number, f"aten::op{number}")
        of.launches(begin, begin + 1, hop=20 + number)
        begin += 1
    return begin


def test_a_host_that_launches_late_is_no_matter_of_its_gpu(tmp_path: Path) -> None:
    """Its kernels take longer, too; the GPU is idle for most of the time that the rank is late by."""
    found, said = cause(tmp_path, of_lengths(5), of_lengths(5), of_lengths(9), host_ms=(0, 0, 9))
    assert (found.why, found.before, found.after) == ("host", "/work/train.py:3", "/work/train.py:1")
    assert found.excess_ns == 9_000_000 * (ROUNDS - 1)
    assert "`/work/train.py:3 -> /work/train.py:1` (`y = x @ w`) took 36.0 ms longer than" in said


def test_kernels_beside_the_collective_before_do_not_count(tmp_path: Path) -> None:
    """On rank 2 a kernel runs beside the collective before, and the next one begins 10 ms later."""

    def beside(of: Rank, begin: float) -> float:
        of.launches(begin + 12, begin + 30, line=4)
        return begin + 10

    found, said = cause(tmp_path, of_lengths(8), of_lengths(8), both(of_lengths(8), beside))
    assert (found.why, found.before, found.total_ns) == (None, None, 40_000_000)
    assert said.endswith(": nothing on its host or GPU explains it.")


def test_kernels_beside_a_collective_that_waits_are_no_work_less(tmp_path: Path) -> None:
    """A rank that waits in a collective runs its next kernels beside it; the last one does not."""
    for rank in range(2):
        of = Rank(rank, 2)
        for number in range(ROUNDS):
            begin, by = 100 * number, 1 + rank  # rank 1 has a GPU of half the speed
            of.at(begin + 0.5).launches(begin + 1, begin + 1 + 10 * by)
            of.reduces(begin + 1 + 10 * by, begin + 22)
            beside = begin + (11 if rank == 0 else 22)  # rank 0 waits in the collective meanwhile
            of.launches(beside, beside + 9 * by, line=4)
            of.reduces(beside + 9 * by, begin + 60)
        of.write(tmp_path / "job")
    found = load_job(tmp_path / "job").lateness[0]
    assert (found.rank, found.why) == (1, "slower gpu")
    assert found.ratio == pytest.approx(2)
