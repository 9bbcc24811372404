"""The good traces that mutations begin with."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "unit"))

from mutations import Base, read_base  # noqa: E402
from synthetic import ENUMS, TraceWriter, tensor  # noqa: E402

from tracer.trace.bytes import format as fmt  # noqa: E402

# A training loop with modules and a child that is killed: what a CPU records.
_PROGRAM = """
import os, torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
if os.fork() == 0:
    torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    os._exit(0)
os.wait()
"""


def bases(*, recorded: bool = False) -> list[Base]:
    """`recorded`: also some that the installed tracer records here."""
    found = [
        read_base("gpu", (TESTS / "data" / "gpu.trace.xz").read_bytes()),
        Base("written", _written(closed=True).data()),
        Base("killed", _written(closed=False).data()),
        Base("slots", _with_slots()),
    ]
    return found + (_recorded() if recorded else [])


def _with_slots() -> bytes:
    """A ring that was not trimmed: slots first, and definitions behind them."""
    parts = Base("", _written(closed=True, hop_chunk_bytes=1 << 14).data()).parts()
    definitions = [part for part in parts if part[0].stream == fmt.DEFINITIONS]
    written = [part for part in parts if part[0].stream != fmt.DEFINITIONS]
    first = 2 * fmt.HEADER_BYTES
    head = _written(closed=True).data()[: fmt.HEADER_BYTES]
    header = fmt.unpack_file_header(head)._replace(header_bytes=first, ring_slots=len(written))
    head = fmt.FILE_HEADER.pack(*header) + head[fmt.FILE_HEADER.size :]
    owners = b"".join((1 << 30 | part[0].process).to_bytes(4, "little") for part in written)
    data = head + owners.ljust(fmt.HEADER_BYTES, b"\0")
    for chunk, body in written:
        whole = chunk._replace(capacity=fmt.SLOT_BYTES)
        data += (fmt.CHUNK_HEADER.pack(*whole) + body).ljust(fmt.SLOT_BYTES, b"\0")
    data += bytes(len(written) * fmt.SMALL_SLOTS * fmt.SMALL_SLOT_BYTES)
    return data + b"".join(fmt.pack_chunk(chunk, body) for chunk, body in definitions)


def _written(*, closed: bool, hop_chunk_bytes: int = 1 << 10) -> TraceWriter:
    """One of each kind of event and definition."""
    writer = TraceWriter(hop_chunk_bytes, header={} if closed else {"state": 0, "attached": 2})
    writer.process()
    writer.process(1, how=1, parent_pid=100, certificate=None)
    options = {"shapes": True, "source": True, "ops": ["aten::*"], "steps": [0, None], "max_size": None}
    facts = {"torch": "2.13.0", "argv": ["train.py"], "command": ["train.py"], "cwd": "/home", "cores": 4}
    writer.json(0, "environment", {**facts, "started_at": "2026-01-02T03:04:05+00:00", "options": options})
    library = {"path": sys.executable, "base": 0x1000, "end": 0x9000, "build_id": "ab" * 20}
    writer.json(0, "libraries", [library])
    writer.json(1, "enums", ENUMS)
    entry = {"name": "mine", "mode": "auto", "operator": "aten::mm", "key": "CPU", "kernel": "my_mm"}
    entry |= {"registered_at": "RegisterCPU.cpp:1", "from_ns": 1, "to_ns": None, "times": 1, "ran": 1}
    overrides = [{**entry, "handed_over": {"not float32": 2}}]
    writer.json(0, "overrides", {"compiled_frames": 1, "overrides": overrides})
    for process in (0, 1):
        writer.hop(0, "aten::mm", process=process, address=0x2000)
        writer.hop(1, "aten::add.Tensor", process=process, address=0x3000, rule="backend fallback")
        writer.hop(2, "mine::op", process=process, python_kernel="my_mm (mine.py:3)")
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
        lane.define_signature(1, tensor((2, 3), (3, 1), requires_grad=True), tensor(None, position=1))
        lane.define_stack(1, 0x3000, 0x2000)
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
            lane.range_enter(2)
            lane.range_exit()
            lane.step(step + 1)
            writer.kernel(10 + step, writer.ticks, writer.ticks + 3, name=1, process=process)
        writer.activity(2, 20, 1, 2, size=64, node=5, process=process)
        lane.enter(0)
    return writer


def _recorded() -> list[Base]:
    """Of this torch, with and without stacks, and as a ring."""
    found = []
    with tempfile.TemporaryDirectory(prefix="fuzz") as folder:
        Path(folder, "program.py").write_text(_PROGRAM)
        for name, options in (("cpu", []), ("stacks", ["--stack", "4"]), ("ring", ["--max-size", "64M"])):
            command = ["record", *options, "-o", f"{name}.trace", "program.py"]
            subprocess.run(
                [sys.executable, "-m", "tracer", *command], cwd=folder, check=True, capture_output=True
            )
            found.append(Base(name, Path(folder, f"{name}.trace").read_bytes()))
    return found
