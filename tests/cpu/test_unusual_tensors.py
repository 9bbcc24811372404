"""What is said of tensors that are not plain: what torch knows without running Python, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from lazily import torch

import tracer

FACTS = ["shape", "stride", "device", "requires_grad"]


def first_inputs(folder: Path, op: str, run: Callable[[], object]) -> dict[str, Any]:
    """What the trace says of the first tensor that the first hop of `op` was given."""
    with tracer.record(folder / "x.trace", force=True):
        run()
    return first_of(folder / "x.trace", op)


def first_of(path: Path, op: str) -> dict[str, Any]:
    trace = tracer.load(path)
    inputs = trace.hops.filter(pl.col("op").cast(pl.String) == op)["inputs"][0]
    row = trace.signatures.filter(pl.col("id") == inputs).row(0, named=True)
    return {name: row[name] for name in FACTS}


def facts(shape: Any, stride: Any, device: str | None, requires_grad: bool) -> dict[str, Any]:
    return dict(zip(FACTS, (shape, stride, device, requires_grad), strict=True))


def test_fake_tensor(tmp_path: Path) -> None:
    """Python says on which device it is; its sizes stand in torch's own tensor."""

    def run() -> None:
        with torch._subclasses.FakeTensorMode():
            torch.neg(torch.empty(3, 4, device="cuda"))

    assert first_inputs(tmp_path, "aten::neg", run) == facts([3, 4], [4, 1], None, False)


@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype")
@pytest.mark.parametrize("layout", ["strided", "jagged"])
def test_nested_tensor(tmp_path: Path, layout: str) -> None:
    parts = [torch.ones(2, 3), torch.ones(4, 3)]
    nested = torch.nested.nested_tensor(parts, layout=getattr(torch, layout), requires_grad=True)
    assert first_inputs(tmp_path, "aten::sin", lambda: torch.sin(nested)) == facts(None, None, "cpu", True)


class AskedError(Exception):
    """Python was run to look at a tensor."""


def test_a_subclass_that_answers_in_python(tmp_path: Path) -> None:
    class Answering(torch.Tensor):
        """It answers in Python, and must not be asked."""

        inner: torch.Tensor

        @staticmethod
        def __new__(cls, inner: torch.Tensor) -> Answering:
            return torch.Tensor._make_wrapper_subclass(
                cls,
                inner.shape,
                dtype=inner.dtype,
                device="meta",
                dispatch_device=True,
                dispatch_sizes_strides_policy="sizes",
            )

        @property
        def device(self) -> torch.device:
            raise AskedError

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            if func is not torch.ops.aten.neg.default:
                raise AskedError(func)
            return func(args[0].inner)

    tensor = Answering(torch.ones(2, 3))
    tensor.inner = torch.ones(2, 3)
    assert first_inputs(tmp_path, "aten::neg", lambda: torch.neg(tensor)) == facts(None, None, None, False)


DTENSOR = """
import sys, torch, torch.distributed as dist, tracer
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
a = distribute_tensor(torch.randn(4, 6), init_device_mesh("cpu", (1,)), [Shard(0)]).requires_grad_()
with tracer.record(sys.argv[1]):
    torch.relu(a)
dist.destroy_process_group()
"""


def test_dtensor_has_its_global_shape(tmp_path: Path) -> None:
    path = tmp_path / "x.trace"
    done = subprocess.run([sys.executable, "-c", DTENSOR, path], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert first_of(path, "aten::relu") == facts([4, 6], [6, 1], "cpu", True)


def test_no_stride_erases_the_sizes_before_it(tmp_path: Path) -> None:
    """The number that strides are combined with in the hash of inputs, as a stride."""
    key, sizes = 0x4B33A62ED433D4A3, [7, 2, 5]
    with tracer.record(tmp_path / "x.trace"):
        for size in sizes:
            torch.neg(torch.ones(size, 1).as_strided((size, 1), (1, key)))
    trace = tracer.load(tmp_path / "x.trace")
    hops = trace.hops.filter((pl.col("op").cast(pl.String) == "aten::neg") & pl.col("parent").is_null())
    shapes = dict(trace.signatures.select("id", "shape").rows())
    assert [shapes[number] for number in hops["inputs"]] == [[size, 1] for size in sizes]


def test_hops_at_the_key_undefined_have_a_registration(tmp_path: Path) -> None:
    with tracer.record(tmp_path / "x.trace"):
        torch.can_cast(torch.int, torch.float)
    (row,) = tracer.load(tmp_path / "x.trace").hops.select("key", "registered_at", "rule").rows()
    dump = torch._C._dispatch_dump_table("aten::can_cast")
    said = next(line for line in dump.splitlines() if line.startswith("Undefined: "))
    assert row[0] == "Undefined"
    assert said == f"Undefined: registered at {row[1]} [{row[2]}]"
