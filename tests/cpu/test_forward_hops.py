"""A backward hop has the forward hop, line and node that are its own; what is not in the trace is null."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from lazily import nn, torch

import tracer


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    """One that needs no gradient, and one that does."""
    return torch.randn(3, 3), torch.randn(3, 3, requires_grad=True)


def recorded(folder: Path, run: Callable[[], object], **options: Any) -> pl.DataFrame:
    with tracer.record(folder / "x.trace", force=True, **options):
        run()
    return tracer.load(folder / "x.trace").hops


def makers(hops: pl.DataFrame) -> dict[str, set[str | None]]:
    """Backward node -> the operators of its forward hops; None: there is no forward hop."""
    backward = hops.filter(pl.col("backward_node").is_not_null() & pl.col("parent").is_null())
    ops = hops["op"].cast(pl.String).gather(backward["forward_hop"])
    found: dict[str, set[str | None]] = {}
    for node, op in zip(backward["backward_node"].cast(pl.String), ops, strict=True):
        found.setdefault(node, set()).add(op)
    return found


def test_an_operator_without_a_hook_leaves_no_neighbour(tmp_path: Path) -> None:
    a, w = tensors()

    def run() -> None:
        torch.mm(a, a)  # it needs no gradient
        w.sin().sum().backward()

    hops = recorded(tmp_path, run, ops=["aten::m*"])
    assert makers(hops) == {"SinBackward0": {None}}
    backward = hops.filter(pl.col("backward_node").is_not_null())
    assert backward["source"].to_list() == backward["called_from"].to_list(), "the running line"


def test_a_view_whose_node_is_made_when_it_is_read(tmp_path: Path) -> None:
    a, w = tensors()

    def run() -> None:
        base = w.clone()
        view = base[0]
        base.mul_(2.0)
        torch.mm(a, a)
        assert view.grad_fn
        view.sum().backward()

    found = makers(recorded(tmp_path, run))
    assert found["AsStridedBackward0"] == {None}
    assert found["MulBackward0"] == {"aten::mul_.Tensor"}
    assert found["SumBackward0"] == {"aten::sum"}


def test_several_nodes_of_one_hop(tmp_path: Path) -> None:
    leaves = [torch.ones(2, requires_grad=True) for _ in range(3)]

    def run() -> None:
        tensors = [leaf * 1.0 for leaf in leaves]
        torch._foreach_mul_(tensors, 2.0)
        view = tensors[0][0]
        view.mul_(3.0)
        sum(tensor.sum() for tensor in tensors).backward()

    found = makers(recorded(tmp_path, run))
    assert found["MulBackward1"] == {"aten::_foreach_mul_.Scalar"}
    assert found["CopySlices"] == {"aten::mul_.Tensor"}


THREADS = """
import sys, threading, torch, tracer

x, ones, made = torch.ones(3, requires_grad=True), torch.ones(3), []
with tracer.record(sys.argv[1]):
    for turn in range(60):
        of_turn = x.cos if turn % 2 else x.sin
        thread = threading.Thread(target=lambda made_by=of_turn: made.append(made_by()))
        thread.start()
        thread.join()
        y = made.pop()
        torch.autograd.grad([y], [x], [ones])
        del y
"""


def test_graphs_made_in_threads(tmp_path: Path) -> None:
    """Each thread counts from 0, and a node lies where the last one's was."""
    path = tmp_path / "x.trace"
    done = subprocess.run([sys.executable, "-c", THREADS, path], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    hops = tracer.load(path).hops
    assert makers(hops) == {"SinBackward0": {"aten::sin"}, "CosBackward0": {"aten::cos"}}
    negated = hops.filter((pl.col("op").cast(pl.String) == "aten::neg") & pl.col("parent").is_null())
    assert negated["backward_node"].cast(pl.String).to_list() == ["CosBackward0"] * 30  # and no other negates


def test_names_of_function_classes_that_come_and_go(tmp_path: Path) -> None:
    _, w = tensors()
    names = ["Alpha", "Beta", "Gamma", "Delta"] * 10

    def run() -> None:
        for name in names:
            functions = {
                "forward": staticmethod(lambda ctx, x: x * 1),
                "backward": staticmethod(lambda ctx, gradient: gradient * 3),
            }
            made = type(name, (torch.autograd.Function,), functions)
            torch.autograd.grad(made.apply(w), w, torch.ones(3, 3))
            del made, functions
            gc.collect()

    gc.freeze()  # else each collection goes through all that torch and pytest have made
    try:
        hops = recorded(tmp_path, run)
    finally:
        gc.unfreeze()
    hops = hops.filter(pl.col("backward_node").is_not_null() & pl.col("parent").is_null())
    ran = hops.filter(pl.col("op").cast(pl.String) == "aten::mul.Tensor")["backward_node"].cast(pl.String)
    assert ran.to_list() == [f"{name}Backward" for name in names]


def test_lines_of_code_that_comes_and_goes(tmp_path: Path) -> None:
    """Snippets of one name and size, each freed before the next is made."""
    a, _ = tensors()
    lines = [1, 4, 10, 2, 7] * 20

    def run() -> None:
        for line in lines:
            exec(compile("\n" * (line - 1) + "torch.neg(A)\n", "<cell>", "exec"), {"torch": torch, "A": a})

    hops = recorded(tmp_path, run)
    outermost = hops.filter(pl.col("parent").is_null())
    assert outermost["source"].to_list() == [f"<cell>:{line}" for line in lines]


def test_the_line_below_many_modules(tmp_path: Path) -> None:
    a, _ = tensors()
    model: nn.Module = nn.ReLU()
    for _ in range(100):
        model = nn.Sequential(model)
    line = test_the_line_below_many_modules.__code__.co_firstlineno + 6
    hops = recorded(tmp_path, lambda: model(a))
    assert set(hops["source"]) == {f"{__file__}:{line}"}


def test_the_tree_names_no_line_where_the_forward_line_is_not_known(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from tracer.cli.app import app

    _, w = tensors()
    recorded(tmp_path, lambda: w.sin().sum().backward(), ops=["aten::m*"])
    said = CliRunner().invoke(app, ["tree", str(tmp_path / "x.trace")]).output
    assert "\nbackward: SinBackward0 (run from " in f"\n{said}"
