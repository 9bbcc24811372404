"""Hops of CUDA tensors: their keys and kernel functions, and the threads of the backward pass."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from lazily import torch

import tracer


def test_matmul_reaches_the_cuda_key(tmp_path: Path) -> None:
    a = torch.randn(64, 64, device="cuda", requires_grad=True)
    b = torch.randn(64, 64, device="cuda")
    with tracer.record(tmp_path / "t.trace"):
        torch.matmul(a, b)
    hops = tracer.load(tmp_path / "t.trace").hops
    chain = list(hops.select(pl.col("op", "key", "kind", "kernel").cast(pl.String)).iter_rows())
    assert chain[0][:3] == ("aten::matmul", "AutogradCUDA", "call")
    assert ("aten::mm", "AutogradCUDA", "call", "torch::autograd::VariableType::mm") in chain
    assert ("aten::mm", "CUDA", "redispatch", "wrapper_CUDA_mm") in chain


def test_backward_runs_on_a_thread_of_its_own_and_links_to_the_forward_hop(tmp_path: Path) -> None:
    weight = torch.randn(64, 64, device="cuda", requires_grad=True)
    x = torch.randn(64, 64, device="cuda")
    with tracer.record(tmp_path / "t.trace") as recording:
        torch.mm(x, weight).sum().backward()
    assert recording.summary is not None
    assert recording.summary.threads == 2
    hops = tracer.load(tmp_path / "t.trace").hops
    backward = hops.filter(pl.col("backward_node").cast(pl.String) == "MmBackward0")
    forward = hops.filter((pl.col("op") == "aten::mm") & (pl.col("key") == "AutogradCUDA")).row(0, named=True)
    assert len(backward)
    assert set(backward["forward_hop"]) == {forward["id"]}
    assert set(backward["thread"]) != {forward["thread"]}
    assert set(backward["source"].cast(pl.String)) == {forward["source"]}


def test_results_are_the_same_bytes(tmp_path: Path) -> None:
    def step() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).cuda()
        loss = model(torch.randn(16, 32, device="cuda")).square().mean()
        loss.backward()
        return [loss.detach(), *(p.grad for p in model.parameters())]

    step()
    plain = step()
    with tracer.record(tmp_path / "t.trace"):
        traced = step()
    assert all(torch.equal(a, b) for a, b in zip(plain, traced, strict=True))
