"""Tensor arguments that gdb reads from memory are those that the recorder recorded."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from debugging import debug
from launching import Launcher

import tracer
from tracer.debugger.again import stop_tensors

pytestmark = pytest.mark.gdb

PROGRAM = """
import warnings
import torch
from torch.nn.functional import layer_norm

warnings.simplefilter("ignore")
cube = torch.zeros(3, 4, 5)
tensors = [torch.zeros(2, 3).to(dtype) for dtype in (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bool,
    torch.float8_e4m3fn)]
tensors += [torch.zeros(()), torch.zeros(0), torch.zeros(2, 0, 3), torch.zeros(1, 2, 1, 2, 1, 2, 1, 2, 3)]
tensors += [torch.zeros((1,) * d) for d in range(1, 9)]
tensors += [cube.transpose(0, 2), cube[1:, ::2], cube[..., 1], cube.expand(7, 3, 4, 5)]
tensors += [torch.zeros(9, 8, 7, 6, 5, 4, device="meta")[2:], torch.zeros(3, 4, requires_grad=True)]
tensors += [torch.nn.Parameter(torch.zeros(3)), torch.zeros(2, 3).to_sparse()]
tensors += [torch.zeros(2, 3).to_sparse_csr()]
tensors += [torch.quantize_per_tensor(torch.zeros(2, 3), 0.1, 0, torch.quint8)]
tensors += [torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])]
with torch.inference_mode():
    tensors.append(torch.zeros(4, 3))
print("here", flush=True)
for tensor in tensors:
    tensor.detach()
torch.cat([cube, cube[:1], torch.zeros(0)])
torch.stack([tensors[0]] * 20)
layer_norm(cube, (5,), None, torch.zeros(5))
layer_norm(cube, (5,), torch.ones(5), None)
cube[torch.tensor([0]), :, torch.tensor([1])]
image = torch.zeros(1, 2, 5, 5, requires_grad=True)
torch.nn.functional.conv2d(image, torch.zeros(3, 2, 2, 2)).sum().backward()
"""
OPS = [
    "detach",
    "cat",
    "stack",
    "native_layer_norm",
    "layer_norm",
    "index.Tensor",
    "convolution",
    "convolution_backward",
]


def test_gdb_reads_what_was_recorded(launcher: Launcher) -> None:
    launcher.write(PROGRAM)
    recorded = launcher.record("-o", "run.trace", "script.py")
    assert recorded.status == 0, recorded.err
    breaks = [part for op in OPS for part in ("--break", f"aten::{op}")]
    debugged = debug(launcher, "script.py", *breaks, "--backtrace", "1", "--limit", "0")
    assert (debugged.run.status, debugged.run.err.count("never")) == (0, 0), debugged.run.err
    expected = _recorded_inputs(launcher)
    read = [(stop["op"], _read(stop)) for stop in debugged.stops if stop["kind"] == "call"]
    assert len(read) > 40
    assert {op for op, _ in read} == {f"aten::{op}" for op in OPS}
    for number, (gdb, trace) in enumerate(zip(read, expected, strict=True)):
        assert gdb == trace, number


def _read(stop: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (tensor.get("shape"), tensor.get("stride"), tensor.get("dtype"), tensor.get("device"))
        for tensor in stop_tensors(stop)
    ]


def _recorded_inputs(launcher: Launcher) -> list[tuple[str, list[tuple[Any, ...]]]]:
    trace = tracer.load(launcher.folder / "run.trace")
    signatures = trace.signatures.with_columns(pl.col("dtype", "device").cast(pl.String)).sort(
        "id", "position"
    )
    rows: dict[int, list[tuple[Any, ...]]] = {}
    for row in signatures.iter_rows(named=True):
        dtype = row["dtype"] and row["dtype"].removeprefix("torch.")
        rows.setdefault(row["id"], []).append((row["shape"], row["stride"], dtype, row["device"]))
    hops = trace.hops.with_columns(pl.col("op", "kind").cast(pl.String)).sort("start_ns")
    wanted = hops.filter(pl.col("op").is_in([f"aten::{op}" for op in OPS]), pl.col("kind") == "call")
    return [(op, rows[number]) for op, number in wanted.select("op", "inputs").iter_rows()]
