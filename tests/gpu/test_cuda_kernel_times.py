"""Kernel times are those of torch.profiler: medians of 50 launches, in processes of their own, in turns.

On an idle GPU: these tests run alone.
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from launching import Launcher
from seen import Recorded, record_cases

PROGRAM = Path(__file__).parent / "kernel_times.py"
TURNS = 2
WITHIN = 0.02
CASES = ["mm fp32", "mm bf16", "cat", "add"]

Medians = dict[str, tuple[str, float]]  # case -> its longest kernel, and the median of it in microseconds


def recorded_medians(recorded: Recorded) -> Medians:
    found = {}
    for case in CASES:
        part = recorded.part(case)
        kernels = part.kernels.group_by("name").agg(
            pl.len(), us=(pl.col("end_ns") - pl.col("start_ns")).median() / 1e3
        )
        kernels = kernels.filter(pl.col("len") == 50).sort("us", descending=True)
        assert not kernels.is_empty(), str(part)
        found[case] = (kernels["name"][0], kernels["us"][0])
    return found


def profiled_medians(launcher: Launcher, turn: int) -> Medians:
    out = launcher.folder / f"profiled{turn}.json"
    run = launcher.python(str(PROGRAM), str(out), "profiler", extra={"KINETO_LOG_LEVEL": "99"})
    assert out.exists(), str(run)
    noted = json.loads(out.read_text())["cases"]
    return {case: max(noted[case].items(), key=lambda item: item[1]) for case in CASES}


@pytest.fixture(scope="module")
def medians(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Medians, Medians]]:
    """Of each turn: what tracer and what torch.profiler measured."""
    launcher = Launcher(tmp_path_factory.mktemp("kernel_times"))
    return [
        (
            recorded_medians(record_cases(launcher, PROGRAM, f"recorded{turn}")),
            profiled_medians(launcher, turn),
        )
        for turn in range(TURNS)
    ]


@pytest.mark.parametrize("case", CASES)
def test_medians_agree(medians: list[tuple[Medians, Medians]], case: str) -> None:
    """In the turn in which they agree best: the clock of the GPU may change between two processes."""
    lines = [
        f"turn {turn}: recorded {ours[case][1]:.2f} us, profiled {theirs[case][1]:.2f} us, "
        f"ratio {ours[case][1] / theirs[case][1]:.4f}; {ours[case][0][:60]} | {theirs[case][0][:60]}"
        for turn, (ours, theirs) in enumerate(medians)
    ]
    print("\n".join(lines))
    best = min(abs(ours[case][1] / theirs[case][1] - 1) for ours, theirs in medians)
    assert best <= WITHIN, "\n".join(lines)
    assert all(ours[case][1] >= 15 for ours, _ in medians), "too short for 2 %\n" + "\n".join(lines)


@pytest.mark.parametrize("case", CASES)
def test_kernels_have_the_same_name(medians: list[tuple[Medians, Medians]], case: str) -> None:
    ours, theirs = medians[0]
    bare = [
        name.split("<")[0].split("(")[0].removeprefix("void ") for name in (ours[case][0], theirs[case][0])
    ]
    assert bare[0] == bare[1], f"{ours[case][0]}\n{theirs[case][0]}"
