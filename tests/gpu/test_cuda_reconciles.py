"""Programs add up: as many launches as kernels delivered and kernels joined, and so says the certificate."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest
from launching import Launcher
from loaded_kernels import TIMES, name_of
from seen import Recorded, launches, of_graph

TREE = Path(__file__).parents[2]
EXAMPLES = TREE / "examples"
STEPS = 8
OUTSIDE = 0.01  # of the kernels of warm steps, at most, may be in no op


PROGRAMS = {
    "resnet34": [EXAMPLES / "resnet34.py", "--device", "cuda", "--steps", STEPS, "--batch", 8],
    "resnet34_bf16": [
        *(EXAMPLES / "resnet34.py", "--device", "cuda", "--steps", STEPS, "--batch", 8),
        *("--bf16", "--channels-last"),
    ],
    "seq2seq": [EXAMPLES / "seq2seq_gru.py", "--device", "cuda", "--epochs", 1, "--steps", STEPS],
    "gru": [EXAMPLES / "gru.py", "--device", "cuda", "--steps", STEPS],
    "mm": [EXAMPLES / "mm.py", "--device", "cuda"],
    "cat": [EXAMPLES / "cat.py", "--device", "cuda"],
    "sample": [Path(__file__).parent / "sample.py", "--steps", STEPS],
    "loaded": [Path(__file__).parent / "loaded_kernels.py"],
}
Runs = Callable[[str], Recorded]
TRAINED = ["resnet34", "resnet34_bf16", "seq2seq", "gru", "sample"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Every program, recorded, four at a time: by name, what gives it."""
    folder = tmp_path_factory.mktemp("reconciles")

    def record(name: str) -> Recorded:
        launcher = Launcher(folder)
        run = launcher.record("-o", f"{name}.trace", *map(str, PROGRAMS[name]))
        return Recorded(run, folder / f"{name}.trace")

    with ThreadPoolExecutor(4) as pool:
        recordings = {name: pool.submit(record, name) for name in PROGRAMS}
    return lambda name: recordings[name].result()


@pytest.fixture(params=list(PROGRAMS))
def run(runs: Runs, request: pytest.FixtureRequest) -> Recorded:
    found = runs(request.param)
    assert found.run.status == 0, found.about()
    return found


def unlike(recorded: Recorded) -> str:
    """Where launches and kernels differ, for messages."""
    joined = launches(recorded.api_calls).select(
        "id", "name", "kernel", "hop", "thread", "start_ns", "result"
    )
    without = joined.join(recorded.kernels, left_on="id", right_on="api_call", how="anti")
    twice = recorded.kernels.group_by("api_call").len().filter(pl.col("len") > 1)
    alone = recorded.kernels.filter(pl.col("api_call").is_null())
    with pl.Config(tbl_rows=12, tbl_cols=12, fmt_str_lengths=60, tbl_width_chars=200):
        return (
            f"launches without a kernel: {without}\nkernels without a call: {alone}\n"
            f"calls with several kernels: {twice}\n{recorded.about()}"
        )


def test_launches_are_kernels_are_joined(run: Recorded) -> None:
    own = run.kernels.filter(~of_graph(run.kernels))
    launched = launches(run.api_calls)
    assert len(launched) == len(own), unlike(run)
    assert own["api_call"].null_count() == 0, unlike(run)
    assert set(own["api_call"]) == set(launched["id"]), unlike(run)
    assert len(own) > 50, run.about()


def test_modules_that_are_unloaded_leave_no_names_behind(runs: Runs) -> None:
    recorded = runs("loaded")
    launched = recorded.api_calls.filter(pl.col("name") == "cuLaunchKernel").sort("start_ns")
    assert launched["kernel"].to_list() == [name_of(number) for number in range(2 * TIMES)]
    ran = recorded.kernels.join(launched.select("id", launched="kernel"), left_on="api_call", right_on="id")
    assert len(ran) == 2 * TIMES
    assert (ran["name"] == ran["launched"]).all()


def test_every_activity_has_its_call_and_the_hop_of_it(run: Recorded) -> None:
    activities = run.activities.filter(~of_graph(run.activities))
    assert activities["api_call"].null_count() == 0, unlike(run)
    calls = run.api_calls.select(pl.col("id"), call_hop="hop", call_correlation="correlation")
    joined = activities.join(calls, left_on="api_call", right_on="id")
    other = joined.filter(
        pl.col("hop").ne_missing(pl.col("call_hop")) | (pl.col("correlation") != pl.col("call_correlation"))
    )
    assert other.is_empty(), f"{other}\n{run.about()}"


def test_no_kernel_begins_before_its_launch(run: Recorded) -> None:
    calls = run.api_calls.select(pl.col("id"), called="start_ns")
    joined = run.kernels.join(calls, left_on="api_call", right_on="id")
    early = joined.filter(pl.col("start_ns") < pl.col("called") - 20_000)
    assert early.is_empty(), f"{early.select('name', 'called', 'start_ns', 'end_ns')}"
    assert (run.kernels["end_ns"] > run.kernels["start_ns"]).all()


def test_certificate_counts_what_the_tables_hold(run: Recorded) -> None:
    own = run.kernels.filter(~of_graph(run.kernels))
    certificate = run.cuda
    counted = {
        "api_calls": len(run.api_calls),
        "library_calls": len(run.library_calls),
        "launches": len(launches(run.api_calls)),
        "graph_launches": len(run.api_calls.filter(pl.col("name") == "cudaGraphLaunch")),
        "kernels": len(run.kernels),
        "memcpys": len(run.activities.filter(pl.col("kind") == "memcpy")),
        "memsets": len(run.activities.filter(pl.col("kind") == "memset")),
        "kernels_joined_to_a_call": len(run.kernels) - run.kernels["api_call"].null_count(),
        "in_a_hop": len(own) - own["hop"].null_count(),
        "outside_ops": own["hop"].null_count(),
        "unjoined": run.kernels["api_call"].null_count(),
        "launches_without_kernel": 0,
    }
    found = {name: certificate.get(name) for name in counted}
    assert found == counted, run.about()
    assert certificate["state"] == "recorded", run.about()


def test_certificate_reconciles_and_nothing_was_dropped(run: Recorded) -> None:
    assert run.cuda["reconciles"] is True, unlike(run)
    assert run.cuda["dropped"] == 0, run.about()
    assert run.trace.certificate["verdict"].startswith("complete"), run.about()
    assert "incomplete" not in run.run.said, run.run.said


@pytest.mark.parametrize("name", TRAINED)
def test_kernels_of_warm_steps_belong_to_ops(runs: Runs, name: str) -> None:
    recorded = runs(name)
    warm = recorded.kernels.filter(pl.col("phase") == "steady")
    steps = sorted(set(warm["step"]))
    assert len(steps) >= STEPS // 2, (
        f"steady steps {steps}, of {sorted(set(recorded.kernels['step'].drop_nulls()))}"
    )
    outside = warm.filter(pl.col("hop").is_null())
    by = outside.group_by("name").len().rows()
    assert len(outside) <= OUTSIDE * len(warm), f"{len(outside)} of {len(warm)}: {by}\n{recorded.about()}"


@pytest.mark.parametrize("name", TRAINED)
def test_steps_are_those_of_the_optimiser(runs: Runs, name: str) -> None:
    recorded = runs(name)
    assert set(recorded.api_calls["step"].drop_nulls()) == set(range(STEPS)), recorded.about()
    assert set(recorded.kernels["step"].drop_nulls()) == set(range(STEPS)), recorded.about()
    # a kernel is of the step in which it was launched, even where it ran in the next one
    calls = recorded.api_calls.select(pl.col("id"), call_step="step")
    joined = recorded.kernels.join(calls, left_on="api_call", right_on="id")
    assert (joined["step"].eq_missing(joined["call_step"])).all()


@pytest.mark.parametrize("name", ["resnet34", "seq2seq"])
def test_warm_steps_are_alike(runs: Runs, name: str) -> None:
    """The same launches in each steady step, and no allocation of device memory."""
    recorded = runs(name)
    steady = recorded.api_calls.filter(pl.col("phase") == "steady")
    counts = launches(steady).group_by("step").len().sort("step")
    assert counts["len"].n_unique() == 1, str(counts)
    allocated = steady.filter(pl.col("name").is_in(["cudaMalloc", "cudaFree", "cudaHostAlloc"]))
    assert allocated.is_empty(), str(allocated.select("name", "step", "source", "hop"))


def test_every_call_has_a_role(run: Recorded) -> None:
    without = run.api_calls.filter(pl.col("role").is_null() | pl.col("role").is_in(["", "other"]))
    assert without.is_empty(), str(without["name"].unique().to_list())


def test_failed_calls_are_few_and_named(run: Recorded) -> None:
    """torch asks some questions whose answer is an error; a training step has no other."""
    failed = run.api_calls.filter(pl.col("result") != 0).group_by("name", "result").len()
    expected = {"cudaEventQuery", "cudaStreamQuery", "cudaPointerGetAttributes", "cudaGetLastError"}
    assert set(failed["name"]) <= expected | {"cudaPeekAtLastError"}, str(failed)


def test_stacks_have_names(runs: Runs) -> None:
    recorded = runs("resnet34")
    frames = recorded.trace.stacks.explode("frames").unnest("frames")
    torch_frames = frames.filter(pl.col("module").str.contains("libtorch"))
    named = torch_frames.filter(pl.col("function").fill_null("").str.len_chars() > 0)
    assert len(torch_frames) > 100
    assert len(named) > 0.9 * len(torch_frames), str(
        torch_frames.filter(pl.col("function").is_null()).head(10)
    )
    launched = launches(recorded.api_calls)
    assert launched["stack"].null_count() == 0, recorded.about()


def test_library_calls_of_resnet(runs: Runs) -> None:
    recorded = runs("resnet34")
    steady = recorded.api_calls.filter(pl.col("phase") == "steady", pl.col("library_call").is_not_null())
    by = steady.group_by("library", "library_call").len().sort("len", descending=True)
    assert by["library_call"].str.starts_with("cudnn").any(), str(by)
    assert by["library_call"].str.starts_with("cublas").any(), str(by)
