"""Parts of a program on a GPU: some steps, the newest in a file of a largest size; what doctor says there."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from launching import Launcher
from lazily import torch
from seen import Recorded, launches, of_graph

SAMPLE = str(Path(__file__).parent / "sample.py")
STEPS = 9


def record(folder: Path, *options: str, steps: int = STEPS) -> Recorded:
    launcher = Launcher(folder)
    run = launcher.record("-o", "run.trace", *options, SAMPLE, "--steps", str(steps))
    assert run.status == 0, run.err
    return Recorded(run, folder / "run.trace")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("window"), "--steps", "3:6")


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("ring"), "--max-size", "16M", steps=400)


def by_step(kernels: pl.DataFrame) -> dict[int, int]:
    return dict(kernels.drop_nulls("step").group_by("step").len().iter_rows())


def test_a_window_of_steps_has_their_kernels_and_no_other(whole: Recorded, window: Recorded) -> None:
    assert window.run.out == whole.run.out, "a recording changed what the program computes"
    everything = by_step(whole.kernels)
    assert by_step(window.kernels) == {step: everything[step] for step in (3, 4, 5)}
    assert window.kernels["step"].null_count() == 0
    assert set(window.api_calls["step"].drop_nulls()) == {3, 4, 5}


def test_a_window_reconciles(window: Recorded) -> None:
    assert window.trace.certificate["verdict"].startswith("complete"), window.trace.certificate["verdict"]
    assert window.cuda["reconciles"], window.cuda
    own = window.kernels.filter(~of_graph(window.kernels))
    assert own["api_call"].null_count() == 0
    assert set(own["api_call"]) == set(launches(window.api_calls)["id"])


def test_a_ring_keeps_the_newest_and_counts_the_rest(ring: Recorded) -> None:
    certificate = ring.trace.certificate
    assert ring.path.stat().st_size <= 16 << 20
    for name in ("hops", "calls", "activities"):
        assert certificate[f"overwritten_{name}"] > 0, certificate["verdict"]
    assert "counted, but the file has" not in certificate["verdict"], "kept and overwritten are not all"
    assert ring.kernels["start_ns"].max() > 0.9 * ring.hops["end_ns"].max()


def test_what_a_ring_keeps_of_its_last_step_is_whole(ring: Recorded) -> None:
    """A kernel is there, and its call and the call's hop too, unless they are older than the oldest hop."""
    oldest = ring.hops["start_ns"].min()
    calls = ring.api_calls.select(api_call="id", called_ns="start_ns")
    waits = ring.kernels.filter(~of_graph(ring.kernels)).join(calls, on="api_call")
    # A call may be older than its kernel by the longest wait that is known: on a busy machine the GPU lags.
    longest = waits.select((pl.col("start_ns") - pl.col("called_ns")).max()).item()
    kernels = ring.kernels.filter(
        ~of_graph(ring.kernels), pl.col("start_ns") > oldest + max(50_000_000, 2 * longest)
    )
    assert len(kernels) > 100
    assert kernels["api_call"].null_count() == 0
    last = ring.api_calls["step"].max()
    joined = launches(ring.api_calls.filter(pl.col("step") == last))
    assert len(joined) > 20
    assert joined["hop"].null_count() < len(joined)


def test_doctor_names_the_gpu_and_cupti(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    run = launcher.run([str(launcher.tracer), "doctor", "--cuda"])
    assert run.status == 0, run.out + run.err
    text = " ".join(run.out.split())
    assert torch.cuda.get_device_name() in text
    assert f"torch has CUDA {torch.version.cuda}" in text
    cupti = next(line for line in run.out.splitlines() if " CUPTI" in line)
    assert cupti.startswith("ok"), run.out
    assert "Recording works here." in text
