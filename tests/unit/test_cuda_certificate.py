"""The certificate of CUDA: the launches that were seen are the kernels that were delivered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import CERTIFICATE, TraceWriter

from examples import examples
from tracer.trace import Trace, load
from tracer.trace.bytes.format import RECORDING
from tracer.trace.certificate.cuda import QUERIES_OF_TORCH

LAUNCH, GRAPH_LAUNCH, COPY, GET_DEVICE, DRIVER_LAUNCH, GEMM = 211, 311, 41, 17, 307, 5
STATED = {"state": "recorded", "why": "", "cupti": 130000, "driver_calls": "launches", "buffers": 2}


def new_writer(cuda: dict[str, Any] | None = STATED, closed: bool = True, processes: int = 1) -> TraceWriter:
    writer = TraceWriter()
    for process in range(processes):
        said = CERTIFICATE if cuda is None else {**CERTIFICATE, "cuda": cuda}
        writer.process(process, how=0 if process == 0 else 2, certificate=said if closed else None)
        writer.hop(0, "aten::mm", process=process)
        for number, name, domain in (
            (LAUNCH, "cudaLaunchKernel", 0),
            (GRAPH_LAUNCH, "cudaGraphLaunch", 0),
            (COPY, "cudaMemcpyAsync", 0),
            (GET_DEVICE, "cudaGetDevice", 0),
            (DRIVER_LAUNCH, "cuLaunchKernel", 1),
            (GEMM, "cublasSgemm_v2", 2),
        ):
            writer.function(number, name, domain=domain, process=process)
    return writer


def read(writer: TraceWriter, tmp_path: Path) -> Trace:
    return load(writer.write(tmp_path / "x.trace"))


def certificate(writer: TraceWriter, tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    whole = read(writer, tmp_path).certificate
    return whole["cuda"], whole


def test_without_cuda_the_certificate_says_nothing_of_it(tmp_path: Path) -> None:
    writer = new_writer(cuda=None)
    writer.lane().enter(0)
    assert "cuda" not in read(writer, tmp_path).certificate


@pytest.mark.parametrize("state", ["off", "not used", "no driver", "not built"])
def test_a_process_that_did_not_use_cuda_lacks_nothing(tmp_path: Path, state: str) -> None:
    writer = new_writer({"state": state, "why": "because"})
    writer.lane().enter(0)
    cuda, whole = certificate(writer, tmp_path)
    assert (cuda["state"], cuda["why"], cuda["kernels"], cuda["reconciles"]) == (state, "because", 0, True)
    assert whole["complete"]


@pytest.mark.parametrize("state", ["held", "failed"])
def test_cuda_that_could_not_be_recorded_is_not_complete(tmp_path: Path, state: str) -> None:
    cuda, whole = certificate(new_writer({"state": state, "why": "another profiler has it"}), tmp_path)
    assert not cuda["reconciles"]
    assert "CUDA of process 0 was not recorded (another profiler has it)" in whole["verdict"]


def full(**stated: Any) -> TraceWriter:
    """Launches in a hop, of a library outside of hops, nested, captured, replayed and failing."""
    counts = {"api_calls": 10, "launches": 4, "kernels": 5, "memcpys": 1, "memsets": 1}
    writer = new_writer({**STATED, **counts, **stated})
    writer.symbol(0x20, "launch", "/home/me/libtriton.so")
    lane = writer.lane()
    lane.define_stack(1, 0x20)
    lane.enter(0)
    lane.api(GET_DEVICE, correlation=1)
    lane.api_enter(LAUNCH, correlation=2)
    lane.api(DRIVER_LAUNCH, correlation=3, driver=True)
    lane.call_exit()
    lane.api(LAUNCH, correlation=4, captured=True)
    lane.api(COPY, correlation=5)
    lane.exit()
    lane.library_enter(GEMM)
    lane.api(LAUNCH, correlation=6)
    lane.call_exit()
    lane.api(LAUNCH, correlation=7, stack=1)
    lane.api(LAUNCH, correlation=8)
    lane.api(LAUNCH, correlation=9, result=98)
    lane.api(GRAPH_LAUNCH, correlation=10)
    writer.graph_node(1, correlation=4)
    writer.graph_node(2, original=1)
    for correlation in (3, 6, 7, 8):
        writer.kernel(correlation)
    writer.kernel(10, graph=1, node=2)
    writer.activity(2, 5)
    writer.activity(3, 5)
    return writer


def test_everything_that_ran_is_accounted_for(tmp_path: Path) -> None:
    cuda, whole = certificate(full(), tmp_path)
    expected = {
        "state": "recorded",
        "cupti": 130000,
        "buffers": 2,
        "api_calls": 10,
        "library_calls": 1,
        "launches": 4,
        "graph_launches": 1,
        "kernels": 5,
        "kernels_joined_to_a_call": 5,
        "in_a_hop": 1,
        "captured_in_a_hop": 1,
        "outside_ops": 3,
        "outside_ops_by": [
            {"what": "cublasSgemm_v2 (libcublas)", "count": 1},
            {"what": "cudaLaunchKernel", "count": 1},
            {"what": "launch (libtriton.so)", "count": 1},
        ],
        "unjoined": 0,
        "launches_without_kernel": 0,
        "memcpys": 1,
        "memsets": 1,
        "dropped": 0,
        "reconciles": True,
    }
    assert {name: cuda[name] for name in expected} == expected
    assert whole["why"] == []
    assert whole["verdict"] == "complete: 1 hop, nothing dropped"


def test_a_replay_outside_of_ops_is_named_by_the_call_that_was_captured(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lane()
    lane.library_enter(GEMM)
    lane.api(LAUNCH, correlation=1, captured=True)
    lane.call_exit()
    writer.graph_node(5, correlation=1)
    lane.api(GRAPH_LAUNCH, correlation=2)
    for _ in range(3):
        writer.kernel(2, node=5)
    cuda, _ = certificate(writer, tmp_path)
    assert cuda["outside_ops_by"] == [{"what": "cublasSgemm_v2 (libcublas)", "count": 3}]


def test_a_recorder_that_counts_nested_launches_agrees_too(tmp_path: Path) -> None:
    assert certificate(full(launches=5), tmp_path)[0]["reconciles"]


@pytest.mark.parametrize(
    ("name", "count", "sentence"),
    [
        ("api_calls", 11, "process 0 counted 11 API calls, but the file has 10"),
        ("launches", 3, "process 0 counted 3 launches, but the file has 5"),
        ("kernels", 4, "process 0 counted 4 kernels, but the file has 5"),
        ("memcpys", 0, "process 0 counted 0 memcpys, but the file has 1"),
        ("memsets", 2, "process 0 counted 2 memsets, but the file has 1"),
        ("dropped_activities", 3, "3 GPU activities dropped"),
    ],
)
def test_what_does_not_agree_is_said(tmp_path: Path, name: str, count: Any, sentence: str) -> None:
    cuda, whole = certificate(full(**{name: count}), tmp_path)
    assert not cuda["reconciles"]
    assert whole["why"] == [sentence]
    assert whole["verdict"] == f"incomplete: 1 hop; {sentence}"


def test_a_launch_without_its_kernel(tmp_path: Path) -> None:
    writer = full(kernels=4)
    writer.activities[0] = [record for record in writer.activities[0] if record[0] & 0xFFFFFFFF != 3]
    cuda, whole = certificate(writer, tmp_path)
    assert (cuda["launches_without_kernel"], cuda["reconciles"]) == (1, False)
    assert whole["why"] == ["1 launch without a kernel"]


def test_a_kernel_of_no_recorded_call(tmp_path: Path) -> None:
    writer = full(kernels=6, driver_calls="none")
    writer.kernel(999)
    cuda, whole = certificate(writer, tmp_path)
    assert (cuda["unjoined"], cuda["kernels_joined_to_a_call"], cuda["reconciles"]) == (1, 5, False)
    assert whole["why"] == ["1 kernel without a recorded call (driver calls were not recorded)"]


def test_it_says_which_queries_are_missing(tmp_path: Path) -> None:
    cuda, whole = certificate(full(kernels=5, queries="torch"), tmp_path)
    assert (cuda["queries"], cuda["reconciles"]) == ("torch", True)
    assert whole["why"] == [QUERIES_OF_TORCH]
    assert certificate(full(kernels=5, queries="all"), tmp_path)[1]["why"] == []


def test_a_killed_process_says_how_many_kernels_had_not_been_delivered(tmp_path: Path) -> None:
    writer = new_writer(closed=False)
    lane = writer.lane()
    for correlation in range(1, 6):
        lane.api(LAUNCH, correlation=correlation)
    lane.api_enter(LAUNCH, correlation=6)  # had not returned
    writer.kernel(1)
    writer.kernel(2)
    cuda, whole = certificate(writer, tmp_path)
    assert (cuda["state"], cuda["launches"], cuda["kernels"]) == ("recorded", 5, 2)
    assert (cuda["launches_without_kernel"], cuda["reconciles"]) == (3, False)
    assert "3 launches whose kernels had not arrived when the process was killed" in whole["verdict"]


def test_a_killed_process_that_lacks_nothing_says_that_it_was_killed(tmp_path: Path) -> None:
    writer = new_writer(closed=False)
    writer.header = {"state": RECORDING}
    writer.lane().api(LAUNCH, correlation=1)
    writer.kernel(1)
    cuda, whole = certificate(writer, tmp_path)
    assert cuda["reconciles"]
    assert whole["verdict"] == "killed, or ended without a stop: 0 hops until then, nothing dropped"


def test_processes_are_counted_together_and_compared_one_by_one(tmp_path: Path) -> None:
    writer = new_writer({**STATED, "api_calls": 1, "launches": 1, "kernels": 1}, processes=2)
    for process in (0, 1):
        writer.lane(process, thread=1000 + process).api(LAUNCH, correlation=1)
    writer.kernel(1)
    writer.kernel(1, process=1)
    cuda, whole = certificate(writer, tmp_path)
    assert (cuda["launches"], cuda["kernels"], cuda["buffers"], cuda["reconciles"]) == (2, 2, 4, True)
    writer.activities[1] = []
    whole = certificate(writer, tmp_path)[1]
    assert whole["why"] == ["1 launch without a kernel", "process 1 counted 1 kernel, but the file has 0"]


def test_stacks_that_were_not_taken_are_no_loss(tmp_path: Path) -> None:
    cuda, whole = certificate(full(stacks_not_taken=2), tmp_path)
    assert cuda["reconciles"]
    assert whole["why"] == ["2 native stacks not taken (no memory)"]
    assert whole["verdict"].startswith("complete")


@pytest.mark.parametrize("document", [[], "text", {"state": 3, "buffers": "many", "kernels": None}])
def test_a_statement_of_another_form_is_no_error(tmp_path: Path, document: Any) -> None:
    writer = new_writer(document)
    writer.lane().api(LAUNCH, correlation=1)
    writer.kernel(1)
    assert certificate(writer, tmp_path)[0]["reconciles"]


CALLS = st.tuples(
    st.sampled_from([LAUNCH, GRAPH_LAUNCH, COPY]), st.booleans(), st.sampled_from([0, 0, 0, 1]), st.booleans()
)


@examples(80)
@given(
    calls=st.lists(CALLS, max_size=25), kernels=st.lists(st.integers(0, 30), max_size=30), seed=st.randoms()
)
def test_the_counts_are_those_of_the_tables(
    tmp_path_factory: pytest.TempPathFactory,
    calls: list[tuple[int, bool, int, bool]],
    kernels: list[int],
    seed: Any,
) -> None:
    writer = new_writer()
    lane = writer.lane()
    for correlation, (function, in_hop, result, captured) in enumerate(calls, start=1):
        if in_hop:
            lane.enter(0)
        lane.api(function, correlation=correlation, result=result, captured=captured)
        if in_hop:
            lane.exit()
        if captured:
            writer.graph_node(100 + correlation, correlation=correlation)
    for correlation in kernels:
        node = seed.choice([0, 0, 101, 105, 130])
        writer.activity(seed.choice([1, 1, 2, 3]), correlation, node=node)
    trace = load(writer.write(tmp_path_factory.mktemp("counts") / "x.trace"))
    cuda = trace.certificate["cuda"]
    api, activities = trace.api_calls, trace.gpu_activities
    run = activities.filter(pl.col("kind") == "kernel")
    launched = api.filter((pl.col("role") == "launch") & (pl.col("result") == 0) & ~pl.col("captured"))
    replays = api.filter(
        (pl.col("name") == "cudaGraphLaunch") & (pl.col("result") == 0) & ~pl.col("captured")
    )
    assert cuda["api_calls"] == len(api) == len(calls)
    assert cuda["launches"] == len(launched)
    assert cuda["graph_launches"] == len(replays)
    for name, kind in (("kernels", "kernel"), ("memcpys", "memcpy"), ("memsets", "memset")):
        assert cuda[name] == len(activities.filter(pl.col("kind") == kind))
    assert cuda["launches_without_kernel"] == len(
        launched.join(run, left_on="id", right_on="api_call", how="anti")
    )
    caused = pl.col("api_call").is_not_null() | pl.col("captured_by").is_not_null()
    assert cuda["kernels_joined_to_a_call"] == len(run.filter(caused))
    assert cuda["unjoined"] == len(run.filter(~caused))
    assert cuda["in_a_hop"] + cuda["captured_in_a_hop"] == run["hop"].is_not_null().sum()
    parts = ("in_a_hop", "captured_in_a_hop", "outside_ops", "unjoined")
    assert sum(cuda[name] for name in parts) == cuda["kernels"]
    assert sum(cause["count"] for cause in cuda["outside_ops_by"]) == cuda["outside_ops"]
    assert cuda["reconciles"] == (cuda["unjoined"] == cuda["launches_without_kernel"] == 0)
    assert trace.certificate["complete"] == (cuda["reconciles"] and bool(calls or kernels))


@pytest.mark.parametrize(("overwritten", "said"), [(50, 57), (49, 57), (50, None)])
def test_a_ring_kept_and_overwrote_all_that_was_counted(
    tmp_path: Path, overwritten: int, said: int | None
) -> None:
    counts = {} if said is None else {"kernels": said - 2, "memcpys": 1, "memsets": 1}
    writer = full(**counts) if counts else new_writer(closed=False)
    if not counts:
        writer.kernel(7)
    writer.header |= {"ring_slots": 12, "max_bytes": 16 << 20, "overwritten_activities": overwritten}
    _, whole = certificate(writer, tmp_path)
    counted = [line for line in whole["why"] if "counted" in line]
    if said is None or 7 + overwritten == said:
        assert not counted
    else:
        assert counted == ["57 GPU activities counted, but the file has 7 and 49 overwritten"]
