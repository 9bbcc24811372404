"""Two GPUs: a job whose rank 1 loads its batches 5 ms too late, and exchanges of each kind."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from launching import Launcher
from lazily import torch

import tracer

EXAMPLE = Path(__file__).parents[2] / "examples" / "ddp.py"


@pytest.fixture(autouse=True, scope="module")
def two_gpus() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")


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
        calls = calls_of(trace, "ncclAllReduce")
        reduced = job.calls.filter((pl.col("rank") == part.rank) & (pl.col("op") == "c10d::allreduce_"))
        assert len(calls) == len(reduced) >= 30
        assert calls["result"].unique().to_list() == [0]
        asked = trace.arguments("ncclAllReduce")
        assert asked["datatype"].unique().to_list() == ["ncclFloat32"]
        assert asked["op"].unique().to_list() == ["ncclSum"]
        assert (asked["count"] * 4).to_list() == reduced["bytes"].to_list()
        assert asked["comm"].n_unique() == 1
        hops = trace.hops.filter(pl.col("id").is_in(calls["hop"].implode()))
        assert hops["op"].cast(pl.String).unique().to_list() == ["c10d::allreduce_"]
        launched = kernels_by_call(trace)
        assert set(launched["called"]) == {"ncclAllReduce", "ncclAllGather", "ncclBcast"}
        of_reductions = launched.filter(pl.col("called") == "ncclAllReduce")
        assert of_reductions["library_call_id"].to_list() == calls["id"].to_list()
        assert of_reductions["kernel"].str.starts_with("ncclDevKernel_AllReduce_Sum_f32").all()


def calls_of(trace: tracer.Trace, function: str) -> pl.DataFrame:
    return trace.library_calls.filter(pl.col("name").cast(pl.String) == function)


def kernels_by_call(trace: tracer.Trace) -> pl.DataFrame:
    """The kernels of NCCL in the order of their launches, and the call of NCCL that launched each."""
    kernels = trace.gpu_activities.select("api_call", kernel=pl.col("name").cast(pl.String))
    kernels = kernels.filter(pl.col("kernel").str.contains("(?i)nccl"))
    called = pl.col("library_call").cast(pl.String)
    launches = trace.api_calls.select("library_call_id", api_call="id", called=called)
    assert kernels["api_call"].null_count() == 0
    return kernels.join(launches, on="api_call").sort("api_call")


EXCHANGES = """\
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank = dist.get_rank()
peer = 1 - rank
torch.cuda.set_device(rank)


def ones(count, dtype=torch.float32):
    return torch.ones(count, dtype=dtype, device="cuda")


dist.all_reduce(ones(1000), op=dist.ReduceOp.MAX)
dist.all_reduce(ones(1001, torch.bfloat16), op=dist.ReduceOp.AVG)
dist.broadcast(ones(1002, torch.int64), 1)
dist.reduce(ones(1003, torch.float64), 1)
dist.all_gather_into_tensor(ones(2 * 1004, torch.float16), ones(1004, torch.float16))
dist.reduce_scatter_tensor(ones(1005), ones(2 * 1005))
dist.all_to_all_single(ones(2 * 1006, torch.uint8), ones(2 * 1006, torch.uint8))
if rank == 0:
    dist.send(ones(1007), 1)
else:
    dist.recv(ones(1007), 0)
both = [dist.P2POp(dist.isend, ones(1008), peer), dist.P2POp(dist.irecv, ones(1008), peer)]
for work in dist.batch_isend_irecv(both):
    work.wait()
dist.gather(ones(1009, torch.int8), [ones(1009, torch.int8) for _ in range(2)] if rank == 0 else None, 0)
dist.scatter(ones(1010, torch.int32), [ones(1010, torch.int32) for _ in range(2)] if rank == 1 else None, 1)
torch.cuda.synchronize()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    launcher = Launcher(tmp_path_factory.mktemp("exchanges"))
    launcher.write(EXCHANGES)
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = launcher.run([*run, "--no-python", str(launcher.tracer), "record", "-o", "job/", "script.py"])
    assert done.status == 0, done.err
    return launcher


@pytest.mark.parametrize("rank", [0, 1])
def test_every_exchange_has_its_arguments(exchanged: Launcher, rank: int) -> None:
    """As torch 2.11 calls NCCL: it sends and receives itself to gather and to scatter."""
    trace = tracer.load(exchanged.folder / "job" / f"rank{rank}.trace")
    peer = 1 - rank
    one_way = [("ncclSend", 1007, "Float32", 1), ("ncclRecv", 1007, "Float32", 0)][rank]
    gathered = [("ncclRecv", 1009, "Int8", 1), ("ncclSend", 1009, "Int8", 0)][rank]
    scattered = [("ncclRecv", 1010, "Int32", 1), ("ncclSend", 1010, "Int32", 0)][rank]
    assert exchanges(trace) == [
        ("c10d::allreduce_", "ncclAllReduce", 1000, "Float32", "Max"),
        ("c10d::allreduce_", "ncclAllReduce", 1001, "Bfloat16", "Avg"),
        ("c10d::broadcast_", "ncclBcast", 1002, "Int64", 1),
        ("c10d::reduce_", "ncclReduce", 1003, "Float64", "Sum", 1),
        ("c10d::_allgather_base_", "ncclAllGather", 1004, "Float16"),
        ("c10d::_reduce_scatter_base_", "ncclReduceScatter", 1005, "Float32", "Sum"),
        ("c10d::alltoall_base_", "ncclAlltoAll", 1006, "Uint8"),
        (["c10d::send", "c10d::recv_"][rank], *one_way),
        ("c10d::send", "ncclSend", 1008, "Float32", peer),
        ("c10d::recv_", "ncclRecv", 1008, "Float32", peer),
        ("c10d::gather_", *gathered),
        ("c10d::scatter_", *scattered),
    ]


@pytest.mark.parametrize("rank", [0, 1])
def test_kernels_of_a_group_are_launched_by_its_end(exchanged: Launcher, rank: int) -> None:
    launched = kernels_by_call(tracer.load(exchanged.folder / "job" / f"rank{rank}.trace"))
    kernels = launched["kernel"].str.extract(r"^ncclDevKernel_([A-Za-z]+)")
    assert list(zip(launched["called"], kernels, strict=True)) == [
        ("ncclAllReduce", "AllReduce"),
        ("ncclAllReduce", "AllReduce"),
        ("ncclBcast", "Broadcast"),
        ("ncclReduce", "Reduce"),
        ("ncclAllGather", "AllGather"),
        ("ncclReduceScatter", "ReduceScatter"),
        ("ncclAlltoAll", "SendRecv"),
        ("ncclGroupEnd", "SendRecv"),  # one way
        ("ncclGroupEnd", "SendRecv"),  # both ways
        ("ncclGroupEnd", "SendRecv"),  # gather
        ("ncclGroupEnd", "SendRecv"),  # scatter
    ]
    assert launched["library_call_id"].n_unique() == len(launched)


def exchanges(trace: tracer.Trace) -> list[tuple[object, ...]]:
    """Of each in its order: the op, the function, the count, the type, the operation, the root or peer."""
    ops = trace.hops["op"].cast(pl.String)
    calls = trace.library_calls.select("id", "hop", "result", name=pl.col("name").cast(pl.String))
    calls = calls.filter(pl.col("name").str.starts_with("nccl"))
    assert calls["result"].unique().to_list() == [0]
    found = {}
    for name in calls["name"].unique():
        for number, *words in trace.arguments(name).drop("comm", "stream", strict=False).iter_rows():
            found[number] = [word.removeprefix("nccl") if isinstance(word, str) else word for word in words]
    return [(ops[hop], name, *found[number]) for number, hop, _, name in calls.iter_rows() if found[number]]


STUCK = """\
import os
import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
x = torch.randn(1024, 1024, device="cuda")
for step in range(4):
    y = x @ x
    if step == 3 and rank == 1:
        torch.cuda._sleep(1 << 60)
    if step == 3:
        open(f"ready.{rank}", "w").close()
    dist.all_reduce(y)
    y.sum().item()
"""


def test_a_rank_in_a_kernel_that_does_not_end(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    launcher.write(STUCK)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    record = [str(launcher.tracer), "record", "--max-size", "16M", "-o", "job/", "script.py"]
    job = launcher.start(sys.executable, *torchrun, *record)
    ranks: list[int] = []
    try:
        wait_for(tmp_path, *(f"ready.{rank}" for rank in range(2)))
        time.sleep(3)
        ranks = [int(pid) for pid in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()]
        for pid in ranks:
            os.kill(pid, signal.SIGUSR2)
        wait_for(tmp_path, *(f"job/rank{rank}.dump0001.trace" for rank in range(2)))
    finally:
        for pid in ranks:
            os.kill(pid, signal.SIGKILL)
        job.terminate()
        job.communicate(timeout=60)
    (tmp_path / "hang").mkdir()
    for path in tmp_path.glob("job/*.dump0001.trace"):
        path.rename(tmp_path / "hang" / path.name)
    said = launcher.run([str(launcher.tracer), "report", "hang"]).out.split("\n\n")[2]
    assert said.startswith("**Ranks 0, 1 have waited for the GPU** in `aten::_local_scalar_dense` of ")
    assert "Rank 1 alone launched kernels in `script.py:12` since it waited for its GPU before" in said


def wait_for(folder: Path, *names: str) -> None:
    end = time.monotonic() + 60
    while not all((folder / name).exists() for name in names):
        assert time.monotonic() < end
        time.sleep(0.05)
