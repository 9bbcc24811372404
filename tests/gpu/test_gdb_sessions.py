"""gdb sessions on CUDA tensors: the path down to the CUDA kernel function, under cuda-gdb or gdb."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest
from debugging import debug
from launching import Launcher

import tracer

pytestmark = pytest.mark.skipif(
    not (shutil.which("gdb") or shutil.which("cuda-gdb")), reason="no gdb is here"
)

PRODUCTS = """
import torch
weight = torch.ones(64, 32, device="cuda", requires_grad=True)
for n in (1, 200, 3):
    torch.matmul(torch.ones(n, 64, device="cuda"), weight)
torch.cuda.synchronize()
"""


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    made = Launcher(tmp_path)
    made.write(PRODUCTS)
    return made


def test_the_path_ends_in_the_cuda_kernel_function(launcher: Launcher) -> None:
    found = debug(
        launcher, "script.py", "--at", "2", "-b", "aten::mm", "-b", "at::native::structured_mm_out_cuda::impl"
    )
    assert found.run.status == 0, found.run.err
    assert found.functions() == [
        "at::_ops::mm::call",
        "torch::autograd::VariableType::mm",
        "at::_ops::mm::redispatch",
        "wrapper_CUDA_mm",
        "at::native::structured_mm_out_cuda::impl",
    ]
    assert [stop["key"] for stop in found.stops] == [None, "AutogradCUDA", "CUDA", "CUDA", None]
    tensor = found.stops[0]["arguments"][0]["value"]
    assert (tensor["shape"], tensor["dtype"], tensor["device"]) == ([200, 64], "float32", "cuda:0")
    assert {"CUDA", "AutogradCUDA"} < set(tensor["keys"])
    assert found.stops[0]["python"][-1][2] == 5


def test_a_hop_of_a_trace_again(launcher: Launcher) -> None:
    assert launcher.record("-o", "run.trace", "script.py").status == 0
    hops = tracer.load(launcher.folder / "run.trace").hops
    at_cuda = hops.filter((pl.col("op") == "aten::mm") & (pl.col("key") == "CUDA"))
    again = debug(launcher, "--from", "run.trace", "--hop", str(at_cuda["id"][2]))
    assert again.run.status == 0, again.run.err
    assert "the same op call as hop" in again.run.err
    assert again.stops[0]["arguments"][0]["value"]["shape"] == [3, 64]


def test_the_session_for_debug_builds(launcher: Launcher) -> None:
    found = debug(launcher, "debug_build/nine_stops")
    assert found.run.status == 0, found.run.err
    assert len(found.stops) == 9
    assert "at::native::structured_mm_out_cuda::impl" in found.functions()
