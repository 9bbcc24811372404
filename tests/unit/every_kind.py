"""A trace with one of each kind of event, definition and document."""

from __future__ import annotations

import struct
import sys
from typing import Any

from synthetic import CERTIFICATE, ENUMS, Lane, TraceWriter, tensor, text
from tensor_events import passed, returned

RANGES = (
    *("forward of mine", "\x1fcall:1", "\x1fkernel:triton_poi_0#1", "\x1fphase:backend_compile:0/0"),
    *("\x1fimport:torch._dynamo", "\x1fhanded over:not float32"),
)
SCALARS = ('"mean"', '{"process_group":"0"}', '[1,{"device":"cpu"}]')
DOCUMENTS: dict[str, Any] = {
    "settings": {"threads": 2, "float32_matmul_precision": "highest", "variables": {"OMP_NUM_THREADS": "2"}},
    "source_lines": {"/home/train.py": {"cell": "In[2]", "lines": {"3": "step(model)"}}},
    "rank": {"rank": 0, "ranks": 2, "host": "node", "boot": "b5d5"},
    "compiled:1": {
        "function": "Net.forward",
        "defined_at": "/home/model.py:9",
        "decorated_at": "/home/model.py:8",
        "direction": "forward",
        "compile_id": "0/0",
        "cache": "miss",
        "recompiled": "0/0: guard",
        "generated": "/tmp/cab.py",
        "artifact": "fab",
        "how": "compiled",
        "hidden": None,
        "graph_id": 1,
        "cpp_wrapper": False,
        "kernels": {"triton_poi_0": {"language": "Triton", "line": 3, "threads": None}},
        "uses": {
            "triton_poi_0": [
                {
                    "nodes": [{"name": "mm", "op": "aten::mm", "source": "/home/model.py:9", "dynamo": "x"}],
                    "bytes": 4,
                }
            ]
        },
    },
    "optimizers": [
        {
            "class": "torch.optim.adam.Adam",
            "groups": [{"parameters": 2, "options": {"lr": "number", "fused": None, "amsgrad": True}}],
        },
        {"class": "secret.Mine", "groups": [{"parameters": 1, "options": {"momentum": 0.9}}]},
    ],
    "loaders": [{"num_workers": 2, "batch_size": None, "pin_memory": True}],
    "launch:1": {"file": "/tmp/cab.py", "defined_at": "/home/kernel.py:2", "configs": 1, "num_warps": 4},
}
BREAKS = [{"reason": "x", "source": "/home/model.py:9", "not_compiled": "Net.forward", "times": 1}]


def written(*, closed: bool, hop_chunk_bytes: int = 1 << 10) -> TraceWriter:
    """One of each kind of event and definition."""
    writer = TraceWriter(hop_chunk_bytes, header={} if closed else {"state": 0, "attached": 2})
    writer.process(certificate={**CERTIFICATE, "compiled": {"breaks": BREAKS, "missing": [], "errors": []}})
    writer.process(1, how=1, parent_pid=100, certificate=None)
    options = {"shapes": True, "source": True, "ops": ["aten::*"], "steps": [0, None], "max_size": None}
    facts = {"torch": "2.13.0", "argv": ["train.py"], "command": ["train.py"], "cwd": "/home", "cores": 4}
    writer.json(0, "environment", {**facts, "started_at": "2026-01-02T03:04:05+00:00", "options": options})
    library = {"path": sys.executable, "base": 0x1000, "end": 0x9000, "build_id": "ab" * 20}
    writer.json(0, "libraries", [library])
    writer.json(1, "enums", ENUMS)
    for name, document in DOCUMENTS.items():
        writer.json(0, name, document)
    entry = {"name": "mine", "mode": "auto", "operator": "aten::mm", "key": "CPU", "kernel": "my_mm"}
    entry |= {"registered_at": "RegisterCPU.cpp:1", "from_ns": 1, "to_ns": None, "times": 1, "ran": 1}
    overrides = [{**entry, "handed_over": {"not float32": 2}}]
    writer.json(0, "overrides", {"compiled_frames": 1, "overrides": overrides})
    writer.json(0, "not_joined", {"count": 1})
    for process in (0, 1):
        writer.hop(0, "aten::mm", process=process, address=0x2000)
        writer.hop(1, "aten::add.Tensor", process=process, address=0x3000, rule="backend fallback")
        writer.hop(2, "mine::op", process=process, python_kernel="my_mm (mine.py:3)")
        writer.hop(3, "aten::relu", process=process, address=0x4000)
        writer.module_path(1, "encoder.gru", "Model", process=process)
        writer.module_path(2, "", "Model", process=process)
    writer.symbol(0x3000, "_ZN2at6nativeL6add_opERKNS_6TensorE", "/lib/libtorch_cpu.so")
    writer.function(1, "cudaLaunchKernel", ("enter", "func", "const void *", 0, 8))
    writer.function(2, "cudaMemcpyAsync", ("enter", "kind", "enum cudaMemcpyKind", 0, 4))
    writer.function(3, "cublasSgemm_v2", ("enter", "m", "int", 0, 4), domain=2)
    writer.enumeration("cudaMemcpyKind", cudaMemcpyHostToDevice=1)
    writer.gpu(0, "NVIDIA H100", numMultiprocessors=132, coreClockRate=1980000)
    writer.graph_node(5, original=4)
    writer.graph_node(4, correlation=7)
    writer.string(1, "_Z6kernelv")
    for process in (0, 1):
        lane = writer.lane(process)
        lane.name_thread(1, "main")
        lane.define_source(1, "/home/train.py", 3)
        lane.define_source(2, "/home/model.py", 9)
        lane.define_python_stack(3, 1, 2)
        lane.define_string(1, "MmBackward0")
        lane.define_string(2, "Optimizer.step#SGD.step")
        scalars = b"".join(struct.pack("<H", place) + text(value) for place, value in enumerate(SCALARS))
        lane.define_signature(2, tensor((4,)), scalars=struct.pack("<I", len(SCALARS)) + scalars)
        lane.define(16, struct.pack("<I2Q", 1, 0, 0) + text("FakeTensorMode\nMode"))
        for number, name in enumerate(RANGES, 3):
            lane.define_string(number, name)
        lane.define_signature(1, tensor((2, 3), (3, 1), requires_grad=True), tensor(None, position=1))
        lane.define_stack(1, 0x3000, 0x2000)
        lane.define_signature(3, tensor((4,), (1,)))
        lane.define_signature(4, tensor((4,)), scalars=struct.pack("<IHI", 1, 0, 70), cut=True)
        lane.enter(3, source=1, signature=3)  # a call that tracer replay can make
        lane.exit()
        for step in range(4):
            lane.module(1)
            lane.enter(0, source=3, sequence=step, signature=1)
            lane.enter(1, call_site=2)
            lane.library_enter(3, 64)
            lane.api_enter(1, 9, correlation=10 + step, stack=1, kernel=1)
            lane.call_exit()
            lane.call_exit()
            lane.exit(raised=step == 2)
            lane.exit()
            lane.module(0)
            lane.node(1, step, made_by=1)
            lane.enter(2, source=1)
            lane.exit()
            lane.query(2, 1, correlation=20, read=1)
            for number in range(2, 3 + len(RANGES)):
                lane.range_enter(number)
            passed(lane, (3, step))
            lane.enter(2, signature=2)
            lane.exit()
            returned(lane, 3, (3, step + 1))
            for _ in range(1 + len(RANGES)):
                lane.range_exit()
            _tasks(lane, step)
            lane.step(step + 1, 1000 * step, 100)
            writer.kernel(10 + step, writer.ticks, writer.ticks + 3, name=1, process=process)
        writer.activity(2, 20, 1, 2, size=64, node=5, process=process)
        lane.enter(0)
    return writer


def _tasks(lane: Lane, step: int) -> None:
    """Two that overlap, one of which was entered in the other; and a range as version 6 had it."""
    first, second = 1000 + 2 * step, 1001 + 2 * step
    lane.context(0x7F00)
    lane.range_begin(2, first)
    lane.context(0x7F40, 0x7F00)
    lane.range_begin(2, second)
    lane.unnumbered_enter(2)
    lane.unnumbered_exit()
    lane.context(0x7F00)
    lane.range_end(first)
    lane.context(0x7F40, 0x7F00)
    lane.range_end(second)
