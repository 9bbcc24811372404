"""One rank of programs on several: their op calls as torch's profiler and as tracer count them, as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import polars as pl
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.profiler import ProfilerActivity, profile

import tracer

Step = Callable[[], object]


def dtensor(ranks: int) -> Step:
    mesh = init_device_mesh("cpu", (ranks,))
    a = distribute_tensor(torch.randn(4, 4), mesh, [Shard(0)])
    b = distribute_tensor(torch.randn(4, 4, requires_grad=True), mesh, [Replicate()])

    def step() -> None:
        y = (a @ b).relu().sum()
        y.backward()
        y.full_tensor()
        b.grad = None

    return step


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def training(net: nn.Module) -> Step:
    optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
    x = torch.randn(3, 8)

    def step() -> None:
        net(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def fsdp2(ranks: int) -> Step:
    net = model()
    fully_shard(net, mesh=init_device_mesh("cpu", (ranks,)))
    return training(net)


def tensor_parallel(ranks: int) -> Step:
    mesh = init_device_mesh("cpu", (ranks,))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return training(parallelize_module(model(), mesh, plan))


def profiled(step: Step) -> Counter[str]:
    """Calls of each operator; ranges and autograd nodes, which torch.profiler names too, are none."""
    config = torch._C._profiler._ExperimentalConfig(capture_overload_names=True, profile_all_threads=True)
    with profile(activities=[ProfilerActivity.CPU], experimental_config=config) as profiler:
        step()
    known = set(torch._C._dispatch_get_all_op_names())
    events = profiler.profiler.kineto_results.events()
    names = (f"{event.name()}.{event.overload_name()}".rstrip(".") for event in events)
    return Counter(name for name in names if name in known)


def traced(step: Step, path: Path) -> Counter[str]:
    with tracer.record(path, force=True):
        step()
    calls = tracer.load(path).hops.filter(pl.col("kind") == "call")
    return Counter(calls["op"].cast(pl.String).to_list())


def main() -> None:
    rank, ranks, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks))
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    counts = {}
    for program in (dtensor, fsdp2, tensor_parallel):
        torch.manual_seed(1)
        step = program(ranks)
        for _ in range(2):  # what is done once is done
            step()
        name = program.__name__
        counts[name] = {"profiler": profiled(step), "tracer": traced(step, folder / f"{name}.{rank}.trace")}
    print(json.dumps(counts))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
